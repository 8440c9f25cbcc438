"""What a module, and a parameter of an attention, is there for: read from its class and make, not from the model."""

from __future__ import annotations

import re

from torch import nn
from torch.nn.modules import activation, batchnorm, conv, dropout, instancenorm, normalization, rnn, sparse

_BY_CLASS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("attention", (nn.MultiheadAttention,)),
    ("norm", (batchnorm._NormBase, instancenorm._InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm,
              normalization.LocalResponseNorm)),
    ("conv", (conv._ConvNd,)),
    ("linear", (nn.Linear, nn.Bilinear)),
    ("embedding", (sparse.Embedding, sparse.EmbeddingBag)),
    ("recurrent", (rnn.RNNBase, rnn.RNNCellBase)),
    ("dropout", (dropout._DropoutNd,)),
    ("container", (nn.Sequential, nn.ModuleList, nn.ModuleDict)),
)  # fmt: skip
_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_NORM = re.compile(r"norm(?!al)", re.IGNORECASE)
_DROPOUT = re.compile(r"drop(out|path)|stochasticdepth", re.IGNORECASE)

_PROJECTIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("query_key_value", re.compile(r"qkv|query_key_value|c_attn|in_proj|wqkv|kqv", re.IGNORECASE)),
    ("query", re.compile(r"(^|_)(w?q|query)(_|$|proj|lin)", re.IGNORECASE)),
    ("key", re.compile(r"(^|_)(w?k|key)(_|$|proj|lin)", re.IGNORECASE)),
    ("value", re.compile(r"(^|_)(w?v|value)(_|$|proj|lin)", re.IGNORECASE)),
    ("output", re.compile(r"(^|_)(w?o|out|output|dense|c_proj|proj)(_|$|proj|lin)", re.IGNORECASE)),
)


def role_of(module: nn.Module) -> str:
    """Return attention, norm, linear, conv, embedding, activation, recurrent, dropout, container or other."""
    for role, classes in _BY_CLASS:
        if isinstance(module, classes):
            return role
    name = type(module).__name__
    children = next(module.children(), None) is not None
    if type(module).__module__ == activation.__name__:
        return "activation"
    if _ATTENTION.search(name) and next(module.parameters(), None) is not None:
        return "attention"
    if children:
        return "container"
    return _role_of_leaf(module, name)


def _role_of_leaf(module: nn.Module, name: str) -> str:
    own = list(module.parameters(recurse=False))
    if _NORM.search(name) and all(parameter.dim() <= 1 for parameter in own):
        return "norm"
    if _DROPOUT.search(name) and not own:
        return "dropout"
    # Linear layers under other names (GPT-2's Conv1D): one matrix, at most one bias.
    if own and max(parameter.dim() for parameter in own) == 2 and len(own) <= 2:  # noqa: PLR2004 - weight and bias
        return "linear"
    return "other"


def projection_role(parameter: str, roles: dict[str, str]) -> str | None:
    """Return query, key, value, query_key_value or output for a weight of an attention, else None.

    Args:
        parameter: The parameter's full name.
        roles: Role by module name.
    """
    *path, _ = parameter.split(".")
    inside = [i for i in range(len(path) + 1) if roles.get(".".join(path[:i])) == "attention"]
    if not inside:
        return None
    for part in (*reversed(parameter.split(".")[inside[0]:]),):
        for role, pattern in _PROJECTIONS:
            if pattern.search(part):
                return role
    return None
