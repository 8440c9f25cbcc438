"""How large every token of a sequence is where the stream starts, against the others.

A norm divides a token by its own size, so that the gradient of one that starts at next to nothing (padding, a class
token of zeros) grows by as much as it is smaller than the rest: 1 / sqrt(epsilon) at zero, a thousand times at 1e-6.
The norm of the gradient over the whole batch then tells of those few rows alone. Weighting each row with its size
undoes that; rows of usual size keep their gradient as it is.

Shapes: B samples, T tokens, D features.
"""

from __future__ import annotations

import torch

FAINT = 0.5
"""Size of a row (fraction of the root mean square over rows) below which it is weighted: no row of a healthy embedding
is that small, since independent features average out."""
_DIMS = 3  # (B, T, D); the rows of pictures are no tokens, and a single vector per sample has no others beside it


def row_weights(x_BTD: torch.Tensor) -> torch.Tensor | None:
    """Return a weight per row as (B, T, 1): its size over the usual one where it is faint, else 1; None without tokens.

    Example:
        >>> row_weights(torch.tensor([[[3.0, 4.0], [0.0, 0.05], [5.0, 0.0]]])).flatten().round(decimals=2).tolist()
        [1.0, 0.01, 1.0]
    """
    if x_BTD.dim() != _DIMS or not x_BTD.is_floating_point() or type(x_BTD) is not torch.Tensor:
        return None
    with torch.no_grad():
        dtype = torch.promote_types(x_BTD.dtype, torch.float32)
        sizes_BT1 = torch.linalg.vector_norm(x_BTD, dim=-1, keepdim=True, dtype=dtype)
        usual = sizes_BT1.square().mean().sqrt().clamp_min(torch.finfo(dtype).tiny)
        relative = sizes_BT1 / usual
        return torch.where(relative < FAINT, relative, 1.0)
