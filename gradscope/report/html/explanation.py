"""The documentation of a rule, as its finding shows it: the little Markdown that rules use, as escaped HTML."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from gradscope.errors import ConfigError
from gradscope.rules.registry import rule

_FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")
_ITEM = re.compile(r"(?:-|\d+\.) +")


def rule_name(code: str) -> str:
    """Return a rule's short name in words, "" for a code that this version does not know."""
    try:
        return rule(code).name.replace("-", " ")
    except ConfigError:
        return ""


def explanation(code: str) -> list[tuple[str, Markup]]:
    """Return a rule's documentation as (heading, HTML) pairs, empty for an unknown code."""
    try:
        doc = rule(code).doc
    except ConfigError:
        return []
    return [(heading, blocks(text)) for heading, text in doc.sections() if text]


def blocks(text: str) -> Markup:
    """Turn paragraphs, lists and fenced code into HTML; everything else is escaped and kept.

    Example:
        >>> blocks("Use `x + f(x)`.")
        Markup('<p>Use <code>x + f(x)</code>.</p>')
    """
    parts = []
    for place, piece in enumerate(_FENCE.split(text)):
        if place % 2:
            parts.append(Markup('<pre tabindex="0">{}</pre>').format(piece.rstrip()))
        else:
            parts += [_block(block) for block in re.split(r"\n\s*\n", piece) if block.strip()]
    return Markup("").join(parts)


def _block(text: str) -> Markup:
    lines = text.strip().splitlines()
    if not _ITEM.match(lines[0]):
        return Markup("<p>{}</p>").format(spans(" ".join(lines)))
    items: list[str] = []
    for line in lines:
        if _ITEM.match(line):
            items.append(_ITEM.sub("", line, count=1))
        else:
            items[-1] += " " + line.strip()
    kind = "ol" if lines[0][0].isdigit() else "ul"
    listed = Markup("").join(Markup("<li>{}</li>").format(spans(item)) for item in items)
    return Markup("<{k}>{}</{k}>").format(listed, k=kind)


def spans(text: str) -> Markup:
    """Set `code`, **strong** and *emphasis* within a line."""
    parts = []
    end = 0
    for found in _SPAN.finditer(text):
        parts.append(escape(text[end : found.start()]))
        code, strong, emphasis = found.groups()
        kind = "code" if code else "strong" if strong else "em"
        parts.append(Markup("<{k}>{}</{k}>").format(code or strong or emphasis, k=kind))
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])
