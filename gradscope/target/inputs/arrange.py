"""How a batch reaches forward: what of it the model takes, and what is left as targets for the loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from gradscope.target.subject import Batch, call_model

TARGET_NAMES = (
    "labels",
    "label",
    "targets",
    "target",
    "y",
    "y_true",
    "gt",
    "ground_truth",
    "tgt_labels",
    "classes",
    "annotations",
)
WHOLE_BATCH_NAMES = ("batch", "sample", "samples", "example", "examples", "batched_inputs", "data_dict", "batch_dict")


@dataclass(frozen=True)
class Arrangement:
    """How a batch is used.

    Attributes:
        forward: ``forward(model, batch)``, or None for the usual ``model(*batch)`` or ``model(**batch)``.
        targets: Takes the targets out of a batch; None where it carries none that we know of.
    """

    forward: Callable[[nn.Module, Batch], Any] | None
    targets: Callable[[Batch], Any] | None


@dataclass(frozen=True)
class Signature:
    """What a forward accepts.

    Attributes:
        names: Parameters that can be given by position, in order.
        required: Those of all kinds that have no default.
        keywords: Every parameter's name.
        takes_more: Whether there is ``*args``.
        takes_any: Whether there is ``**kwargs``.
    """

    names: tuple[str, ...]
    required: tuple[str, ...]
    keywords: tuple[str, ...]
    takes_more: bool
    takes_any: bool


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the user's own module inside torch.compile, DataParallel and the like."""
    for name in ("_orig_mod", "module"):
        inner = getattr(model, name, None)
        if isinstance(inner, nn.Module) and type(model).__module__.startswith("torch."):
            return unwrapped(inner)
    return model


def signature_of(model: nn.Module) -> Signature:
    """Read the signature of a model's forward (anything goes where it cannot be read)."""
    try:
        parameters = inspect.signature(unwrapped(model).forward).parameters
    except (TypeError, ValueError):
        return Signature((), (), (), True, True)
    kinds = inspect.Parameter
    values = list(parameters.values())
    named = [p for p in values if p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)]
    return Signature(
        tuple(p.name for p in named if p.kind is not kinds.KEYWORD_ONLY),
        tuple(p.name for p in named if p.default is p.empty),
        tuple(p.name for p in named if p.kind is not kinds.POSITIONAL_ONLY),
        any(p.kind is kinds.VAR_POSITIONAL for p in values),
        any(p.kind is kinds.VAR_KEYWORD for p in values),
    )


def arrange(model: nn.Module, batch: Batch, *, from_loader: bool) -> Arrangement:
    """Decide what of a batch goes to the model.

    Args:
        model: The model.
        batch: A batch as its source gives it.
        from_loader: Whether it comes from a data loader, whose last part is usually a target; a ``batch()`` function's
            tuple is taken as it stands as long as forward can take it.
    """
    signature = signature_of(model)
    if isinstance(batch, Mapping):
        return _arrange_mapping(signature, batch)
    if isinstance(batch, tuple | list):
        return _arrange_sequence(signature, batch, from_loader)
    return Arrangement(None, None)


def _arrange_mapping(signature: Signature, batch: Mapping[str, Any]) -> Arrangement:
    named = next((key for key in TARGET_NAMES if key in batch), None)
    targets = (lambda b: b[named]) if named else None
    if signature.takes_any or all(key in signature.keywords for key in batch):
        return Arrangement(None, targets)
    accepted = [key for key in batch if key in signature.keywords]
    if accepted and set(signature.required) <= set(accepted):
        rest = [key for key in batch if key not in accepted]
        last = named or rest[0]
        return Arrangement(lambda model, b: model(**{key: b[key] for key in accepted}), lambda b: b[last])
    if len(signature.names) == 1 or len(signature.required) == 1:
        if not _is_named_batch(signature.names[0]) and (only := _the_only_input(batch)):
            return Arrangement(lambda model, b: model(b[only]), targets)
        return Arrangement(lambda model, b: model(b), targets)
    return Arrangement(None, targets)


def _the_only_input(batch: Mapping[str, Any]) -> str | None:
    """The one entry that is no target, of a batch such as {"image": …, "label": …} for ``forward(x)``."""
    inputs = [key for key in batch if key not in TARGET_NAMES]
    return inputs[0] if len(inputs) == 1 and len(batch) == 2 else None  # noqa: PLR2004  # one input, one target


def _arrange_sequence(signature: Signature, batch: tuple[Any, ...] | list[Any], from_loader: bool) -> Arrangement:
    if len(batch) > 1 and len(signature.names) == 1 and _is_named_batch(signature.names[0]):
        return Arrangement(lambda model, b: model(b), lambda b: b[-1])
    if signature.takes_more or (len(batch) <= len(signature.names) and not from_loader):
        return Arrangement(None, None)
    taken = min(len(batch), len(signature.names))
    required = sum(name in signature.required for name in signature.names)
    if from_loader:
        while taken > max(required, 1) and signature.names[taken - 1] not in TARGET_NAMES:
            taken -= 1
    if taken == len(batch):
        return Arrangement(None, lambda b: b[-1])
    return Arrangement(
        lambda model, b: call_model(model, tuple(b[:taken])),
        lambda b: b[taken] if len(b) == taken + 1 else tuple(b[taken:]),
    )


def _is_named_batch(name: str) -> bool:
    return name in WHOLE_BATCH_NAMES
