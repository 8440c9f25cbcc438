"""Image, fully connected and recurrent networks against their closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gradscope.errors import TargetError
from gradscope.variants import build, subject
from gradscope.variants.article_block import ResidualBlock
from tests.variants.gradients import decades, end_gradients, mean_decades

WIDTH = 128


def per_layer(name: str, seeds: int = 6, layers: int = 21, **arguments: object) -> float:
    """Mean decades per layer going back one layer: between the outputs of the first and the last of `layers`."""
    return mean_decades(name, seeds, layers=layers, d_model=WIDTH, **arguments) / (layers - 1)


def test_orthogonal_layers_keep_the_gradients_length():
    assert decades("mlp-orthogonal", layers=30) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("variance", [0.5, 1.0, 1.5])
def test_deep_linear(variance):
    """0.5 log10(variance) per layer, in the limit of width (Saxe 2013)."""
    expected = 0.5 * math.log10(variance)
    assert per_layer("mlp-linear", weight_variance=variance) == pytest.approx(expected, abs=0.01)


def test_tanh_at_criticality_is_flat_and_beside_it_is_not():
    assert per_layer("mlp-tanh") == pytest.approx(0.0, abs=0.015)
    assert per_layer("mlp-tanh", weight_variance=4.0) == pytest.approx(0.0639, abs=0.015)
    assert per_layer("mlp-tanh", weight_variance=1.0) == pytest.approx(-0.0599, abs=0.015)


def test_sigmoid_loses_more_than_half_a_decade_per_layer():
    assert per_layer("mlp-sigmoid", layers=11) == pytest.approx(-0.627, abs=0.02)


def test_default_relu_loses_a_factor_of_root_six_per_layer():
    assert per_layer("mlp-relu") == pytest.approx(-0.5 * math.log10(6), abs=0.02)
    assert per_layer("mlp-relu-he", seeds=12) == pytest.approx(0.0, abs=0.02)


def test_batchnorm_explodes_by_its_constant():
    """sqrt(pi / (pi - 1)) per BatchNorm-ReLU layer (Yang 2019)."""
    expected = 0.5 * math.log10(math.pi / (math.pi - 1))
    assert per_layer("mlp-batchnorm", batch=256) == pytest.approx(expected, abs=0.015)


def test_residual_energy_doubles_per_block_with_he_and_scaling_stops_it():
    assert per_layer("mlp-residual") == pytest.approx(0.5 * math.log10(2), abs=0.015)
    layers = 21
    expected = 0.5 * (layers - 1) * math.log10(1 + 1 / layers)
    measured = mean_decades("mlp-residual", 6, layers=layers, d_model=WIDTH, skip="scaled")
    assert measured == pytest.approx(expected, abs=0.06)
    assert decades("mlp-residual", skip="rezero") == pytest.approx(0.0, abs=1e-7)


def test_pre_ln_grows_by_the_streams_variance():
    """The gradient of a telescoping stream: sqrt(v_L / v_1) with v_l = 1 + l (He: c = 1 after ReLU)."""
    layers = 31
    expected = 0.5 * math.log10((1 + layers) / 2)
    assert mean_decades("mlp-pre-ln", 8, layers=layers, d_model=WIDTH) == pytest.approx(expected, abs=0.1)


def test_the_printed_block_is_what_is_printed():
    """Same keys, in-place sum, norm on the projection shortcut only."""
    block = ResidualBlock(4, 8, stride=2)
    assert sorted(name for name, _ in block.named_children()) == ["conv1", "conv2", "shortcut"]
    assert isinstance(block.shortcut[1], nn.BatchNorm2d)
    x = torch.randn(3, 4, 6, 6)
    branch = block.conv2(torch.relu(block.conv1(x)))
    torch.testing.assert_close(block(x), torch.relu(branch + block.shortcut(x)))
    same = ResidualBlock(4, 4)
    assert len(same.shortcut) == 0
    torch.testing.assert_close(same(x), torch.relu(same.conv2(torch.relu(same.conv1(x))) + x))


def test_printed_blocks_explode_with_he_and_not_with_torchs_default():
    he = mean_decades("article-resnet", 3, init="he") / 32
    assert he == pytest.approx(0.5 * math.log10(2), abs=0.025)
    assert abs(decades("article-resnet", init="pytorch")) < 0.3


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_recurrent_cells_equal_torchs_own_layers(cell):
    torch.manual_seed(0)
    model = build(cell, layers=2, d_model=8)
    whole = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[cell](8, 8, num_layers=2, batch_first=True)
    with torch.no_grad():
        for depth, single in enumerate(model.cells):
            for name, parameter in single.named_parameters():
                getattr(whole, f"{name}_l{depth}").copy_(parameter)
    ids = torch.arange(12).view(2, 6)
    outputs, _ = whole(model.embed(ids))
    torch.testing.assert_close(model(ids), model.head(outputs[:, -1]))


def test_forget_bias_goes_to_the_forget_gate():
    torch.manual_seed(0)
    plain = build("lstm", d_model=8)
    torch.manual_seed(0)
    biased = build("lstm", d_model=8, forget_bias=1.0)
    difference = biased.cells[0].bias_hh - plain.cells[0].bias_hh
    torch.testing.assert_close(difference, torch.tensor([0.0] * 8 + [1.0] * 8 + [0.0] * 16))


def test_plain_recurrence_loses_the_first_token_and_a_forget_bias_keeps_it():
    def first_share(name: str, **arguments: object) -> float:
        """Gradient at the first embedding relative to the last."""
        built = subject(name, arguments, 0)
        kept = []
        built.model.embed.register_forward_hook(lambda _m, _i, output: kept.append(output) or output.retain_grad())
        batch = built.batches[0]
        built.loss(built.call(batch), batch).backward()
        norms = kept[0].grad.norm(dim=(0, 2))
        return (norms[0] / norms[-1]).item()

    assert first_share("rnn") < 1e-3
    assert first_share("lstm", forget_bias=4.0) > 0.1


def test_vit_reads_patches():
    model = build("vit", layers=2, d_model=16, image=16, patch=4)
    x = torch.randn(2, 3, 16, 16)
    assert model.embed(x).shape == (2, 17, 16)
    assert model(x).shape == (2, 10)
    with pytest.raises(TargetError, match="does not divide into patches of 5"):
        build("vit", patch=5)


def test_vit_keeps_its_gradient():
    start, end = end_gradients(subject("vit", {"layers": 12}, 0))
    assert -0.5 < math.log10(start.norm() / end.norm()) < 1.5
