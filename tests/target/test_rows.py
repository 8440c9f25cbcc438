"""Inputs of several rows a sample, and inputs that a model refuses to do without, one after the other."""

import pytest
from torch import nn

from gradscope.target import load
from gradscope.target.infer.documented import documented
from gradscope.target.infer.guess import BATCH, Guess, is_sane
from gradscope.target.infer.where import is_later, lines_of

READER = '''
    import torch
    from torch import nn

    class Config:
        num_docs, max_joint_length = 5, 300

    class Reader(nn.Module):
        """A generator over passages that a search would find: it is given them, for want of a search."""

        def __init__(self):
            super().__init__()
            self.config = Config()
            self.asked, self.words = nn.Embedding(100, 16), nn.Embedding(100, 16)
            self.places = nn.Embedding(32, 16)
            self.body = nn.Linear(16, 16)

        def forward(self, input_ids, encoded=None, aside=None, hint=None, passages=None, passage_mask=None,
                    scores=None):
            r"""
            input_ids (`torch.LongTensor` of shape `(batch_size, sequence_length)`):
                The question.
            passages (`torch.LongTensor` of shape `(batch_size * config.num_docs, config.max_joint_length)`):
                What was found.
            passage_mask (`torch.LongTensor` of shape `(batch_size * config.num_docs, config.max_joint_length)`):
                Its mask.
            scores (`torch.FloatTensor` of shape `(batch_size, config.num_docs)`):
                How well each fits.
            """
            if encoded is None:
                assert passages is not None, "Make sure that `passages` are passed, if no `search` is set."
                assert passage_mask is not None, "Make sure that `passage_mask` is passed, if no `search` is set."
            assert scores is not None, "Make sure that `scores` are passed when passing `encoded`."
            places = self.places(torch.arange(passages.shape[1]) + 2)
            read = (self.words(passages) + places) * passage_mask[..., None]
            asked = self.asked(input_ids).mean(1).repeat_interleave(5, dim=0)
            answer = self.body(read.mean(1) + asked).view(-1, 5, 16)
            return (answer * scores[..., None].softmax(1)).sum(1)
'''


def test_what_is_refused_one_after_the_other_is_given_with_its_rows(write):
    subject = load(write(READER))
    given = next(iter(subject.batches))
    assert given["passages"].shape[0] == 5 * given["input_ids"].shape[0]
    assert given["scores"].shape[1] == 5


@pytest.mark.parametrize(
    ("words", "rows"),
    [("batch_size * config.num_docs, 7", -5), ("batch_size * num_unknown, 7", BATCH), ("2 * batch, 7", -2)],
)
def test_a_product_with_the_batch_is_so_many_rows_a_sample(words, rows):
    def forward(x):
        pass

    forward.__doc__ = f"x (`torch.FloatTensor` of shape `({words})`): some rows."
    assert documented(forward, {"num_docs": 5})["x"].shape == (rows, 7)


def test_rows_are_counted_in_words_and_sizes():
    guess = Guess("float", (-5, 7))
    assert (guess.sized(4), guess.describe(8)) == ((20, 7), "40x7 normal numbers")
    assert is_sane((("x", guess),))
    assert not is_sane((("x", Guess("float", (4, -7))),))


def test_an_error_on_a_later_line_is_further():
    def checks(number):
        assert number > 0
        assert number > 1

    def lines(number):
        try:
            checks(number)
        except AssertionError as error:
            return lines_of(error)

    assert is_later(lines(1), lines(0))
    assert not is_later(lines(0), lines(1))
    assert not is_later(lines(0), lines(0))


class Atoms(nn.Module):
    """A molecule.

    Args of forward:
        kinds (LongTensor): what each atom is, shape (num_atoms,)
        places (Tensor): where it is, shape (num_atoms, 3)
    """

    def forward(self, kinds, places, frames):
        # frames: (B, T, N, C)
        at_once = frames.mean()  # places: (B, 7)
        return kinds + places.sum() + at_once


def test_the_docstring_of_a_class_and_the_comments_on_top_of_its_forward_are_read():
    told = documented(Atoms().forward, {"channels": 5})
    assert {name: guess.shape for name, guess in told.items()} == {
        "kinds": (BATCH,), "places": (BATCH, 3), "frames": (BATCH, 16, 3, 5)
    }  # fmt: skip
