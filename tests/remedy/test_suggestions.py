"""Remedies on models whose fault is known: what mends each, and that the model is left as it was."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from queue import SimpleQueue

import pytest
import torch
from torch import nn

from gradscope.errors import ConfigError
from gradscope.probe import MeasurementInterrupted, measure
from gradscope.probe.settings import ProbeSettings
from gradscope.remedy import REMEDIES, Suggestions, find, suggest, suggestions
from gradscope.remedy.places import find_places
from gradscope.target.subject import Origin, Subject
from gradscope.variants import subject as variant

MADE = Origin("made for the test")
FAST = ProbeSettings(num_steps=4, watched_steps=(0, 3))


class Stack(nn.Module):
    """Blocks of one linear map and an activation, with or without a skip round each."""

    def __init__(self, layers: int, activation: type[nn.Module], *, skip: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), activation()) for _ in range(layers))
        self.head = nn.Linear(32, 4)
        self.skip = skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x) if self.skip else block(x)
        return self.head(x)


def stack(*arguments: object, **options: object) -> Subject:
    torch.manual_seed(0)
    x = torch.randn(64, 32)
    batch = (x, x[:, :4].argmax(1))
    return Subject(
        Stack(*arguments, **options), [batch], lambda output, batch: nn.functional.cross_entropy(output, batch[1]),
        "stack", MADE, MADE, forward=lambda model, batch: model(batch[0]),
    )  # fmt: skip


def of(found: Suggestions, name: str):
    return next(trial for trial in found.trials if trial.remedy.name == name)


def decades(measured) -> float:
    return measured.diagnosis.metrics["decades"]


def test_a_plain_stack_is_mended_by_skips_and_not_by_a_lower_learning_rate():
    found = suggest(stack(20, nn.Sigmoid), FAST)
    assert found.before.diagnosis.verdict == "will-not-train"
    helpful = [trial.remedy.name for trial in found.helpful]
    assert helpful[0] in ("skips", "normed-skips", "gelu-he")
    assert {"skips", "normed-skips"} <= set(helpful)
    assert "lower-lr" not in helpful
    skips = of(found, "skips")
    assert skips.num_places == 20
    assert skips.after.diagnosis.metrics["num_residual_additions"] >= 19
    assert decades(found.before) < -6 < -1 < decades(skips.after)
    reasons = dict(found.not_tried)
    assert reasons["branch-scale"] == "there are no residual branches"


def test_a_skip_is_the_sum_it_says():
    """Against the same network written with its skips, both in their first step."""
    found = suggest(stack(12, nn.Sigmoid), FAST, remedies=[find("skips")])
    written = suggest(stack(12, nn.Sigmoid, skip=True), FAST, remedies=[])
    assert of(found, "skips").after.losses[0] == pytest.approx(written.before.losses[0], rel=1e-6)
    assert of(found, "skips").after.losses[1] == pytest.approx(written.before.losses[1], rel=1e-4)


def test_branches_that_explode_are_mended_by_scaling_or_norms():
    found = suggest(variant("mlp-residual", {"layers": 40}, 0), FAST)
    assert found.before.diagnosis.verdict != "will-train"
    assert {"branch-scale", "rezero", "pre-norm"} <= {trial.remedy.name for trial in found.helpful}
    law = 0.5 * 39 * torch.log10(torch.tensor(1 + 1 / 40)).item()
    assert decades(of(found, "branch-scale").after) == pytest.approx(law, abs=0.15)
    assert decades(of(found, "rezero").after) == pytest.approx(0.0, abs=1e-4)


def test_post_ln_becomes_pre_ln():
    found = suggest(variant("post-ln", {"layers": 24}, 0), FAST, remedies=[find("pre-norm"), find("he-init")])
    mended = of(found, "pre-norm").after
    assert found.before.diagnosis.metrics["token_cosine"] > 0.98
    assert mended.diagnosis.metrics["token_cosine"] < 0.9
    assert mended.diagnosis.verdict == "will-train"
    assert [trial.remedy.name for trial in found.trials] == ["pre-norm", "he-init"]


def test_query_key_and_value_all_read_the_normed_stream():
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = torch.softmax(self.q(x) @ self.k(x).mT / 4, dim=-1)
            return x + self.out(weights @ self.v(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    seen: SimpleQueue[tuple[str, float]] = SimpleQueue()  # what hooks keep in plain Python is put back after a trial
    net = Net()
    subject = Subject(
        net, [(7 * torch.randn(4, 5, 16),)], lambda output, _: output.square().mean(), "net", MADE, MADE
    )  # fmt: skip
    apply = find("pre-norm").apply

    def spying(model: nn.Module, places, undo) -> int:
        count = apply(model, places, undo)
        for name in ("q", "k", "v"):
            hook = net.blocks[2].get_submodule(name).register_forward_pre_hook(
                lambda _module, inputs, name=name: seen.put((name, inputs[0].std().item()))
            )
            undo.callback(hook.remove)
        return count

    remedy = next(r for r in REMEDIES if r.name == "pre-norm")
    suggest(subject, FAST, remedies=[suggestions.replace(remedy, apply=spying)])
    last = dict(seen.get() for _ in range(seen.qsize()))
    assert last == {name: pytest.approx(1.0, abs=0.05) for name in ("q", "k", "v")}


def test_the_model_is_left_as_it_was():
    subject = variant("post-ln", {"layers": 4, "d_model": 16}, 0)
    before = copy.deepcopy(subject.model.state_dict())
    modules = [name for name, _ in subject.model.named_modules()]
    suggest(subject, FAST)
    after = subject.model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert [name for name, _ in subject.model.named_modules()] == modules
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in subject.model.modules())


def test_a_branch_that_ends_in_a_norm_is_scaled_behind_it():
    """Scaling the convolution in front of a BatchNorm would change nothing; 8 branches are divided by sqrt 8."""
    subject = variant("resnet18", {"width": 8, "batch": 8}, 0)
    places = find_places(measure(subject, FAST))
    assert [branch.end for branch in places.branches][:2] == ["stages.0.0.norms.1", "stages.0.1.norms.1"]
    block, x = subject.model.get_submodule("stages.0.0"), torch.randn(4, 8, 8, 8)
    plain = block(x)
    branch = block.norms[1](block.convs[1](torch.relu(block.norms[0](block.convs[0](x)))))
    with ExitStack() as undo:
        assert find("branch-scale").apply(subject.model, places, undo) == 8
        torch.testing.assert_close(block(x), torch.relu(x + branch / 8**0.5))
    assert torch.equal(block(x), plain)


@pytest.mark.parametrize(
    ("name", "normed", "norm_after"),
    [
        ("pre-ln", True, ""),
        ("post-ln", False, "blocks.0.attention.norm_after"),
        ("peri-ln", True, ""),
        ("rezero", False, ""),
    ],
)
def test_where_norms_stand_is_seen(name: str, normed: bool, norm_after: str):
    places = find_places(measure(variant(name, {"layers": 3, "d_model": 16, "dropout": 0.1}, 0), FAST))
    assert len(places.branches) == 6
    assert places.branches[0].normed is normed
    assert places.branches[0].norm_after == norm_after
    ends = {"pre-ln": "dropout", "post-ln": "branch", "peri-ln": "dropout", "rezero": "dropout"}
    assert places.branches[0].end == f"blocks.0.attention.{ends[name]}"


def test_what_is_drawn_does_not_depend_on_what_was_tried_before():
    alone = suggest(stack(8, nn.Tanh), FAST, remedies=[find("he-init")])
    later = suggest(stack(8, nn.Tanh), FAST, remedies=[find("orthogonal-init"), find("skips"), find("he-init")])
    assert of(alone, "he-init").after.losses == of(later, "he-init").after.losses


def test_loaded_weights_are_not_drawn_anew():
    loaded = suggestions.replace(stack(8, nn.Sigmoid), weights="weights from model.pt")
    reasons = dict(suggest(loaded, FAST, remedies=[find("he-init"), find("gelu-he")]).not_tried)
    assert reasons["he-init"] == "the weights were loaded, not drawn"
    assert "gelu-he" in reasons


def test_a_remedy_that_breaks_the_model_is_reported_and_undone(monkeypatch: pytest.MonkeyPatch):
    def broken(model: nn.Module, _places, undo) -> int:
        undo.callback(model.head.register_forward_hook(lambda *_: 1 / 0).remove)
        return 1

    remedies = [suggestions.replace(find("skips"), apply=broken), find("lower-lr")]
    found = suggest(stack(8, nn.Tanh), FAST, remedies=remedies)
    assert found.trials[-1].after is None
    assert "division by zero" in found.trials[-1].error
    assert found.trials[0].after is not None


def test_ctrl_c_keeps_what_was_tried(monkeypatch: pytest.MonkeyPatch):
    def interrupted(_model: nn.Module, _places, _undo) -> int:
        raise KeyboardInterrupt

    remedies = [find("lower-lr"), suggestions.replace(find("skips"), apply=interrupted), find("rezero")]
    found = suggest(stack(8, nn.Tanh), FAST, remedies=remedies)
    assert found.partial
    assert [trial.remedy.name for trial in found.trials] == ["lower-lr"]
    assert issubclass(MeasurementInterrupted, KeyboardInterrupt)


def test_names_are_unique_and_an_unknown_one_is_answered_with_the_list():
    assert len({remedy.name for remedy in REMEDIES}) == len(REMEDIES)
    assert find("Branch_Scale").name == "branch-scale"
    with pytest.raises(ConfigError, match="no remedy 'skipz'"):
        find("skipz")
