"""The named parts a Transformer block is put together from, torch-free.

A variant is a choice of parts; `choices` says what each part may be, and what it means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

PLACEMENTS = {
    "none": "x + f(x): no norm in the blocks",
    "pre": "x + f(N(x))",
    "post": "N(x + f(x))",
    "sandwich": "x + N(f(N(x)))",
    "output": "x + N(f(x))",
    "mix": "post in the first quarter of the blocks, pre in the rest",
}
SKIPS = {
    "none": "f(x): no skip",
    "identity": "x + f(x)",
    "highway": "(1 - t(x)) x + t(x) f(x), t a learnt gate",
}
SKIP_SCALES = {
    "one": "the skip as it is",
    "deepnorm": "alpha x, alpha from the depth",
    "admin": "w x, w a learnt vector set by one profiling forward",
}
BRANCH_SCALES = {
    "one": "the branch as it is",
    "rezero": "a learnt scalar that starts at 0",
    "layerscale": "a learnt vector that starts small",
    "fixup": "a learnt scalar that starts at 1, and scalar biases",
    "inverse-sqrt": "1/sqrt(number of sublayers)",
    "inverse": "1/(number of blocks)",
}
NORM_SCALES = {"one": "the norm as it is", "inverse-sqrt-block": "1/sqrt(l) after the norms of block l"}
ARRANGEMENTS = {
    "sequential": "attention, then feed-forward",
    "parallel": "x + A(N(x)) + F(N(x)), one norm",
    "bottom-to-top": "a = N(x + A(x)); N(x + a + F(a))",
    "dual": "a Post-LN stream and a sum of its branches, added at the end",
    "hyper": "several streams with learnt mixing (hyper-connections)",
    "manifold-hyper": "the same with doubly stochastic mixing (mHC)",
    "sphere": "steps on the unit sphere (nGPT)",
}
NORMS = {
    "layer": "LayerNorm",
    "rms": "RMSNorm",
    "batch": "BatchNorm over samples and tokens",
    "group": "GroupNorm of each token, 4 groups",
    "dyt": "g tanh(a x) + b (DyT)",
    "layer-biased": "LayerNorm written out, biased variance",
    "layer-unbiased": "LayerNorm written out with x.var(): unbiased variance",
    "none": "no norm",
}
INITS = {
    "pytorch": "what nn.Linear does: U(-1/sqrt(n), 1/sqrt(n)), biases too",
    "xavier": "Xavier normal, biases 0",
    "he": "N(0, 2/fan_in), biases 0",
    "gpt2": "N(0, 0.02), embeddings too, biases 0",
}
BRANCH_INITS = {
    "plain": "nothing beyond the scheme",
    "gpt2": "last weight of each branch divided by sqrt(2N)",
    "deepnorm": "value, output and feed-forward weights with Xavier gain beta",
    "sub-ln": "value, output and feed-forward weights times sqrt(ln 2N)",
    "zero-last": "last weight and bias of each branch 0",
    "fixup": "last weight of each branch and the head 0, the others scaled down",
}
ACTIVATIONS = {"gelu": "GELU", "relu": "ReLU", "swiglu": "SwiGLU, three matrices", "silu": "SiLU", "tanh": "tanh"}
INNER_NORMS = {
    "none": "no norm inside the branch",
    "sub-ln": "a norm before the output projection and before fc2",
    "normformer": "a norm after attention and after the activation, and a learnt scale per head",
}
POSITIONS = {"learnt": "a learnt vector per position", "rotary": "RoPE in attention", "none": "no positions"}
STRUCTURES = {
    "encoder": "every token sees every token",
    "decoder": "causal attention",
    "enc-dec": "an encoder and a causal decoder with cross-attention",
}

CHOICES: dict[str, dict[str, str]] = {
    "placement": PLACEMENTS,
    "skip": SKIPS,
    "skip_scale": SKIP_SCALES,
    "branch_scale": BRANCH_SCALES,
    "norm_scale": NORM_SCALES,
    "arrangement": ARRANGEMENTS,
    "norm": NORMS,
    "init": INITS,
    "branch_init": BRANCH_INITS,
    "activation": ACTIVATIONS,
    "inner_norm": INNER_NORMS,
    "position": POSITIONS,
    "structure": STRUCTURES,
}


@dataclass(frozen=True)
class Wiring:
    """Everything that decides a Transformer, sizes included. See `CHOICES` for what each word means.

    Attributes:
        layers: Blocks (N); the decoder's blocks too in an encoder-decoder.
        d_model: Width of the stream.
        heads: Attention heads.
        kv_heads: Heads of keys and values (grouped-query attention); 0 means as many as `heads`.
        d_ff: Hidden width of the feed-forward; 0 means 4 d_model, for SwiGLU 8/3 d_model rounded up to a multiple of 8.
        vocab: Token ids.
        tokens: Longest sequence, and the length of the sequences of the task.
        position_std: Standard deviation of learnt positions at initialisation, beside token embeddings of 1.
        embedding_std: Standard deviation of token embeddings at initialisation.
        final_norm: A norm between the last block and the head; None: where the stream does not leave the blocks normed.
        embedding_norm: A norm after the embedding.
        qk_norm: RMSNorm of queries and keys, per head.
        value_residual: Values averaged with those of the first block.
        bias: Biases in the linear maps.
        tied: The head shares the embedding's matrix.
        dropout: Probability at the end of each branch.
        streams: Streams of the hyper-connection arrangements.
        dynamic_streams: Each token changes how its streams are read, written and mixed.
        gate_bias: Initial bias of the highway gates; negative carries the skip.
        branch_start: Where the learnt scalar of branch_scale "rezero" starts.
        eps: The norms' epsilon.
        batch: Sequences per batch of the task.
    """

    choices: ClassVar[dict[str, dict[str, str]]] = CHOICES

    layers: int = 12
    d_model: int = 64
    heads: int = 4
    kv_heads: int = 0
    d_ff: int = 0
    vocab: int = 32
    tokens: int = 16
    placement: str = "pre"
    skip: str = "identity"
    skip_scale: str = "one"
    branch_scale: str = "one"
    norm_scale: str = "one"
    arrangement: str = "sequential"
    norm: str = "layer"
    init: str = "pytorch"
    branch_init: str = "plain"
    activation: str = "gelu"
    inner_norm: str = "none"
    position: str = "learnt"
    structure: str = "encoder"
    position_std: float = 0.1
    embedding_std: float = 1.0
    final_norm: bool | None = None
    embedding_norm: bool = False
    qk_norm: bool = False
    value_residual: bool = False
    bias: bool = True
    tied: bool = False
    dropout: float = 0.0
    streams: int = 4
    dynamic_streams: bool = True
    gate_bias: float = -3.0
    branch_start: float = 0.0
    eps: float = 1e-5
    batch: int = 32

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm stands between the last block and the head: every pre-type wiring must end with one."""
        if self.final_norm is not None:
            return self.final_norm
        return self.arrangement in _NORM_AT_THE_END or (
            self.arrangement in _ADDING and self.placement in ("pre", "sandwich", "output", "mix")
        )

    @property
    def hidden_width(self) -> int:
        """Hidden width of the feed-forward."""
        if self.d_ff:
            return self.d_ff
        return -(-8 * self.d_model // 24) * 8 if self.activation == "swiglu" else 4 * self.d_model

    def placement_in(self, block: int) -> str:
        """Where the norms of block number `block` (from 1) stand (Li 2024, Mix-LN: Post-LN in the first quarter)."""
        if self.placement != "mix":
            return self.placement
        return "post" if block <= self.layers * MIX_LN_POST_SHARE else "pre"


MIX_LN_POST_SHARE = 0.25
_ADDING = ("sequential", "parallel")
_NORM_AT_THE_END = ("dual", "hyper", "manifold-hyper")
