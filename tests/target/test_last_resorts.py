"""What is tried only where a whole search for inputs has failed."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.target.infer.guess import BATCH, Guess, assembled, described
from gradscope.target.infer.last_resorts import last_resorts
from gradscope.target.infer.making import values_of
from gradscope.target.infer.search import infer_inputs
from gradscope.target.infer.trial import Outcome, attempt


class Joined(nn.Module):
    """Takes noisy frames beside what is known of the speaker and of a text that is half as fine."""

    def __init__(self):
        super().__init__()
        self.text, self.listen, self.mix = nn.Embedding(50, 24), nn.Conv1d(20, 9, 3, padding=1), nn.Linear(58, 16)

    def forward(self, frames, sound, speaker, code):
        heard = self.listen(sound.transpose(1, 2)).mean(-1)
        known = heard.unsqueeze(1).repeat(1, frames.size(1), 1)
        words = self.text(code).repeat_interleave(2, dim=1)
        return self.mix(torch.cat((frames, known, words, speaker), dim=-1))


class Questions(nn.Module):
    """Answers questions of several types at marked tokens of one text."""

    def __init__(self):
        super().__init__()
        self.text, self.score = nn.Embedding(60, 8), nn.Linear(8, 12)
        self.register_buffer("starts", torch.tensor([0, 2, 6]))

    def forward(self, input_ids: torch.LongTensor, marks: torch.LongTensor, options: torch.LongTensor, kinds):
        marks, options, kinds = marks[0], options[0], kinds[0]
        scores = self.score(self.text(input_ids)[0][marks - 1])
        starts, rows = self.starts[kinds], torch.arange(scores.shape[-1])
        return scores[(rows >= starts[:, None]) & (rows < (starts + options)[:, None])]


class Assistant(nn.Module):
    """Attends to the keys and values of another model, which it is given for each kind of layer."""

    def __init__(self):
        super().__init__()
        self.near, self.far, self.out = nn.Linear(12, 32), nn.Linear(12, 48), nn.Linear(20, 3)

    def forward(self, x, states: dict[str, tuple[torch.Tensor, torch.Tensor]] | None = None):
        states = {kind: (keys * 1.0, values) for kind, (keys, values) in states.items()}
        return self.out(torch.cat((self.attended(self.near(x), states["near"]), self.all(x, states)), -1))

    def all(self, x, states):
        return self.attended(self.far(x), states["far"])

    def attended(self, queries, given):
        keys, values = (each.repeat_interleave(2, 1) for each in given)
        heads = queries.unflatten(-1, (4, -1)).transpose(1, 2)
        return (torch.einsum("bhqd,bhkd->bhqk", heads, keys).softmax(-1) @ values).mean(1)


def taught(model, candidate, batch):
    return [dict(learnt) for _, learnt in last_resorts(attempt(model, batch), candidate)]


def test_what_is_joined_leaves_the_last_the_width_that_is_left():
    names, (frames, code) = ("frames", "sound", "speaker"), (Guess("float", (BATCH, 32, 20)), Guess("ids", (BATCH, 16)))
    batch = {**{name: torch.randn(4, 32, 20) for name in names}, "code": torch.zeros(4, 16, dtype=torch.int64)}
    first, second = taught(Joined(), (*((name, frames) for name in names), ("code", code)), batch)
    assert (first["speaker"].shape, first["frames"].shape) == ((BATCH, 32, 5), (BATCH, 32, 20))
    assert (second["speaker"].shape, second["frames"].shape) == ((BATCH, 32, 20), (BATCH, 32, 5))


def test_what_chooses_among_tokens_stands_in_rows():
    ids, chosen = Guess("ids", (BATCH, 16), high=60), Guess("ids", (3,), high=60)
    batch = {"input_ids": torch.zeros(4, 16, dtype=torch.int64)} | {
        name: torch.zeros(3, dtype=torch.int64) for name in ("marks", "options", "kinds")
    }
    (learnt,) = taught(Questions(), (("input_ids", ids), *((n, chosen) for n in batch if n != "input_ids")), batch)
    rows = Guess("ids", (BATCH, 16), high=16)
    assert learnt == {"input_ids": ids, "marks": rows, "options": rows, "kinds": rows}


def test_a_table_has_the_keys_that_the_model_asks_for():
    states = Guess("float", (BATCH, 1, 3, 3))
    batch = {"x": torch.randn(4, 16, 12), "states": torch.randn(4, 1, 3, 3)}
    (learnt,) = taught(Assistant(), (("states", states),), batch)
    pairs = {f"states.{kind}.{rank}": states for kind in ("near", "far") for rank in (0, 1)}
    assert learnt == {"states": Guess("dict"), "states.near": Guess("tuple"), "states.far": Guess("tuple")} | pairs
    candidate = tuple(learnt.items())
    given = assembled(candidate, values_of(candidate, 2))["states"]
    assert [[tuple(tensor.shape) for tensor in pair] for pair in given.values()] == [[(2, 1, 3, 3)] * 2] * 2
    assert described(candidate, 2).count("2x1x3x3 normal numbers") == len(pairs)


def test_keys_and_values_get_the_width_and_the_heads_of_the_queries():
    names = ("states.near.0", "states.near.1", "states.far.0", "states.far.1")
    candidate = tuple((name, Guess("float", (BATCH, 1, 3, 3))) for name in names)
    for message, shape in (
        ("Expected size for first two dimensions of batch2 tensor to be: [16, 8] but got: [16, 3].", (BATCH, 1, 3, 8)),
        ("The size of tensor a (4) must match the size of tensor b (2) at non-singleton dimension 1", (BATCH, 2, 3, 3)),
    ):
        learnt = last_resorts(Outcome(error=ValueError(message)), candidate)
        every, near, far = ([guess.shape for _, guess in entries] for _, entries in learnt)
        assert every == [shape] * 4
        assert (near[:2], far[2:]) == ([shape] * 2, [shape] * 2)
        assert near[2:] == far[:2] == [(BATCH, 1, 3, 3)] * 2


def test_inputs_are_found_where_a_whole_search_has_failed():
    batch = infer_inputs(Joined(), lambda: None, "it").batch
    frames, sound, speaker, code = batch.values() if isinstance(batch, dict) else batch
    assert frames.shape[-1] + speaker.shape[-1] == 58 - 9 - 24  # what the text and the sound leave
    assert (frames.shape[1], sound.shape[-1]) == (2 * code.shape[1], 20)
