"""The gradient of every parameter, as one step's backward passes leave it and before anything clips it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.hooks import RemovableHandle

from gradscope.probe.listing import Listing, named_parameters
from gradscope.probe.watching.aside import Aside
from gradscope.probe.watching.rows import Handle, Rows

Look = Callable[[list[str], torch.Tensor], None]


class Parameters:
    """Norms of parameter gradients over one step.

    A gradient counts only where a backward pass of this step has touched it: a `.grad` left over from earlier does not.
    Where an optimizer steps inside the backward and clears `.grad`, the gradient is caught on its way in.

    Args:
        model: Whose parameters.
        rows: Where the numbers go.
        look: Is shown every gradient, by first name: one as it is, or several of one shape stacked. Where several
            backward passes bring a gradient, after each.
        traced: Whether to note how each backward pass leaves weights and gradients.
    """

    def __init__(self, model: nn.Module, rows: Rows, look: Look | None = None, *, traced: bool = False) -> None:
        self._model = model
        self._look = look
        self._traced = traced
        self._rows = rows
        self._listing: Listing | None = None
        self._before: dict[str, tuple[torch.Tensor, int] | None] = {}
        self._hooks: list[RemovableHandle] = []
        self._nodes: list[object] = []
        self._named: list[tuple[str, nn.Parameter]] = []
        self.norms: dict[str, Handle | None] = {}
        """By first name; a parameter that no backward touched is missing."""
        self.left: list[tuple[int, int | None]] = []
        """How the last backward pass left weights and gradients; see `traces`."""

    def started(self) -> None:
        """Note what `.grad` holds before a backward pass."""
        self._listing = Listing(self._model)
        self._named = self._trainable()
        self._before = {name: _state(p.grad) for name, p in self._named}
        for name, parameter in self._named:
            if getattr(parameter, "_post_accumulate_grad_hooks", None):
                self._catch(name, parameter)

    def ended(self) -> None:
        """Take the norms of all gradients that the backward pass has touched."""
        # Read anew: FSDP exchanges the parameters of a module for their shards during the backward.
        self._named = self._trainable()
        touched = [
            (name, parameter.grad)
            for name, parameter in self._named
            if parameter.grad is not None and not _same(parameter.grad, self._before.get(name))
        ]
        names = [name for name, _ in touched]
        self._measure(names, [grad for _, grad in touched])
        self._before.clear()
        self._release()
        if self._traced:
            self.left = traces(self._model)

    def returned(self, inputs: tuple[object, ...], gradients: tuple[torch.Tensor | None, ...]) -> None:
        """Take the norms of gradients that `autograd.grad` returned instead of filling `.grad`."""
        names = {id(parameter): name for name, parameter in self._named}
        for tensor, gradient in zip(inputs, gradients, strict=False):
            name = names.get(id(tensor))
            if name is not None and gradient is not None:
                self._measure([name], [gradient])

    @property
    def names(self) -> list[str]:
        """The first names of the parameters that learn, as the last backward pass left them."""
        return [name for name, _ in self._named]

    def _measure(self, names: list[str], gradients: list[torch.Tensor]) -> None:
        def look(numbers: Sequence[int], values: torch.Tensor) -> None:
            assert self._look is not None
            self._look([names[number] for number in numbers], values)

        with Aside():
            handles = self._rows.norms(gradients, None if self._look is None else look)
        self.norms.update(zip(names, handles, strict=True))

    def _trainable(self) -> list[tuple[str, nn.Parameter]]:
        assert self._listing is not None
        return [pair for pair in self._listing.read() if pair[1].requires_grad]

    def _catch(self, name: str, parameter: nn.Parameter) -> None:
        with torch.enable_grad():
            node = get_gradient_edge(parameter).node

        def arrived(gradients: tuple[torch.Tensor | None, ...]) -> None:
            if gradients[0] is not None:
                self._measure([name], [gradients[0]])

        self._nodes.append(node)  # the node, and the hook with it, would be gone before the backward
        self._hooks.append(node.register_prehook(arrived))

    def _release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._nodes.clear()


def _state(grad: torch.Tensor | None) -> tuple[torch.Tensor, int] | None:
    return None if grad is None else (grad, grad._version)


def _same(grad: torch.Tensor, before: tuple[torch.Tensor, int] | None) -> bool:
    return before is not None and grad is before[0] and grad._version == before[1]


def traces(model: nn.Module) -> list[tuple[int, int | None]]:
    """Return what changes when weights are updated or gradients cleared by hand: the versions of both."""
    return [(p._version, None if p.grad is None else p.grad._version) for _, p in named_parameters(model)]
