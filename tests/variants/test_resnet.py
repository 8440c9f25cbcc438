import pytest
import torch
from torch import nn

from gradscope.variants import build
from gradscope.variants.resnet import ResNetBlock
from tests.variants.gradients import decades


def blocks(model):
    return [module for module in model.modules() if isinstance(module, ResNetBlock)]


@pytest.mark.parametrize(("depth", "num_blocks"), [(18, 8), (34, 16), (50, 16), (101, 33), (152, 50)])
def test_depth_counts_the_weight_layers(depth, num_blocks):
    model = build(f"resnet{depth}", width=4)
    in_branches = sum(len(block.convs) for block in blocks(model))
    assert in_branches + 2 == depth
    assert len(blocks(model)) == num_blocks


@pytest.mark.parametrize(("depth", "parameters"), [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032)])
def test_at_full_width_it_has_the_papers_parameters(depth, parameters):
    model = build(f"resnet{depth}", width=64, classes=1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_without_shortcuts_a_block_is_its_branch():
    model = build("resnet18", width=8, shortcut=False)
    block = blocks(model)[0]
    assert block.shortcut is None
    x = torch.randn(4, 8, 8, 8)
    first, second = block.convs
    expected = torch.relu(block.norms[1](second(torch.relu(block.norms[0](first(x))))))
    assert torch.equal(block(x), expected)


def test_the_shortcut_is_added_before_the_last_relu():
    model = build("resnet18", width=8)
    block = blocks(model)[2]
    assert isinstance(block.shortcut, nn.Sequential)
    x = torch.randn(4, 8, 8, 8)
    first, second = block.convs
    branch = block.norms[1](second(torch.relu(block.norms[0](first(x)))))
    assert torch.allclose(block(x), torch.relu(branch + block.shortcut(x)))


def test_pre_activation_leaves_the_skip_clean():
    model = build("resnet18", width=8, pre_activation=True, zero_gamma=True)
    block = blocks(model)[0]
    x = torch.randn(4, 8, 8, 8)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_zero_gamma_makes_every_block_a_shortcut(norm):
    model = build("resnet50", width=4, zero_gamma=True, norm=norm)
    block = blocks(model)[1]
    x = torch.randn(2, 16, 8, 8)
    assert torch.equal(block(x), torch.relu(x))


def test_convolutions_have_he_variance():
    model = build("resnet18", width=64)
    weight = blocks(model)[0].convs[1].weight
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


@pytest.mark.parametrize(
    ("depth", "plain", "residual"), [(18, 1.20, 0.98), (34, 2.39, 1.48), (50, 3.71, 2.35), (101, 7.47, 3.04)]
)
def test_gradients_grow_toward_the_input_and_shortcuts_hold_them_back(depth, plain, residual):
    assert decades(f"resnet{depth}", shortcut=False) == pytest.approx(plain, abs=0.35)
    assert decades(f"resnet{depth}") == pytest.approx(residual, abs=0.35)


def test_zero_gamma_flattens_the_profile():
    assert decades("resnet50", zero_gamma=True) == pytest.approx(0.36, abs=0.2)
