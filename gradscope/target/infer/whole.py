"""Make inputs exercise the whole of a model: fill inputs that may be left out, and turn masks the right way round."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import nn

from gradscope.probe.seeding import sheltered
from gradscope.target.infer.absence import IN_PLACE_OF_IDS
from gradscope.target.infer.changes import Lesson, with_guess
from gradscope.target.infer.first import guesses_for
from gradscope.target.infer.guess import Candidate, Guess, is_sane
from gradscope.target.infer.making import SEED
from gradscope.target.infer.reading import parameters_of_forward
from gradscope.target.infer.roles import MASK, Hints
from gradscope.target.infer.trial import Outcome
from gradscope.target.losses.leaves import differentiable, named_tensors
from gradscope.target.losses.reach import reached

Run = Callable[[Candidate], Outcome]
"""Takes a forward with gradients."""
Teach = Callable[[Outcome, Candidate], Iterable[Lesson]]
"""What to try next after a failure."""
Extend = Callable[[Candidate], Iterable[Candidate]]
"""What a model may be given beside inputs that leave a part of it idle."""
IDLE_SHARE = 0.03
"""Share of the parameter tensors without a part in the output that is taken for granted: a pooler nobody reads."""
MOST_FILLED, WAYS, TRIES = 12, 3, 5
"""Inputs that are tried to be filled, ways to fill each, and forwards for each way."""
KEPT_BETWEEN_CALLS = re.compile(r"past|cache|(?<!hidden_)(?<!attention_)state")
"""Inputs that a model hands back to itself; hidden states and those to attend to come from another one."""
FLIPPED = {"mask": "blank", "blank": "mask", "trues": "bools", "bools": "trues"}
"""What the other way round of a mask is."""
MORE_ZEROS = 0.1
"""Share of the numbers in the gradients that may become zero by an input more: other units are off with it."""
FEWER_ZEROS = 0.01
"""Share of the numbers in the gradients that a mask turned round must free of being exactly zero."""


def extended(candidate: Candidate, run: Run, teach: Teach, extend: Extend) -> Candidate:
    """Give whole kinds of input more, such as a sound beside a picture, where parameters take no part without them."""
    trials = list(extend(candidate))
    outcome = run(candidate) if trials else Outcome()
    idle, total = _idle(outcome)
    if len(idle) <= IDLE_SHARE * total:
        return candidate
    zeros = _share_of_zeros(outcome)
    for trial in trials:
        found = _grown(dict(candidate), trial, run, teach)
        if found is None or len(_idle(found[1])[0]) >= len(idle):
            continue
        if _share_of_zeros(found[1]) <= zeros + MORE_ZEROS:
            return extended(found[0], run, teach, extend)
    return candidate


def filled(model: nn.Module, hints: Hints, candidate: Candidate, run: Run, teach: Teach) -> Candidate:
    """Give inputs that may be left out where parameters take no part without them."""
    plain = run(candidate)
    idle, total = _idle(plain)
    zeros = _share_of_zeros(plain) if len(idle) > IDLE_SHARE * total else 0.0
    given = {name.partition(".")[0] for name, _ in candidate}
    optional = [p for p in parameters_of_forward(model) if p.default is not p.empty and _may_help(p, given)]
    optional.sort(key=lambda parameter: not _is_named_after(parameter.name, idle))
    ways = {p.name: _ways(model, p, hints) for p in optional[:MOST_FILLED]} if len(idle) > IDLE_SHARE * total else {}
    together = [(name, guesses[0]) for name, guesses in ways.items() if guesses and _is_named_after(name, idle)]
    singles = [((name, guess),) for name, guesses in ways.items() for guess in guesses]
    for added in ([tuple(together)] if len(together) > 1 else []) + singles:
        if len(idle) > IDLE_SHARE * total and added[0][0] not in dict(candidate):
            found = _grown(dict(candidate), (*candidate, *added), run, teach)
            if found is None or len(left := _idle(found[1])[0]) >= len(idle):
                continue
            if (left_zeros := _share_of_zeros(found[1])) <= zeros + MORE_ZEROS:
                candidate, idle, zeros = found[0], left, left_zeros
    return candidate


def _ways(model: nn.Module, parameter: inspect.Parameter, hints: Hints) -> list[Guess]:
    """Return the first few tensors that an input may be."""
    guesses = (g for g in dict.fromkeys(guesses_for(model, parameter, hints)) if g.kind != "constant")
    return list(itertools.islice(guesses, WAYS))


def turned(candidate: Candidate, run: Run) -> Candidate:
    """Turn each mask the other way round where that lets more of the gradient through.

    Whether True in a mask means a token or padding is a convention of each model. A mask that leaves out everything
    often fails nowhere, but no score of an attention gets a gradient then.
    """
    masks = [(name, guess) for name, guess in candidate if guess.kind in FLIPPED and MASK.search(name)]
    if not masks or (zeros := _share_of_zeros(run(candidate))) <= FEWER_ZEROS:
        return candidate
    for name, guess in masks:
        other = with_guess(candidate, name, replace(guess, kind=FLIPPED[guess.kind]))
        if (left := _share_of_zeros(run(other))) < zeros - FEWER_ZEROS:
            candidate, zeros = other, left
    return candidate


def without_silencers(model: nn.Module, candidate: Candidate, run: Run) -> Candidate:
    """Leave out what may be left out, one input or all, where every gradient is exactly zero with it.

    The lengths that a mask tells can make a sequence too short for its labels: a CTC loss is zero then.
    """
    if _share_of_zeros(run(candidate)) < 1.0:
        return candidate
    optional = {p.name for p in parameters_of_forward(model) if p.default is not p.empty}
    given = sorted((name for name, _ in candidate if name in optional), key=lambda name: not MASK.search(name))
    best, fewest = candidate, 1.0
    for left_out in (*({name} for name in given), set(given)):
        rest = tuple(pair for pair in candidate if pair[0] not in left_out)
        if rest and (outcome := run(rest)).worked and (zeros := _share_of_zeros(outcome)) < fewest - FEWER_ZEROS:
            best, fewest = rest, zeros
    return best


def _may_help(parameter: inspect.Parameter, given: set[str]) -> bool:
    name, annotation = parameter.name, str(parameter.annotation)
    is_tensor = parameter.annotation is parameter.empty or "Tensor" in annotation or "Array" in annotation
    is_switch = isinstance(parameter.default, bool | int | float | str)
    is_extra = name == IN_PLACE_OF_IDS or KEPT_BETWEEN_CALLS.search(name)
    return name not in given and is_tensor and not is_switch and not is_extra


def _is_named_after(name: str, parts: Iterable[str]) -> bool:
    """Whether an input shares a word with the names of some parameters."""
    words = {word for part in parts for word in re.split(r"[._]", part) if len(word) > 2}  # noqa: PLR2004  # no "w", "b"
    return not words.isdisjoint(name.split("_"))


def _idle(outcome: Outcome) -> tuple[list[str], int]:
    """Return the trainable parameters that no output depends on, and how many there are in all."""
    outputs = differentiable(outcome.output)
    if outcome.model is None or not outputs:
        return [], 0
    trainable = {name: p for name, p in outcome.model.named_parameters() if p.requires_grad}
    found = reached(outputs, outcome.model)
    return [name for name, parameter in trainable.items() if id(parameter) not in found], len(trainable)


def _grown(kept: dict[str, Guess], larger: Candidate, run: Run, teach: Teach) -> tuple[Candidate, Outcome] | None:
    """Try more inputs, and what failures teach of them; what was given before stays as it was."""
    waiting = [larger]
    for _ in range(TRIES):
        if not waiting:
            return None
        candidate = waiting.pop(0)
        outcome = run(candidate)
        if outcome.worked and outcome.output is not None:
            return (candidate, outcome) if _is_finite(outcome) else None
        learnt = sorted(teach(outcome, candidate), key=lambda lesson: lesson[0])
        waiting = [c for _, c in learnt if c != candidate and is_sane(c) and _keeps(c, kept)] + waiting
    return None


def _keeps(candidate: Candidate, kept: dict[str, Guess]) -> bool:
    """Whether the inputs of before are as they were, or only longer or shorter."""
    now = dict(candidate)
    return all(
        name in now and now[name].kind == guess.kind and len(now[name].shape) == len(guess.shape)
        for name, guess in kept.items()
    )


def _is_finite(outcome: Outcome) -> bool:
    tensors = (tensor for _, tensor in named_tensors(outcome.output) if tensor.is_floating_point())
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def _share_of_zeros(outcome: Outcome) -> float:
    """Return how much of the gradients of the loss, else of a random projection of the outputs, is zero or missing."""
    outputs = differentiable(outcome.output)
    outputs = {"loss": outputs["loss"]} if "loss" in outputs else outputs
    if outcome.model is None or not outputs or not _is_finite(outcome):
        return 1.0
    parameters = [p for p in outcome.model.parameters() if p.requires_grad]
    try:
        with sheltered():
            gradients = torch.autograd.grad(_projected(outputs.values()), parameters, allow_unused=True)
    except RuntimeError:  # what cannot be differentiated is said later, by the step itself
        return 1.0
    dense = (g.to_dense() if g is not None and g.is_sparse else g for g in gradients)
    alive = sum(int(torch.count_nonzero(g)) for g in dense if g is not None)
    return 1.0 - alive / max(sum(p.numel() for p in parameters), 1)


def _projected(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(SEED)
    real = (torch.view_as_real(t) if t.is_complex() else t.float() for t in tensors)
    return torch.stack([(t * torch.randn(t.shape, generator=generator).to(t)).sum() for t in real]).sum()
