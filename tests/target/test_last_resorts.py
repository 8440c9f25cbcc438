"""What is tried only where a whole search for inputs has failed."""

from __future__ import annotations

import torch
from torch import nn

from gradscope.target.infer.guess import BATCH, Guess
from gradscope.target.infer.last_resorts import last_resorts
from gradscope.target.infer.search import infer_inputs
from gradscope.target.infer.trial import attempt


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


def taught(model, candidate, batch):
    return [dict(learnt) for _, learnt in last_resorts(attempt(model, batch), candidate)]


class Bordered(nn.Module):
    """Videos within a border of a fixed size."""

    def __init__(self):
        super().__init__()
        self.border = nn.Parameter(torch.rand(3, 40, 40))
        self.out = nn.Linear(3, 2)

    def forward(self, video):
        return self.out((video + self.border).mean((1, 3, 4)))


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


def test_inputs_are_found_where_a_whole_search_has_failed():
    batch = infer_inputs(Joined(), lambda: None, "it").batch
    frames, sound, speaker, code = batch.values() if isinstance(batch, dict) else batch
    assert frames.shape[-1] + speaker.shape[-1] == 58 - 9 - 24  # what the text and the sound leave
    assert (frames.shape[1], sound.shape[-1]) == (2 * code.shape[1], 20)


def test_the_frames_of_a_video_get_both_sides_at_once():
    candidate = (("words", Guess("ids", (BATCH, 16))), ("video", Guess("float", (BATCH, 2, 3, 16, 16))))
    (learnt,) = taught(Bordered(), candidate, {"video": torch.rand(4, 2, 3, 16, 16)})
    assert (learnt["video"].shape, learnt["words"].shape) == ((BATCH, 2, 3, 40, 40), (BATCH, 16))
    assert attempt(Bordered(), {"video": torch.rand(4, 2, 3, 40, 40)}).worked
