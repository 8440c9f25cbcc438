"""On which device and in which precision a subject runs, and its batches with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from gradscope.errors import ConfigError
from gradscope.probe.faults.failures import no_batches

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def device_for(wish: str, model: nn.Module) -> torch.device | None:
    """Return the device to run on; None leaves everything where it is.

    Raises:
        ConfigError: The device does not exist here.
    """
    if wish == "auto":
        elsewhere = any(tensor.device.type not in ("cpu", "cuda") for tensor in model.parameters())
        if elsewhere or not torch.cuda.is_available():
            return None
        return torch.device("cuda")
    try:
        device = torch.device(wish)
    except RuntimeError:
        rule = "auto, cpu, cuda or cuda:N."
        raise ConfigError(f"'{wish}' is not a device.", rule=rule, hint="--device auto") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("There is no CUDA device here.", rule="--device says cuda.", hint="--device cpu")
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        raise ConfigError(
            f"There is no device '{wish}'.", rule=f"This machine has {torch.cuda.device_count()}.", hint="--device cuda"
        )
    return device


def dtype_for(wish: str | None) -> torch.dtype | None:
    """Return the floating dtype to convert to; None keeps the model's own.

    Raises:
        ConfigError: No such dtype.
    """
    if wish is None:
        return None
    try:
        return DTYPES[wish]
    except KeyError:
        rule = f"One of {', '.join(DTYPES)}."
        raise ConfigError(f"'{wish}' is not a dtype.", rule=rule, hint="--dtype float32") from None


def place_model(model: nn.Module, device: torch.device | None, dtype: torch.dtype | None) -> None:
    """Move a model and convert its floating parameters and buffers, in place; tensors on meta stay there."""

    def placed(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_meta:
            return tensor
        return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)

    if device is not None or dtype is not None:
        # What `Module.to` does as well, but that refuses models with a part on meta.
        model._apply(placed)


def place(value: Any, device: torch.device | None, dtype: torch.dtype | None) -> Any:
    """Move the tensors of a batch, whatever it is nested in, and convert the floating ones."""
    if device is None and dtype is None:
        return value
    if isinstance(value, torch.Tensor):
        wanted = dtype if value.is_floating_point() else None
        moved = value.detach().to(device=device, dtype=wanted)
        return moved.requires_grad_(value.requires_grad)
    return _rebuilt(value, lambda item: place(item, device, dtype))


def _rebuilt(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(convert, value))
    if type(value) in (list, tuple, set):
        return type(value)(map(convert, value))
    if isinstance(value, Mapping):  # also those of tokenizers, which can be made from a dict
        changed = {key: convert(item) for key, item in value.items()}
        kind: Callable[..., Any] = type(value)
        return kind(changed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: convert(getattr(value, name)) for name in fields})
    return value


def endless(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches, from the start again whenever they run out.

    Raises:
        InputsError: There are none.
    """
    seen: list[Any] = []
    again = iter(batches) is not batches  # a container can be started anew; an iterator has to be remembered
    while True:
        count = 0
        for batch in batches:
            count += 1
            if not again:
                seen.append(batch)
            yield batch
        if not again:
            batches, again = seen, True
        elif count == 0:
            raise no_batches()
