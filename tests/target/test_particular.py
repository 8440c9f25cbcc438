"""Inputs for models that check them, loop over them, or take several that go together."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from gradscope.target import load
from gradscope.target.infer.changes import with_alike
from gradscope.target.infer.conditions import by_condition
from gradscope.target.infer.guess import BATCH, Guess
from gradscope.target.infer.loops import record_keys, step_axis
from gradscope.target.infer.making import make
from gradscope.target.infer.roles import Hints, with_fewer_labels
from gradscope.target.infer.sizes import by_pairs, resized
from tests.target import particular, pictured

FILE = Path(particular.__file__)
TARGETS = [
    f"{file.__file__}:{name}"
    for file in (particular, pictured)
    for name, value in vars(file).items()
    if inspect.isclass(value) and issubclass(value, nn.Module)
]
HINTS = Hints(vocab=50, width=8, length=100, channels=3, side=32, classes=4)


def loaded(name: str):
    subject = load(f"{FILE}:{name}")
    return subject, next(iter(subject.batches))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.rpartition(":")[2])
def test_every_parameter_has_a_finite_gradient(target):
    subject = load(target)
    batch = next(iter(subject.batches))
    loss = subject.loss(subject.call(batch), batch)
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in subject.model.parameters())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Points", [(8, 1024, 3)]),
        ("Columns", [(8, 3), (8, 6)]),
        ("Triplet", [(8, 1, 28, 28)] * 3),
        ("OneHot", [(8, 40), (8,)]),
        ("Speech", [(8, 32, 80), (8,), (8, 4), (8,)]),
        ("Sets", [(8, 16, 5), (8,)]),
        ("Timed", [(8, 2), (8,)]),
        ("Attention", [(8, 16, 24)] * 3),
        ("Labelled", [(8, 3, 32, 32), (8, 32, 32)]),
    ],
)
def test_the_shapes_a_person_would_choose(name, expected):
    assert [tuple(tensor.shape) for tensor in loaded(name)[1]] == expected


def test_layers_side_by_side_with_an_input_tell_its_parts():
    (features,) = loaded("Pyramid")[1]
    assert [tuple(feature.shape) for feature in features] == [(8, 4, 32, 32), (8, 8, 32, 32), (8, 16, 32, 32)]


def test_names_taken_out_of_keywords_are_inputs():
    batch = loaded("Keywords")[1]
    assert {name: tuple(value.shape) for name, value in batch.items()} == {"item": (8,), "price_features": (8, 4)}


def test_a_screen_is_bytes():
    (screen,) = loaded("Bytes")[1]
    assert screen.dtype is torch.uint8
    assert screen.max() > 200


def test_a_loop_tells_along_which_axis_the_steps_are():
    model = particular.Core()
    assert step_axis(model, "inputs") == (0, "x")
    assert step_axis(model, "done") == (0, "ended")
    assert step_axis(model, "state") is None
    inputs, (h, c), done = loaded("Core")[1]
    assert inputs.shape == (16, 8, 12)
    assert h.shape == c.shape == (8, 16)
    assert done.shape == (16, 8)


def test_records_are_read_off_the_loop_that_takes_them_apart():
    assert record_keys(particular.Detector(), "targets") == [
        ("labels", "target['labels']"),
        ("boxes", "target['boxes']"),
    ]
    subject, batch = loaded("Detector")
    targets = batch["targets"] if isinstance(batch, dict) else batch[1]
    assert len(targets) == 8
    assert targets[0]["boxes"].shape == (2, 4)
    assert "for each sample (labels" in subject.inputs_origin.text


def failing(check):
    try:
        check()
    except (AssertionError, ValueError) as error:
        return error
    raise AssertionError("it should fail")


def test_a_condition_says_what_a_size_must_be():
    x = torch.zeros(4, 16)

    def check():
        assert x.shape[1] == 12

    candidate = (("x", Guess("float", (BATCH, 16))),)
    learnt = dict(min(by_condition(failing(check), candidate, HINTS), key=lambda lesson: lesson[0])[1])
    assert learnt["x"].shape == (BATCH, 12)


def test_a_condition_that_could_change_something_is_not_looked_at_again():
    calls = []

    def count():
        calls.append(1)
        return 16

    def check():
        assert count() == 12

    error = failing(check)
    assert not list(by_condition(error, (("x", Guess("float", (BATCH, 16))),), HINTS))
    assert len(calls) == 1


def test_inputs_that_are_alike_change_together_before_one_changes_alone():
    view, other = Guess("float", (BATCH, 1, 32, 32)), Guess("float", (BATCH, 1, 28, 28))
    candidate = (("a", view), ("b", view))
    lessons = list(with_alike(candidate, [(0.2, (("a", other), ("b", view)))]))
    assert lessons[0] == (0.2, (("a", other), ("b", other)))
    assert lessons[1][0] > lessons[0][0]


def test_what_stands_side_by_side_shares_a_width_out():
    candidate = (("u", Guess("float", (BATCH, 5))), ("grid", Guess("float", (BATCH, 5))))
    shapes = [[g.shape for _, g in learnt] for _, learnt in resized(candidate, 10, 5)]
    assert [(BATCH, 3), (BATCH, 2)] in shapes


def test_edges_join_every_sample_to_another():
    edges = make(Guess("edges", (2, 16)), 8, "edge_index")
    assert edges.shape == (2, 16)
    assert bool((edges[0] != edges[1]).all())
    assert torch.bincount(edges[1]).tolist() == [2] * 8


def test_labels_become_fewer_together_with_their_number():
    length = Guess("lengths", (BATCH,), high=16)
    candidate = (("targets", Guess("ids", (BATCH, 16), high=9)), ("target_lengths", length))
    fewer = dict(with_fewer_labels(candidate))
    assert fewer["targets"].shape == (BATCH, 4)
    assert fewer["target_lengths"].high == 4


def test_all_that_goes_token_by_token_is_padded_to_the_length_that_is_asked_for():
    text = (("ids", Guess("ids", (BATCH, 16), high=50)), ("attention_mask", Guess("mask", (BATCH, 16))))
    message = "ValueError: factors (5, 8) do not multiply to sequence_length: 16. Consider padding the sequence to 40."
    padded = [{name: guess.shape for name, guess in learnt} for _, learnt in by_pairs(message, text)]
    assert {"ids": (BATCH, 40), "attention_mask": (BATCH, 40)} in padded
