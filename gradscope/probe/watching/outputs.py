"""What comes out of every module call and what gradient comes back to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from gradscope.probe.watching.aside import Aside
from gradscope.probe.watching.calls import Call
from gradscope.probe.watching.rows import Handle, Rows
from gradscope.probe.watching.tensors import Edge, differentiable, edge_of, inside_transform, listed, num_elements

_MAX_OUTPUTS = 4
"""Tensors of one output whose gradients are followed: the main one, and others in case it gets none (an LSTM of which
only the last state is used)."""

GradientListener = Callable[[Call, torch.Tensor], None]


class Output:
    """One tensor that one or more calls returned (a container returns what its last child returned).

    Attributes:
        num_elements: Its number of elements.
        forward: Its norm when the call ended.
        gradient: The norm of the gradient with respect to it, None where none arrived.
        backwards: How many backward passes brought a gradient.
    """

    __slots__ = ("backwards", "forward", "gradient", "kept", "listeners", "num_elements")

    def __init__(self, num_elements: int) -> None:
        self.num_elements = num_elements
        self.forward: Handle | None = None
        self.gradient: Handle | None = None
        self.backwards = 0
        self.kept: torch.Tensor | None = None
        self.listeners: list[tuple[Call, GradientListener]] = []


class Outputs:
    """The outputs of the calls of one step.

    Gradients are taken by hooks on the graph nodes that made the outputs. What comes to such a hook is complete, and is
    the gradient with respect to the tensor as it was when the call ended, whatever is done to it in place later.

    Args:
        rows: Where the numbers go.
        forward_norms: Whether to take the norms of the outputs themselves.
    """

    def __init__(self, rows: Rows, *, forward_norms: bool = True) -> None:
        self.of_call: dict[Call, list[Output]] = {}
        self.listening = False
        """Whether gradients that pass now are those of the training step (and not of a penalty inside the forward)."""
        self.keep_gradients = False
        """Whether the graph will be gone through again, so that gradients have to be kept to be added up."""
        self._rows = rows
        self._forward_norms = forward_norms
        self._by_edge: dict[Edge, Output] = {}
        self._hooks: list[RemovableHandle] = []

    def add(self, call: Call, value: Any, listener: GradientListener | None = None) -> None:
        """Take the norm of a call's output and wait for its gradient.

        Args:
            call: The call that ended.
            value: What it returned.
            listener: Told of the gradient of the main output as well.
        """
        if type(value) is torch.Tensor and value.is_floating_point():
            outputs = [self._output(value, call.outputs[0] if call.outputs else None, measured=True)]
        else:
            outputs = []
            for tensor in listed(value):
                if tensor.is_floating_point() or tensor.is_complex():
                    outputs.append(self._output(tensor, None, measured=not outputs))
                    if len(outputs) == _MAX_OUTPUTS:
                        break
        self.of_call[call] = outputs
        if outputs and listener is not None:
            outputs[0].listeners.append((call, listener))

    def add_replayed(self, call: Call, value: Any, listener: GradientListener | None = None) -> None:
        """Wait for the gradient of an output that was recomputed, this time with a graph."""
        found = [t for t in listed(value) if t.is_floating_point() or t.is_complex()]
        for output, tensor in zip(self.of_call.get(call, ()), found, strict=False):
            if differentiable(tensor):
                self._hook(edge_of(tensor), output)
                if listener is not None:
                    output.listeners.append((call, listener))
                    listener = None

    def main(self, call: Call) -> Output | None:
        """Return the output that stands for a call: the first that got a gradient, else the first."""
        outputs = self.of_call.get(call)
        if not outputs:
            return None
        return next((output for output in outputs if output.gradient is not None), outputs[0])

    def find(self, tensor: torch.Tensor) -> Output | None:
        """Return the output that a tensor is, None for a tensor that no call returned."""
        return self._by_edge.get(edge_of(tensor)) if differentiable(tensor) else None

    def close(self) -> None:
        """Remove every hook and let go of the graph."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._by_edge.clear()
        for outputs in self.of_call.values():
            for output in outputs:
                output.kept = None
                output.listeners.clear()

    def _output(self, tensor: torch.Tensor, edge: Edge | None, *, measured: bool) -> Output:
        if edge is None:
            if not differentiable(tensor) or inside_transform() or not torch.is_grad_enabled():
                return self._measured(Output(num_elements(tensor)), tensor, measured)
            edge = edge_of(tensor)
        output = self._by_edge.get(edge)
        if output is None:
            output = self._by_edge[edge] = self._measured(Output(num_elements(tensor)), tensor, measured)
            self._hook(edge, output)
        elif output.forward is None:
            self._measured(output, tensor, measured)
        return output

    def _measured(self, output: Output, tensor: torch.Tensor, measured: bool) -> Output:
        if measured and self._forward_norms:
            output.forward = self._rows.norm(tensor)
        return output

    def _hook(self, edge: Edge, output: Output) -> None:
        output_nr = edge.output_nr

        def arrived(gradients: tuple[torch.Tensor | None, ...]) -> None:
            gradient = gradients[output_nr]
            if self.listening and gradient is not None:
                with Aside():
                    self._arrived(output, gradient)

        self._hooks.append(edge.node.register_prehook(arrived))

    def _arrived(self, output: Output, gradient: torch.Tensor) -> None:
        output.backwards += 1
        if output.kept is not None:
            gradient = output.kept + gradient.detach()
        if self.keep_gradients:
            output.kept = gradient.detach()
        output.gradient = self._rows.norm(gradient)
        for call, listener in output.listeners:
            listener(call, gradient)
