"""What goes wrong in the user's own code while it is watched, as errors that say where and what to do."""

from __future__ import annotations

import linecache
from pathlib import Path

import torch

from gradscope.errors import GradscopeError, InputsError, LossError, ModelError
from gradscope.probe.faults.cuts import Cut
from gradscope.probe.watching.source import relative, user_line

_MOST_MESSAGE = 300
"""Characters of the user's own exception message that are kept; torch can print whole tensors."""
_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "defaultcpuallocator")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that a device or the machine ran out of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _NO_MEMORY)


def told(error: BaseException, doing: str, root: Path) -> GradscopeError:
    """Return the error that tells what the user's code raised, and on which of its lines.

    Args:
        error: What was raised.
        doing: What was going on, such as "the forward at step 0".
        root: The folder files are shown relative to.
    """
    if isinstance(error, GradscopeError):
        return error
    file, line = user_line(error)
    code = linecache.getline(file, line).strip() if file and line else ""
    shown = None if file is None else relative(file, root)
    where = f"At {shown}:{line}: {code}" if shown else ""
    if is_out_of_memory(error):
        return ModelError(
            f"{doing} ran out of memory. {where}".rstrip(), rule="The model and one batch have to fit.",
            hint="use a smaller batch (--input, --inputs) or --device cpu", file=shown, line=line,
        )  # fmt: skip
    return ModelError(f"{doing} raised {_message(error)}.", rule=where, hint="--debug shows the traceback",
                      file=shown, line=line)  # fmt: skip


def loss_error(loss: object, model_has_trainable: bool) -> LossError | None:
    """Return what is wrong with a loss, None where it is a scalar with a gradient."""
    hint = "--loss file.py:function, or def loss(output, batch) in the model's file"
    if not isinstance(loss, torch.Tensor):
        what = f"The loss is a {type(loss).__name__}, not a tensor."
        return LossError(what, rule="It has to be one number.", hint=hint)
    if loss.numel() != 1:
        shape = "x".join(map(str, loss.shape))
        return LossError(
            f"The loss has shape {shape}.", rule="It has to be one number, such as its .mean().", hint=hint
        )
    if not model_has_trainable:
        return LossError(
            "No parameter of the model requires a gradient.", rule="There is no gradient flow to measure.",
            hint="model.requires_grad_(True), or unfreeze the layers that are to be trained",
        )  # fmt: skip
    if not loss.requires_grad:
        return LossError(
            "The loss does not depend on any parameter.",
            rule="The graph is cut on the way: detach(), no_grad(), .data, .item(), argmax or a cast to integers.",
            hint=hint,
        )
    return None


def cut_error(error: LossError, cut: Cut, root: Path) -> LossError:
    """Return the same complaint with the place at which the graph is cut."""
    if cut.file is None or cut.line is None:
        return error
    shown, code = relative(cut.file, root), linecache.getline(cut.file, cut.line).strip()
    return LossError(
        error.what, rule=f"The graph is cut by {cut.op} at {shown}:{cut.line}: {code}", hint=error.hint, file=shown,
        line=cut.line,
    )  # fmt: skip


def no_batches() -> InputsError:
    """Return the error of an empty source of batches."""
    what = "There is no batch to step through."
    return InputsError(what, rule="The batches are empty.", hint="--inputs file.py:function")


def _message(error: BaseException) -> str:
    words = " ".join(str(error).split())
    if len(words) > _MOST_MESSAGE:
        words = words[:_MOST_MESSAGE] + " …"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
