"""Names that came from the user, made fit to print: nothing in them can move the cursor, reorder a line or end it."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len, set_cell_size

_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
"""Control, format (bidi overrides, zero width), surrogate, private, unassigned, and every separator but the space."""

_KEPT = " \u200d"
"""The space, and the zero-width joiner, which holds emoji such as families together and cannot reorder anything."""

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_OPERATION = re.compile(r"^(?:[a-z]+ )+(?=\w+\.)")
"""Words in front of the modules that an operation between modules is named after."""


def visible(text: str) -> str:
    r"""Replace every character that a terminal would obey rather than show by its escape, as `\n` or `\u202e`.

    Examples:
        >>> print(visible("layers.0\n[31m"))
        layers.0\n[31m
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _ESCAPED_CATEGORIES:
        return character
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    code = ord(character)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def fit(text: str, width: int, ellipsis: str = "…") -> str:
    """Shorten a name to a number of terminal cells, keeping its end, which tells siblings apart, and some of its start.

    Examples:
        >>> fit("transformer.encoder.layers.11.self_attn", 24)
        'transfo…ers.11.self_attn'
    """
    text = visible(text)
    if cell_len(text) <= width:
        return text
    if width <= cell_len(ellipsis):
        return ellipsis[:width]
    room = width - cell_len(ellipsis)
    head = room // 3
    return set_cell_size(text, head).rstrip() + ellipsis + _last_cells(text, room - head)


def fit_dotted(name: str, width: int, ellipsis: str = "…") -> str:
    """Shorten a dotted module name by its leading parts, so that numbers and the last part stay readable.

    Of an operation between modules the first module is kept, without the words in front of it.

    Examples:
        >>> fit_dotted("model.layers.11.self_attn.q_proj", 24)
        'm.l.11.self_attn.q_proj'
        >>> fit_dotted("view of model.visual.patch_embed, model.visual.pos_embed", 24)
        'model.visual.patch_embed'
    """
    name = visible(name)
    if cell_len(name) > width:
        name = _OPERATION.sub("", name).partition(", ")[0]
    parts = name.split(".")
    for place in range(len(parts) - 1):
        if cell_len(".".join(parts)) <= width:
            break
        if not parts[place].isdecimal():
            parts[place] = parts[place][:1]
    return fit(".".join(parts), width, ellipsis)


def _last_cells(text: str, width: int) -> str:
    # Never looks at more characters than can fit, so that a megabyte of name costs nothing.
    tail = text[-width:]
    while cell_len(tail) > width:
        tail = tail[1:]
    return tail


def shown_module(module: str, call: int = 0) -> str:
    """Name a module as every view does: the whole model by a word, a later call of the same module by its number.

    Examples:
        >>> shown_module("cell", 3), shown_module("")
        ('cell (call 3)', 'the whole model')
    """
    if not module:
        return "the whole model"
    return f"{visible(module)} (call {call})" if call else visible(module)
