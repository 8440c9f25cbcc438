"""Inputs that exercise the whole of a model: objects, optional inputs, masks, documented shapes, lessons."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from gradscope.target import from_module, load
from gradscope.target.hf.missing import name_missing_tokens
from gradscope.target.infer.documented import UNTOLD, documented
from gradscope.target.infer.guess import BATCH, Candidate, Guess, Mark, is_sane
from gradscope.target.infer.lessons import lessons
from gradscope.target.infer.making import values_of
from gradscope.target.infer.roles import Hints
from gradscope.target.infer.trial import Outcome
from gradscope.target.infer.trials import Trials
from gradscope.target.infer.whole import without_silencers
from tests.target import signatures

FILE = Path(signatures.__file__)
NAMES = [name for name, value in vars(signatures).items() if inspect.isclass(value) and issubclass(value, nn.Module)]
HINTS = Hints(vocab=50, width=8, length=100, channels=3, side=32, classes=4)


def stepped(name: str):
    subject = load(f"{FILE}:{name}")
    batch = next(iter(subject.batches))
    subject.loss(subject.call(batch), batch).backward()
    return subject, batch


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_takes_part(name):
    subject, _ = stepped(name)
    silent = [n for n, p in subject.model.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert not silent


def test_a_mask_is_turned_the_way_that_lets_scores_have_gradients():
    subject, _ = stepped("Padded")
    assert subject.inputs_origin.text.startswith("src = 8x16 integers below 64, src_mask = 8x16 False")
    assert subject.model.qkv.weight.grad.ne(0).all(1).float().mean() == 1.0


def test_a_named_tuple_is_made_of_its_class():
    _, batch = stepped("Policy")
    (seen,) = batch
    assert isinstance(seen, tuple)
    assert type(seen).__name__ == "Observation"
    assert seen.goal.shape == (8,)


def test_a_part_of_a_dict_is_mended_by_what_its_failure_says():
    _, batch = stepped("FromDict")
    (inputs,) = batch
    assert inputs["picture"].shape == (8, 1, 16, 16)


def test_optional_inputs_are_given_where_parts_wait_for_them():
    text = stepped("Either")[0].inputs_origin.text
    assert "text_ids = 8x16 integers" in text
    assert "mel = 8x40x" in text
    assert "class_labels = 8 integers below 10" in stepped("Conditioned")[0].inputs_origin.text
    assert "edge_attr = 16x5" in stepped("Graph2")[0].inputs_origin.text


def test_numbers_are_of_the_type_that_the_model_computes_in():
    assert stepped("Complex")[1][0].dtype is torch.complex64
    assert stepped("Double")[1][0].dtype is torch.float64


def forward(self, src, pixel_values, feats, flag, wave, kind):
    """Do nothing.

    Args:
        src: Tensor, shape ``[seq_len, batch_size]``
        pixel_values (`torch.FloatTensor` of shape `(batch_size, num_tiles, num_channels, height, 2 * tile)`):
            Pictures.
        feats: node features
            of shape (N, D)
        flag (bool, optional): in [0, 1]
        wave: (batch, rate + 1)
    """


def test_shapes_are_read_from_the_documentation():
    sizes = {"tokens": 16, "channels": 3, "side": 32, "width": 8, "tile": 5, "rate": 7}
    told = documented(forward, sizes)
    assert told["src"].shape == (16, BATCH)
    assert told["src"].kind == UNTOLD
    assert told["pixel_values"] == Guess("float", (BATCH, 3, 3, 32, 10))
    assert told["feats"].shape == (BATCH, 8)
    assert told["wave"].shape == (BATCH, 8)
    assert "flag" not in told
    assert "kind" not in told


def cost(lesson):
    return lesson[0]


def taught(error: Exception, candidate, optional=(), hints=HINTS):
    return [learnt for _, learnt in sorted(lessons(Outcome(error=error), candidate, hints, {}, optional), key=cost)]


def test_a_group_of_inputs_that_is_missing_is_given_together():
    optional = ("pitch_labels", "energy_labels", "speaker_id")
    hints = replace(HINTS, documented={name: Guess("float", (BATCH, 16)) for name in optional})
    given = (("x", Guess("ids", (BATCH, 16))),)
    learnt = taught(ValueError("All labels must be provided to train."), given, optional, hints)
    assert {name for name, _ in learnt[0]} == {"x", "pitch_labels", "energy_labels"}


def test_the_number_behind_its_name_is_the_one_to_be_a_multiple_of():
    said = ValueError("expects `length` to be a multiple of `window * 2` (100), but got 64.")
    assert (("x", Guess("float", (BATCH, 80, 100))),) in taught(said, (("x", Guess("float", (BATCH, 80, 64))),))


def test_pictures_that_are_split_in_parts_have_so_many():
    said = RuntimeError("expects split_sizes to sum exactly to 4 (input), but got split_sizes=[2, 2, 2, 2]")
    candidate = (("pixels", Guess("float", (BATCH, 3, 8, 8))),)
    assert taught(said, candidate)[0] == (("pixels", Guess("float", (BATCH, 2, 3, 8, 8))),)


def test_sequences_are_no_longer_than_the_list_of_layers_that_reads_them():
    said = IndexError("index 7 is out of range")
    assert (("x", Guess("ids", (BATCH, 8))),) in taught(said, (("x", Guess("ids", (BATCH, 16))),))


def test_the_features_in_hand_tell_how_many_placeholders_there_must_be():
    def put_in(input_ids: torch.Tensor, audio_features: torch.Tensor) -> None:
        raise ValueError(f"do not match, tokens: {4 * 16}, features: {len(audio_features)}")

    candidate = (("input_ids", Guess("ids", (BATCH, 32), high=50, marks=(Mark(49, 16),))),)
    with pytest.raises(ValueError, match="do not match") as raised:
        put_in(torch.zeros(4, 32), torch.zeros(4, 15, 8))
    marks = [dict(learnt)["input_ids"].marks for learnt in taught(raised.value, candidate)]
    assert (Mark(49, 15),) in marks


def test_what_goes_with_a_text_stays_as_long_as_it():
    text = Guess("ids", (BATCH, 32), high=50, marks=(Mark(49, 16),))
    candidate = (("input_ids", text), ("attention_mask", Guess("mask", (BATCH, 32))))
    learnt = taught(RuntimeError("The size of tensor a (32) must match the size of tensor b (8) at"), candidate)
    assert learnt
    assert all(dict(c)["input_ids"].shape == dict(c)["attention_mask"].shape for c in learnt)


class Asking(nn.Module):
    """Asks for a token that no configuration names."""

    def forward(self) -> int:
        return self.config.start_of_picture_token_id


class Bare:
    """A configuration without special tokens."""


def test_tokens_that_a_model_asks_for_are_named():
    config = Bare()
    name_missing_tokens(config, Asking)
    assert config.start_of_picture_token_id > 100


def test_sizes_that_failures_teach_are_bounded_when_inputs_are_filled() -> None:
    """A lesson may be a size that no machine holds (millions along three axes): it is left out like any other."""
    assert not is_sane((("pixels", Guess("float", (0, 1, 4_498_824, 4_498_824, 4_498_824))),))
    assert is_sane((("pixels", Guess("float", (0, 3, 64, 64))),))


def test_a_text_with_placeholders_has_an_axis_of_tokens() -> None:
    marked = Guess("ids", (BATCH, 32), high=50, marks=(Mark(49, 16),))
    assert is_sane((("input_ids", marked),))
    assert not is_sane((("input_ids", replace(marked, shape=(BATCH,))),))


def test_what_cannot_be_made_is_a_failed_trial() -> None:
    trials = Trials(nn.Linear(3, 2), "a layer", [], most_trials=1, most_seconds=1.0, run=None)
    outcome, batch = trials.run((("x", Guess("ids", (BATCH,), marks=(Mark(49, 16),))),), 2)
    assert isinstance(outcome.error, IndexError)
    assert batch is None


def test_an_input_that_silences_the_loss_is_not_filled() -> None:
    """`extra` frees a parameter and makes the loss exactly zero: no good trade."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.other = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor, extra: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            y = self.layer(x)
            if extra is None:
                return {"loss": y.square().mean(), "y": y}
            y = y + self.other(extra)
            return {"loss": y.square().mean() * 0.0, "y": y}

    assert len(next(iter(from_module(Gated()).batches))) == 1


def test_a_mask_that_silences_the_loss_is_left_out_and_the_labels_stay() -> None:
    class Spelling(nn.Module):
        """A CTC loss with lengths that the mask tells; too short for the labels, it is zero."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 5)

        def forward(
            self,
            x: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            labels: torch.Tensor | None = None,
        ) -> dict[str, torch.Tensor]:
            y = self.layer(x)
            long_enough = attention_mask is None or attention_mask.shape[-1] > 100
            return {"y": y} if labels is None else {"loss": y.square().mean() * float(long_enough), "y": y}

    given = (("x", Guess("float", (0, 8))), ("attention_mask", Guess("mask", (0, 6))), ("labels", Guess("ids", (0, 6))))
    model = Spelling()

    def run(candidate: Candidate) -> Outcome:
        return Outcome(output=model(**values_of(candidate, 4)), model=model)

    assert [name for name, _ in without_silencers(model, given, run)] == ["x", "labels"]
    assert without_silencers(model, given[:1], run) == given[:1]
