"""Initial weights against the numbers their papers give."""

from __future__ import annotations

import math

import pytest
import torch

from gradscope.variants import build
from gradscope.variants.initialise import branch_maps

WIDTH, LAYERS = 64, 6


def stds(name: str, **arguments: object) -> dict[str, float]:
    """Pooled standard deviation of each kind of branch weight."""
    torch.manual_seed(0)
    model = build(name, layers=LAYERS, d_model=WIDTH, **arguments)
    pooled: dict[str, list[torch.Tensor]] = {}
    blocks = model.decoder if hasattr(model, "decoder") else model.blocks
    for kind, linear in branch_maps(blocks):
        pooled.setdefault(kind, []).append(linear.weight.detach().flatten())
    return {kind: torch.cat(weights).std().item() for kind, weights in pooled.items()}


def xavier(fan_in: int, fan_out: int) -> float:
    return math.sqrt(2 / (fan_in + fan_out))


SQUARE, WIDE = xavier(WIDTH, WIDTH), xavier(WIDTH, 4 * WIDTH)


@pytest.mark.parametrize(
    ("scheme", "square", "fc1", "fc2"),
    [
        ("pytorch", 1 / math.sqrt(3 * WIDTH), 1 / math.sqrt(3 * WIDTH), 1 / math.sqrt(12 * WIDTH)),
        ("xavier", SQUARE, WIDE, WIDE),
        ("he", math.sqrt(2 / WIDTH), math.sqrt(2 / WIDTH), math.sqrt(2 / (4 * WIDTH))),
        ("gpt2", 0.02, 0.02, 0.02),
    ],
)
def test_schemes(scheme, square, fc1, fc2):
    found = stds("pre-ln", init=scheme)
    for kind, expected in {"q": square, "k": square, "v": square, "out": square, "fc1": fc1, "fc2": fc2}.items():
        assert found[kind] == pytest.approx(expected, rel=0.02), kind


def test_biases_are_zero_except_in_pytorchs_scheme():
    for scheme in ("xavier", "he", "gpt2"):
        biases = [p for n, p in build("pre-ln", layers=2, init=scheme).named_parameters() if n.endswith("bias")]
        assert not any(bias.any() for bias in biases)
    assert build("pre-ln", layers=2).blocks[0].mlp.branch.fc1.bias.std().item() == pytest.approx(
        1 / math.sqrt(3 * WIDTH), rel=0.2
    )


def test_deepnorm_scales_all_but_queries_and_keys():
    found, beta = stds("deepnorm"), (8 * LAYERS) ** -0.25
    for kind, plain in {"q": SQUARE, "k": SQUARE, "v": beta * SQUARE, "out": beta * SQUARE}.items():
        assert found[kind] == pytest.approx(plain, rel=0.02), kind
    assert found["fc1"] == pytest.approx(beta * WIDE, rel=0.02)
    assert found["fc2"] == pytest.approx(beta * WIDE, rel=0.02)


def test_deepnorm_decoder_of_an_encoder_decoder():
    assert stds("deepnorm-enc-dec")["fc2"] == pytest.approx((12 * LAYERS) ** -0.25 * WIDE, rel=0.02)


def test_sub_ln_gain():
    found, gain = stds("sub-ln"), math.sqrt(math.log(2 * LAYERS))
    assert found["q"] == pytest.approx(SQUARE, rel=0.02)
    for kind, plain in {"v": SQUARE, "out": SQUARE, "fc1": WIDE, "fc2": WIDE}.items():
        assert found[kind] == pytest.approx(gain * plain, rel=0.02), kind


def test_gpt2_divides_the_last_maps():
    found = stds("gpt2")
    assert found["v"] == pytest.approx(0.02, rel=0.02)
    assert found["fc1"] == pytest.approx(0.02, rel=0.02)
    for kind in ("out", "fc2"):
        assert found[kind] == pytest.approx(0.02 / math.sqrt(2 * LAYERS), rel=0.02)
    model = build("gpt2", layers=1)
    assert model.embed.tokens.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.head.weight is model.embed.tokens.weight


def test_fixup_scales_the_first_maps_and_zeroes_the_last_and_the_head():
    found = stds("fixup")
    scale = (2 * LAYERS) ** -0.5
    assert found["v"] == pytest.approx(scale * math.sqrt(2 / WIDTH), rel=0.02)
    assert found["fc1"] == pytest.approx(scale * math.sqrt(2 / WIDTH), rel=0.02)
    assert found["out"] == found["fc2"] == 0.0
    assert not build("fixup", layers=1).head.weight.any()


@pytest.mark.parametrize(("layers", "start"), [(18, 0.1), (24, 1e-5), (25, 1e-6)])
def test_layerscale_starts_by_depth(layers, start):
    model = build("layerscale", layers=layers, d_model=8)
    assert torch.equal(model.blocks[-1].mlp.branch_scale, torch.full((8,), start))


def test_zero_last_makes_every_block_the_identity():
    model = build("zero-last", layers=2)
    x = torch.randn(2, 4, WIDTH)
    assert torch.equal(model.blocks[0](x), x)


def test_admin_weights_add_up_the_branch_variances():
    torch.manual_seed(0)
    model = build("admin", layers=3)
    sublayers = [s for block in model.blocks for s in (block.attention, block.mlp)]
    weights = [s.skip_scale[0].item() for s in sublayers]
    assert weights[0] == 1.0
    assert weights == sorted(weights)
    # The profiling forward is plain Post-LN: rebuild it and add up.
    torch.manual_seed(0)
    plain = build("post-ln", layers=3)
    from gradscope.variants.building import build_subject

    x = plain.embed(next(iter(build_subject("post-ln", {"layers": 1}, None).batches))[0])
    total, expected = 1.0, []
    for block in plain.blocks:
        for s in (block.attention, block.mlp):
            f = s.branch(x)
            expected.append(total**0.5)
            total += f.var().item()
            x = s.norm_after(x + f)
    assert weights == pytest.approx(expected, rel=1e-4)


def test_positions_are_faint_beside_tokens():
    model = build("pre-ln", layers=1, tokens=256)
    assert model.embed.positions.std().item() == pytest.approx(0.1, rel=0.05)
    assert model.embed.tokens.weight.std().item() == pytest.approx(1.0, rel=0.1)


def test_highway_gates_start_nearly_closed():
    model = build("highway", layers=1)
    assert torch.equal(model.blocks[0].mlp.gate.bias, torch.full((WIDTH,), -3.0))
