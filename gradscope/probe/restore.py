"""The model afterwards is the model before: parameters, buffers, gradients, flags, modes, attributes, random state."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradscope.probe.listing import buffers

_CONTAINERS = (dict, list, set, OrderedDict)


class RandomState:
    """The state of every random generator a model may draw from: torch (each device), Python's and numpy's."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        in_use = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._cuda = torch.cuda.get_rng_state_all() if in_use else []
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def restore(self) -> None:
        """Put the state back."""
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


class Buffers:
    """The values of a model's buffers, to be put back in place."""

    def __init__(self, model: nn.Module) -> None:
        self._saved = [(buffer, buffer.detach().clone()) for buffer in buffers(model) if not _without_values(buffer)]

    def restore(self) -> None:
        """Write the values back into the buffers that were saved."""
        with torch.no_grad():
            for buffer, saved in self._saved:
                buffer.data.copy_(saved)


class Moment:
    """Where a model and the random generators stand: enough to run the same step again.

    Args:
        model: The model.
        weights: Values of parameters by name that differ from those at that moment; None where they are the same.
    """

    def __init__(self, model: nn.Module, weights: dict[str, torch.Tensor] | None = None) -> None:
        self._model = model
        self._random, self._buffers = RandomState(), Buffers(model)
        self.weights = weights

    @contextmanager
    def again(self) -> Iterator[None]:
        """Go back to that moment, and forward to now at the end, `.grad` included."""
        parameters = dict(self._model.named_parameters())
        grads = {name: parameter.grad for name, parameter in parameters.items()}
        now = Moment(self._model, {name: parameters[name].detach().clone() for name in self.weights or ()})
        for parameter in parameters.values():
            parameter.grad = None
        self._go()
        try:
            yield
        finally:
            now._go()
            for name, parameter in parameters.items():
                parameter.grad = grads[name]

    def _go(self) -> None:
        parameters = dict(self._model.named_parameters())
        with torch.no_grad():
            for name, value in (self.weights or {}).items():
                parameters[name].data.copy_(value)
        self._buffers.restore()
        self._random.restore()


class ModelState:
    """All there is to restore of a model. Taken before anything is done to it.

    Parameters and buffers get their values back in the very memory they lived in, so that ties, views and optimizers
    that hold them stay valid. Attributes that the forward set on modules are put back (one level deep).
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = [(module, module.__class__, _attributes(module)) for module in model.modules()]
        self._tensors: list[tuple[torch.Tensor, type, torch.Tensor, torch.Tensor | None, bool]] = []
        self._grads: list[tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]] = []
        for tensor in [*model.parameters(), *model.buffers()]:
            saved = None if _without_values(tensor) else tensor.detach().clone()
            self._tensors.append((tensor, type(tensor), tensor.data, saved, tensor.requires_grad))
            grad = tensor.grad if tensor.is_leaf else None
            self._grads.append((tensor, grad, None if grad is None else grad.detach().clone()))

    def restore(self, *, values: bool = True) -> None:
        """Put everything back; without `values` parameters and buffers keep what the steps made of them."""
        for module, kind, attributes in self._modules:
            if values or not _became_eager(module, kind):
                _restore_attributes(module, kind, attributes, with_tensors=values)
        with torch.no_grad():
            if values:
                for tensor, kind, data, saved, requires_grad in self._tensors:
                    _restore_values(tensor, kind, data, saved)
                    if tensor.requires_grad != requires_grad and tensor.is_leaf:
                        tensor.requires_grad_(requires_grad)
            for tensor, grad, saved in self._grads:
                if tensor.is_leaf:
                    tensor.grad = grad
                if grad is not None and saved is not None:
                    grad.copy_(saved)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Undo what a measurement of our own does to buffers and random state."""
    random_state, kept = RandomState(), Buffers(model)
    try:
        yield
    finally:
        kept.restore()
        random_state.restore()


def _attributes(module: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Every attribute with a shallow copy of what is in it, where it is a dict, list or set."""
    return {
        name: (value, value.copy() if type(value) in _CONTAINERS else None) for name, value in vars(module).items()
    }


def _restore_attributes(
    module: nn.Module, kind: type[nn.Module], attributes: dict[str, tuple[Any, Any]], *, with_tensors: bool
) -> None:
    if module.__class__ is not kind:
        module.__class__ = kind
    now = vars(module)
    for name in [name for name in now if name not in attributes]:
        del now[name]
    for name, (value, content) in attributes.items():
        if not with_tensors and name in ("_parameters", "_buffers", "_modules"):
            continue
        if content is not None:
            _refill(value, content)
        now[name] = value


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, list):
        if len(container) != len(content) or any(a is not b for a, b in zip(container, content, strict=True)):
            container[:] = content
    else:
        container.clear()
        container.update(content)


def _restore_values(tensor: torch.Tensor, kind: type, data: torch.Tensor, saved: torch.Tensor | None) -> None:
    if type(tensor) is not kind:  # a lazy parameter that the forward gave a shape
        tensor.data = torch.empty(0, device=tensor.device)
        tensor.__class__ = kind
    elif saved is not None:
        data.copy_(saved)
        if tensor.device != data.device or tensor.dtype != data.dtype or tensor.data_ptr() != data.data_ptr():
            tensor.data = data


def _became_eager(module: nn.Module, kind: type[nn.Module]) -> bool:
    return module.__class__ is not kind


def _without_values(tensor: torch.Tensor) -> bool:
    return is_lazy(tensor) or tensor.is_meta
