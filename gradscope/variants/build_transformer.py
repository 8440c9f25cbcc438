"""A Transformer from its wiring: check, assemble, initialise."""

from __future__ import annotations

from torch import nn

from gradscope.variants.admin import set_skip_weights
from gradscope.variants.arrangements import check_arrangement
from gradscope.variants.initialise import initialise
from gradscope.variants.plan import require
from gradscope.variants.sphere import SphereTransformer
from gradscope.variants.stack import decoder_stack, encoder_stack, only_stack
from gradscope.variants.tasks import Task, permuted_previous_token, permuted_source_token
from gradscope.variants.transformer import EncoderDecoder, Transformer
from gradscope.variants.wiring import Wiring


def build_transformer(wiring: Wiring) -> nn.Module:
    """Build a Transformer from its wiring.

    Raises:
        TargetError: The sizes do not go together.
    """
    check_sizes(wiring)
    if wiring.arrangement == "sphere":
        return SphereTransformer(wiring)
    if wiring.structure == "enc-dec":
        both = EncoderDecoder(wiring)
        initialise(both, wiring, [(both.encoder, encoder_stack(wiring)), (both.decoder, decoder_stack(wiring))])
        _profile(both, wiring, both.encoder, both.decoder)
        return both
    model = Transformer(wiring)
    initialise(model, wiring, [(model.blocks, only_stack(wiring))])
    _profile(model, wiring, model.blocks)
    return model


def _profile(model: nn.Module, wiring: Wiring, *stacks: nn.Module) -> None:
    if wiring.skip_scale == "admin":
        for blocks in stacks:
            set_skip_weights(model, blocks, token_task(wiring).batches[0])


def token_task(wiring: Wiring) -> Task:
    """Make the task of a token model."""
    make = permuted_source_token if wiring.structure == "enc-dec" else permuted_previous_token
    return make(wiring.vocab, wiring.tokens, wiring.batch)


def check_sizes(wiring: Wiring) -> None:
    """Refuse sizes and parts that do not go together."""
    check_arrangement(wiring)
    for name in ("layers", "d_model", "heads", "vocab", "tokens", "batch"):
        require(getattr(wiring, name) >= 1, f"{name}={getattr(wiring, name)} is too small.", "It must be at least 1.")
    require(
        wiring.d_model % wiring.heads == 0,
        f"d_model={wiring.d_model} does not divide into {wiring.heads} heads.",
        "d_model must be a multiple of heads.",
    )
    kv_heads = wiring.kv_heads or wiring.heads
    require(
        wiring.heads % kv_heads == 0,
        f"{wiring.heads} heads cannot share {kv_heads} key and value heads.",
        "heads must be a multiple of kv_heads.",
    )
    require(
        wiring.position != "rotary" or wiring.d_model // wiring.heads % 2 == 0,
        f"rotary positions cannot turn {wiring.d_model // wiring.heads} features per head.",
        "d_model / heads must be even.",
    )
