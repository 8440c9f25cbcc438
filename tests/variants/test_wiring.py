"""Every wiring against its equation, written out with the model's own branches and norms."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradscope.errors import TargetError
from gradscope.variants import VARIANTS, build
from gradscope.variants.depth_scales import deepnorm_decoder, deepnorm_encoder
from gradscope.variants.hyper import StreamOffsets

LAYERS = 4
IDS = torch.arange(24).view(3, 8) % 7


def model_of(name: str, **arguments: object) -> nn.Module:
    """A small model with every parameter moved off its initial value, so that zeros and ones hide nothing."""
    torch.manual_seed(0)
    model = build(name, layers=LAYERS, d_model=16, heads=4, vocab=7, tokens=8, **arguments).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def run(model: nn.Module, step, x=None):
    """Embed, apply `step(x, sublayer, block number)` to every sublayer in turn."""
    x = model.embed(IDS) if x is None else x
    for number, block in enumerate(model.blocks, start=1):
        for sublayer in (block.attention, block.mlp):
            x = step(x, sublayer, number)
    return x


ALPHA = (2 * LAYERS) ** 0.25

STEPS = {
    "no-residual": lambda x, s, _: s.branch(s.norm_before(x)),
    "no-residual-no-norm": lambda x, s, _: s.branch(x),
    "no-residual-post-ln": lambda x, s, _: s.norm_after(s.branch(x)),
    "residual-no-norm": lambda x, s, _: x + s.branch(x),
    "post-ln": lambda x, s, _: s.norm_after(x + s.branch(x)),
    "bert": lambda x, s, _: s.norm_after(x + s.branch(x)),
    "pre-ln": lambda x, s, _: x + s.branch(s.norm_before(x)),
    "peri-ln": lambda x, s, _: x + s.norm_branch(s.branch(s.norm_before(x))),
    "output-norm": lambda x, s, _: x + s.norm_branch(s.branch(x)),
    "output-norm-qk": lambda x, s, _: x + s.norm_branch(s.branch(x)),
    "mix-ln": lambda x, s, number: s.norm_after(x + s.branch(x)) if number == 1 else x + s.branch(s.norm_before(x)),
    "deepnorm": lambda x, s, _: s.norm_after(ALPHA * x + s.branch(x)),
    "admin": lambda x, s, _: s.norm_after(s.skip_scale * x + s.branch(x)),
    "lns": lambda x, s, number: x + s.branch(s.norm_before(x) / number**0.5),
    "depth-mup": lambda x, s, _: x + s.branch(s.norm_before(x)) / (2 * LAYERS) ** 0.5,
    "completep": lambda x, s, _: x + s.branch(s.norm_before(x)) / LAYERS,
    "rezero": lambda x, s, _: x + s.branch_scale * s.branch(x),
    "skipinit": lambda x, s, _: x + s.branch_scale * s.branch(x),
    "layerscale": lambda x, s, _: x + s.branch_scale * s.branch(s.norm_before(x)),
    "fixup": lambda x, s, _: x + s.branch_scale * s.branch(x + s.bias_before) + s.bias_after,
    "highway": lambda x, s, _: (1 - torch.sigmoid(s.gate(x))) * x + torch.sigmoid(s.gate(x)) * s.branch(x),
    "gpt2": lambda x, s, _: x + s.branch(s.norm_before(x)),
    "llama": lambda x, s, _: x + s.branch(s.norm_before(x)),
}


@pytest.mark.parametrize("name", STEPS)
def test_sublayers_follow_their_equation(name):
    model = model_of(name)
    x = run(model, STEPS[name])
    x = x if model.norm is None else model.norm(x)
    torch.testing.assert_close(model(IDS), model.head(x))


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.family == "transformer"], ids=lambda v: v.name)
def test_pre_type_wirings_end_with_a_norm_and_no_other_does(variant):
    model = build(variant.name, layers=2, d_model=16)
    normed_blocks = "post" in (variant.parts.get("placement"), variant.name) and variant.name != "residual-dual"
    without = normed_blocks or variant.parts.get("placement") == "none" or variant.name == "ngpt"
    assert (getattr(model, "norm", None) is None) == without


def test_parallel():
    model = model_of("parallel")
    x = model.embed(IDS)
    for block in model.blocks:
        x = x + block.attention(block.norm(x)) + block.mlp(block.norm(x))
    torch.testing.assert_close(model(IDS), model.head(model.norm(x)))


def test_bottom_to_top():
    model = model_of("b2t")
    x = model.embed(IDS)
    for block in model.blocks:
        a = block.norm1(x + block.attention(x))
        x = block.norm2(x + a + block.mlp(a))
    torch.testing.assert_close(model(IDS), model.head(x))


def test_residual_dual():
    model = model_of("residual-dual")
    x = d = model.embed(IDS)
    for block in model.blocks:
        for s in (block.attention, block.mlp):
            f = s.branch(x)
            x, d = s.norm_after(x + f), d + f
    torch.testing.assert_close(model(IDS), model.head(x + model.norm(d)))


@pytest.mark.parametrize("name", ["hyper-connections", "hyper-connections-static", "mhc"])
def test_hyper_connections_start_as_pre_ln(name):
    torch.manual_seed(0)
    hyper = build(name, layers=LAYERS, d_model=16, vocab=7, tokens=8).double()
    x = hyper.embed(IDS)
    for block in hyper.blocks:
        for wrapped in (block.attention, block.mlp):
            s = wrapped.sublayer
            x = x + s.branch(s.norm_before(x))
    # mHC's branches read 1.54 times the stream: the same behind a norm, but for its epsilon.
    torch.testing.assert_close(hyper(IDS), hyper.head(hyper.norm(4 * x)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["hyper-connections", "hyper-connections-static", "mhc"])
def test_streams_part_in_training(name):
    """Equal weights for all streams would be given equal gradients, and the streams would stay one stream."""
    torch.manual_seed(0)
    model = build(name, layers=2, d_model=16, vocab=7, tokens=8)
    ends = []
    model.blocks[-1].register_forward_hook(lambda _module, _inputs, output: ends.append(output.detach()))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(model(IDS)[:, 1:].flatten(0, 1), IDS[:, :-1].flatten()).backward()
        optimizer.step()
    parted = [(end - end.mean(dim=2, keepdim=True)).norm() / end.norm() for end in ends]
    assert parted[0] < 1e-5
    assert parted[-1] > 1e-4


def stream_weights(name, c, H, t):
    """Reading, writing and mixing weights of one token, as the papers write them: from stream i to stream j."""
    h, n = H[0, t], range(4)
    if name == "hyper-connections-static":
        return c.read, c.write, c.mix
    o = c.offsets
    if name == "hyper-connections":
        h = F.layer_norm(h, (16,), o.norm.weight, o.norm.bias, o.norm.eps)
        read = [c.read[i] + o.read_and_mix_scale * torch.tanh(h[i] @ o.read_and_mix[:, 0]) for i in n]
        mix = [[c.mix[i, j] + o.read_and_mix_scale * torch.tanh(h[i] @ o.read_and_mix[:, 1 + j]) for j in n] for i in n]
        return read, [c.write[j] + o.write_scale * torch.tanh(h[j] @ o.write) for j in n], mix
    v = h.flatten()
    v = o.norm.weight * v / (v.square().mean() + torch.finfo(v.dtype).eps).sqrt()
    read = torch.sigmoid(c.read + o.scales[0] * (v @ o.read))
    write = 2 * torch.sigmoid(c.write + o.scales[1] * (v @ o.write))
    mix = (c.mix + o.scales[2] * (v @ o.mix).view(4, 4)).exp()
    for _ in range(20):
        mix = mix / mix.sum(1, keepdim=True)
        mix = mix / mix.sum(0, keepdim=True)
    return read, write, mix


@pytest.mark.parametrize("name", ["hyper-connections", "hyper-connections-static", "mhc"])
def test_hyper_connections_read_mix_and_write(name):
    model = model_of(name)
    ids = IDS[:1]
    H = model.embed(ids).unsqueeze(2).repeat(1, 1, 4, 1)
    for block in model.blocks:
        for c in (block.attention, block.mlp):
            weights = [stream_weights(name, c, H, t) for t in range(8)]
            reads = torch.stack([sum(w[0][i] * H[0, t, i] for i in range(4)) for t, w in enumerate(weights)])
            f = c.sublayer.branch(c.sublayer.norm_before(reads[None]))[0]
            H = torch.stack([
                torch.stack([sum(mix[i][j] * H[0, t, i] for i in range(4)) + write[j] * f[t] for j in range(4)])
                for t, (_, write, mix) in enumerate(weights)
            ])[None]  # fmt: skip
    torch.testing.assert_close(model(ids), model.head(model.norm(H.sum(dim=2))))


def test_what_a_token_changes_in_its_stream_weights():
    """Two streams of width 2, worked by hand from Zhu 2024, equations 11 to 13."""
    offsets = StreamOffsets(2, 2).double()
    with torch.no_grad():
        offsets.read_and_mix.copy_(torch.tensor([[-0.2, 0.1, -0.2], [0.1, 0.3, 0.0]]))
        offsets.write.copy_(torch.tensor([0.2, -0.1]))
        offsets.read_and_mix_scale.fill_(0.5)
        offsets.write_scale.fill_(0.5)
    read, write, mix = offsets(torch.tensor([[[[1.0, -1.0], [-1.0, 1.0]]]]).double())
    close = {"atol": 1e-4, "rtol": 0.0}
    torch.testing.assert_close(read[0, 0], torch.tensor([-0.1457, 0.1457]).double(), **close)
    torch.testing.assert_close(write[0, 0], torch.tensor([0.1457, -0.1457]).double(), **close)
    torch.testing.assert_close(mix[0, 0], torch.tensor([[-0.0987, -0.0987], [0.0987, 0.0987]]).double(), **close)


def test_manifold_mixing_is_doubly_stochastic():
    model = model_of("mhc")
    streams = torch.randn(3, 8, 4, 16).double()
    for block in model.blocks:
        block.attention.mix.data.normal_()
        _, _, mix = block.attention.weights(streams)
        assert (mix >= 0).all()
        torch.testing.assert_close(mix.sum(-2), torch.ones(3, 8, 4).double())
        torch.testing.assert_close(mix.sum(-1), torch.ones(3, 8, 4).double(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["hyper-connections", "mhc"])
def test_dynamic_stream_weights_learn_from_the_first_step(name):
    """The maps start at zero, so the factors before them get their gradient one step later."""
    model = build(name, layers=2, d_model=16, vocab=7, tokens=8)
    model(IDS).square().mean().backward()
    for path, parameter in model.named_parameters():
        if ".offsets." in path and not path.endswith(("scale", "scales", "norm.weight", "norm.bias")):
            assert parameter.grad.any(), path


def test_ngpt_stays_on_the_unit_sphere():
    model = model_of("ngpt")
    h = model.embed(IDS)
    for block in model.blocks:
        for branch, step in ((block.attention, block.attention_step), (block.mlp, block.mlp_step)):
            direction = F.normalize(branch(h), dim=-1)
            h = F.normalize(h + step() * (direction - h), dim=-1)
        torch.testing.assert_close(h.norm(dim=-1), torch.ones(3, 8).double())
    torch.testing.assert_close(model(IDS), model.head(h) * model.logit_scale())


def test_encoder_decoder_has_its_own_constants_on_either_side():
    model = model_of("deepnorm-enc-dec")
    x = model.source(IDS)
    alpha = deepnorm_encoder(LAYERS, LAYERS).alpha
    assert alpha == pytest.approx(0.81 * (LAYERS**5) ** (1 / 16))
    for block in model.encoder:
        for s in (block.attention, block.mlp):
            x = s.norm_after(alpha * x + s.branch(x))
    memory, y = x, model.embed(IDS)
    alpha = deepnorm_decoder(LAYERS).alpha
    assert alpha == pytest.approx((3 * LAYERS) ** 0.25)
    for block in model.decoder:
        y = block.attention.norm_after(alpha * y + block.attention.branch(y))
        y = block.cross.norm_after(alpha * y + block.cross.branch(y, memory))
        y = block.mlp.norm_after(alpha * y + block.mlp.branch(y))
    torch.testing.assert_close(model(IDS, IDS), model.head(y))


def test_the_decoder_of_the_encoder_decoder_does_not_look_ahead():
    model = model_of("deepnorm-enc-dec")
    changed = IDS.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 7
    torch.testing.assert_close(model(IDS, changed)[:, :5], model(IDS, IDS)[:, :5])


@pytest.mark.parametrize(("name", "causal"), [("deepnorm", True), ("gpt2", True), ("pre-ln", False), ("ngpt", True)])
def test_causality(name, causal):
    model = model_of(name)
    changed = IDS.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 7
    same = torch.allclose(model(changed)[:, :5], model(IDS)[:, :5])
    assert same == causal


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("parallel", {"placement": "post"}),
        ("b2t", {"branch_scale": "rezero"}),
        ("mhc", {"placement": "post"}),
        ("ngpt", {"qk_norm": True}),
        ("parallel", {"structure": "enc-dec"}),
    ],
)
def test_a_part_the_arrangement_has_no_room_for_is_refused(name, arguments):
    with pytest.raises(TargetError, match="does not go with arrangement"):
        build(name, **arguments)


def test_parts_of_one_variant_make_another():
    torch.manual_seed(0)
    assembled = build("pre-ln", layers=2, placement="post", init="xavier")
    torch.manual_seed(0)
    named = build("post-ln", layers=2)
    ids = torch.zeros(1, 4, dtype=torch.long)
    assert torch.equal(assembled(ids), named(ids))
