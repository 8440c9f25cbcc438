"""--inputs: a function in a file, or a file of tensors."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from gradscope.errors import InputsError, TargetError
from gradscope.target.importing import folder_of, import_dotted, import_file
from gradscope.target.inputs.batches import Batches
from gradscope.target.inputs.named import batches_of
from gradscope.target.inputs.stored import SUFFIXES, read
from gradscope.target.pick import attribute
from gradscope.target.source import Offer
from gradscope.target.spec import split_attr
from gradscope.target.subject import Origin


def given_inputs(text: str) -> Offer:
    """Return the batches that ``--inputs`` names.

    Raises:
        InputsError: If there is no such file or function, or it gives no batch.
    """
    if text.endswith(SUFFIXES):
        return Offer(Batches(read(Path(text))), Origin(f"the file {Path(text).name}"))
    module, attr, where = code_at(text, "--inputs")
    try:
        value = attribute(module, attr, where)
    except TargetError as error:
        raise InputsError(f"--inputs {text}: {error.what}", rule=error.rule) from error
    batches = batches_of(value, attr, where, folder_of(module))
    if batches is None:
        raise InputsError(
            f"--inputs {text}: {attr} cannot be called without arguments and is not a batch.",
            rule="It should be a batch, an iterable of batches, or a function without arguments that returns either.",
        )
    batches.first(f"{attr} in {where}")
    return Offer(batches, Origin(f"{attr}{'()' if callable(value) else ''} in {where} (--inputs)"))


def code_at(text: str, option: str) -> tuple[ModuleType, str, str]:
    """Import the file or module of ``file.py:name`` and return it, the name, and where it is in words.

    Raises:
        InputsError: If the text has no name after a colon.
    """
    place, attr = split_attr(text)
    if not attr:
        raise InputsError(
            f"{option} {text} names no function.",
            rule=f"Write {option} file.py:function"
            + (f", or a file ending in {', '.join(SUFFIXES)}." if option == "--inputs" else "."),
        )
    is_file = place.endswith(".py") or "/" in place
    return (import_file(Path(place)) if is_file else import_dotted(place)), attr, Path(place).name if is_file else place
