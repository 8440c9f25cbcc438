"""Modules of torch that run as one fused operation where nothing learns and nobody looks on.

`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` choose `_transformer_encoder_layer_fwd` and
`_native_multi_head_attention` in evaluation without gradients, but not under a torch-function mode
(`torch.overrides.has_torch_function`, torch/nn/modules/transformer.py). The fused operation rounds differently, so a
step that is watched has to leave the choice as it would be: no mode of ours is seen from inside of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gradscope.probe.watching.modes import OwnMode
from gradscope.probe.watching.tensors import tensors_in

_FUSING = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)
_PLAIN = frozenset({torch.Tensor, nn.Parameter})


def may_fuse(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether a call would take the fused path if it were not for our own modes.

    Args:
        module: The module about to be called.
        args: What it is given.
        kwargs: What it is given by name.
    """
    if not isinstance(module, _FUSING) or module.training or not _only_ours():
        return False
    if isinstance(module, nn.MultiheadAttention) and (module.in_proj_bias is None or not module.batch_first):
        return False
    with torch._C.DisableTorchFunction():
        tensors = [*module.parameters(), *tensors_in((args, kwargs), attributes=False)]
        learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        return not learns and all(type(tensor) in _PLAIN for tensor in tensors)


def _only_ours() -> bool:
    """Tell whether the modes that are on are ours: one of the user's keeps the fused path from being taken anyway."""
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    return bool(modes) and all(isinstance(mode, OwnMode) for mode in modes)
