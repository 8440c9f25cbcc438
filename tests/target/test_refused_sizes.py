"""Sizes of sounds, videos and maps that a first guess of the usual size does not meet."""

import pytest

from gradscope.target import load
from gradscope.target.infer import search
from gradscope.target.infer.guess import BATCH, Guess
from gradscope.target.infer.lessons import _halved, _larger
from gradscope.target.infer.sizes import resized

SOUND = '''
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.wave = nn.Sequential(*[nn.Conv1d(1 if i == 0 else 8, 8, 8, stride=5) for i in range(4)])
            self.features, self.head = nn.Linear(20, 8), nn.Linear(8, 4)

        def forward(self, input_values, input_features):
            """
            input_values (`torch.Tensor` of shape `(batch_size, 1, sequence_length)`): the sound.
            input_features (`torch.Tensor` of shape `(batch_size, frames, 20)`): what was computed of it.
            """
            told = self.features(input_features).mean(1)
            return self.head(self.wave(input_values).mean(2) + told)
'''
CLIP = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.head = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, 4)

        def forward(self, clip):
            B, T, C, H, W = clip.shape
            assert H == 48, f"Input height ({H}) doesn't match model (48)."
            assert W == 48, f"Input width ({W}) doesn't match model (48)."
            return self.head(self.patches(clip.flatten(0, 1)).mean((2, 3)).view(B, T, 8).mean(1))
"""


@pytest.mark.parametrize(
    ("code", "words"), [(SOUND, "input_values = 8x1x4000 normal"), (CLIP, "clip = 8x16x3x48x48 normal")]
)
def test_sizes_that_are_refused_are_found_in_a_few_trials(write, monkeypatch, code, words):
    monkeypatch.setattr(search, "MOST_TRIALS", 12)
    assert load(write(code)).inputs_origin.text.startswith(words)


def test_a_video_that_is_too_large_keeps_two_frames():
    video = Guess("float", (BATCH, 16, 3, 336, 336))
    assert _halved(video).shape == (BATCH, 2, 3, 336, 336)
    assert _halved(Guess("float", (BATCH, 2, 3, 336, 336))) is None
    assert _halved(Guess("float", (BATCH, 8, 64, 64, 64))).shape == (BATCH, 8, 32, 32, 32)


def test_a_sound_that_is_too_short_becomes_long_at_once():
    assert _larger(Guess("float", (BATCH, 1, 16))).shape == (BATCH, 1, 4000)
    assert _larger(Guess("float", (BATCH, 1, 4000))).shape == (BATCH, 1, 8000)
    assert _larger(Guess("float", (BATCH, 3, 16))).shape == (BATCH, 3, 32)


def test_the_frames_of_a_video_get_both_sides_at_once():
    candidate = (("words", Guess("ids", (BATCH, 16))), ("video", Guess("float", (BATCH, 2, 3, 16, 16))))
    learnt = [dict(changed) for _, changed in resized(candidate, 16, 40)]
    assert any(
        (each["video"].shape, each["words"].shape) == ((BATCH, 2, 3, 40, 40), (BATCH, 16)) for each in learnt
    )
