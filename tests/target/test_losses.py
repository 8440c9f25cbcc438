"""Which loss is found, in order, and what the made-up ones are worth."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradscope.errors import LossError
from gradscope.target import load
from gradscope.target.losses.find import made_up
from gradscope.target.losses.leaves import differentiable
from gradscope.target.losses.made_up import LOSSES, MadeUpLoss, Term, kind_of
from gradscope.target.losses.own import find_own
from gradscope.target.losses.reach import covering

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 2)
    def forward(self, x):
        return self.a(x)
def batch():
    return torch.ones(4, 3), torch.zeros(4, dtype=torch.long)
"""


def value(subject) -> float:
    batch = next(iter(subject.batches))
    return subject.loss(subject.call(batch), batch).item()


def test_given_wins_over_everything(write):
    write("def mine(output, batch): return output.sum() * 0 + 7\n", "losses.py")
    subject = load(write(NET + "def loss(output, batch): return output.sum()\n"), loss="losses.py:mine")
    assert value(subject) == 7
    assert subject.loss_origin.text == "mine in losses.py (--loss)"


def test_a_given_criterion_gets_the_target(write):
    write("crit = nn.CrossEntropyLoss()\nclass Crit(nn.CrossEntropyLoss): pass\n", "losses.py")
    expected = value(load(write(NET)))
    for name in ("crit", "Crit"):
        assert value(load(write(NET), loss=f"losses.py:{name}")) == pytest.approx(expected)


@pytest.mark.parametrize("signature", ["(logits, labels)", "(pred, target)", "(y_hat, y)"])
def test_a_loss_function_of_prediction_and_target(write, signature):
    first, second = signature.strip("()").split(", ")
    subject = load(write(NET + f"def loss{signature}: return F.cross_entropy({first}, {second})\n"))
    assert value(subject) == pytest.approx(value(load(write(NET, "plain.py"))))


def test_a_criterion_without_a_target_says_so(write):
    write("crit = nn.CrossEntropyLoss()\n", "losses.py")
    with pytest.raises(LossError, match="the batch carries none"):
        load(
            write(NET.replace("return torch.ones(4, 3), torch.zeros(4, dtype=torch.long)", "return torch.ones(4, 3)")),
            loss="losses.py:crit",
        )


def test_a_lightning_like_training_step(write):
    subject = load(
        write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 2)
            def forward(self, x):
                return self.a(x)
            def training_step(self, batch, batch_idx):
                x, y = batch
                return {"loss": F.cross_entropy(self(x), y) * 3}
        def batch():
            return torch.ones(4, 3), torch.zeros(4, dtype=torch.long)
    """)
    )
    assert "training_step" in subject.loss_origin.text
    expected = 3 * F.cross_entropy(subject.model.a(torch.ones(4, 3)), torch.zeros(4, dtype=torch.long))
    assert value(subject) == pytest.approx(expected.item())


@pytest.mark.parametrize(
    ("output", "target", "expected"),
    [
        ((4, 5), torch.tensor([0, 1, 2, 3]), "cross-entropy"),
        ((4, 6, 5), torch.ones(4, 6, dtype=torch.long), "cross-entropy"),
        ((4, 5, 6, 6), torch.ones(4, 6, 6, dtype=torch.long), "cross-entropy over axis 1"),
        ((4, 1), torch.tensor([0.0, 1.0, 1.0, 0.0]), "binary cross-entropy"),
        ((4,), torch.tensor([0.5, 1.5, 1.0, 0.0]), "mean squared error"),
        ((4, 3), torch.full((4, 3), 0.3), "mean squared error"),
    ],
)
def test_chosen_by_output_and_target(write, output, target, expected):
    torch.save(target, "target.pt")
    size = math.prod(output[1:])
    subject = load(
        write(f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, {size})
            def forward(self, x):
                return self.a(x).reshape({output})
        def batch():
            return torch.ones(4, 3), torch.load("target.pt")
    """)
    )
    assert expected in subject.loss_origin.text
    assert not subject.loss_origin.synthetic
    assert math.isfinite(value(subject))


@pytest.mark.parametrize(
    ("output", "inputs", "kind"),
    [
        (torch.randn(8, 10), torch.randn(8, 4), "classes_last"),
        (torch.randn(8, 10).softmax(-1), torch.randn(8, 4), "probabilities"),
        (torch.randn(8, 10).log_softmax(-1), torch.randn(8, 4), "log_probabilities"),
        (torch.randn(8, 1).sigmoid(), torch.randn(8, 4), "yes_or_no"),
        (torch.randn(8, 1, requires_grad=True).sigmoid().squeeze(1).view(8, 1), torch.randn(8, 4), "yes_or_no"),
        (torch.rand(8, 1, requires_grad=True) * 0.5, torch.randn(8, 4), "regression"),  # between 0 and 1 by chance
        (torch.randn(8, 1), torch.randn(8, 4), "regression"),
        (torch.randn(8, 6, 30), torch.randint(30, (8, 6)), "classes_last"),
        (torch.randn(8, 6, 16), torch.randint(30, (8, 6)), "regression"),
        (torch.randn(2, 5, 8, 8), torch.randn(2, 3, 8, 8), "classes_first"),
        (torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8), "regression"),
        (torch.randn(8, 5, dtype=torch.complex64), torch.randn(8, 4), "regression"),
    ],
)
def test_made_up_by_output_and_inputs(output, inputs, kind):
    assert kind_of(output, (inputs,)) == kind


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_a_made_up_loss_is_fixed_and_draws_nothing(kind):
    loss = MadeUpLoss([Term("", kind)])
    output = torch.rand(4, 6, 6).softmax(-1).requires_grad_()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = loss(output), loss(output)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    (gradient,) = torch.autograd.grad(first, output)
    assert float(gradient.norm()) > 0


@pytest.mark.parametrize("kind", ["classes_last", "regression"])
def test_a_made_up_loss_lives_behind_a_final_norm(kind):
    """A plain sum or mean has no gradient there: LayerNorm's output always sums to zero."""
    x = torch.randn(8, 32, requires_grad=True)
    normed = F.layer_norm(x, (32,))
    (dead,) = torch.autograd.grad(normed.mean(), x, retain_graph=True)
    (alive,) = torch.autograd.grad(MadeUpLoss([Term("", kind)])(normed), x)
    assert float(alive.norm()) > 1e4 * float(dead.norm())


def test_the_scale_of_a_made_up_loss_does_not_depend_on_the_number_of_outputs():
    torch.manual_seed(0)
    small, large = torch.randn(8, 50), torch.randn(800, 50)
    loss = MadeUpLoss([Term("", "classes_last")])
    assert float(loss(small)) == pytest.approx(float(loss(large)), rel=0.2)


def test_outputs_are_covered_without_deep_supervision():
    one, two, other = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
    model = nn.ModuleList([one, two, other])
    hidden = one(torch.ones(2, 3))
    outputs = differentiable({"hidden": hidden, "logits": two(hidden), "second": other(hidden)})
    assert covering(outputs, model) == ["logits", "second"]


def test_losses_of_a_detector_are_summed():
    losses = {"box": torch.tensor(1.0, requires_grad=True) * 1, "class": torch.tensor(2.0, requires_grad=True) * 1}
    assert find_own(losses)[1].item() == 3


def test_a_dict_with_metrics_beside_logits_is_no_loss():
    assert find_own({"logits": torch.randn(2, 3, requires_grad=True), "accuracy": torch.tensor(1.0)}) is None


def test_scores_of_what_must_not_be_chosen_are_left_out_of_a_made_up_loss(write):
    subject = load(
        write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)
            def forward(self, x):
                scores = self.b(x).masked_fill(torch.arange(4) > 1, float("-inf"))
                return {"scores": scores, "boxes": self.a(x)}
        def batch():
            return torch.ones(4, 3)
    """)
    )
    assert "boxes" in subject.loss_origin.text
    assert "scores" not in subject.loss_origin.text
    assert math.isfinite(value(subject))


def test_a_model_that_is_frozen_as_a_whole_says_so(write):
    target = write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 4).requires_grad_(False)
            def forward(self, x):
                return self.a(x)
        def batch():
            return torch.ones(4, 3)
    """)
    with pytest.raises(LossError, match="None of the model's parameters is trainable"):
        load(target)


AUTOENCODER = """
class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(4, 6)
        self.codes = nn.Embedding(10, 4)
    def forward(self, x):
        z = self.encoder(x)
        nearest = self.codes(torch.cdist(z, self.codes.weight).argmin(-1))
        commitment = F.mse_loss(nearest, z.detach()) + F.mse_loss(z, nearest.detach())
        return self.decoder(z + (nearest - z).detach()), commitment
def batch():
    return torch.ones(4, 6)
"""
MIXTURE = """
class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.head = nn.Linear(6, 2), nn.Linear(6, 3)
    def forward(self, x):
        weights = self.router(x).softmax(-1)
        return self.head(x) * weights[:, :1], (weights.mean(0) ** 2).sum()
def batch():
    return torch.ones(4, 6), torch.tensor([0, 1, 2, 0])
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [(AUTOENCODER, "cross-entropy against fixed random labels"), (MIXTURE, "cross-entropy of the output")],
)
def test_beside_an_auxiliary_loss_the_main_output_is_held_to(write, source, words):
    subject = load(write(source))
    said = f"output[1] of the model, a scalar, in which some parameters have no part, plus {words}"
    assert said in subject.loss_origin.text
    assert subject.loss_origin.synthetic is (source is AUTOENCODER)
    batch = next(iter(subject.batches))
    output = subject.call(batch)
    loss = subject.loss(output, batch)
    assert loss.item() > output[1].item()
    loss.backward()
    assert all(parameter.grad is not None for parameter in subject.model.parameters())


def test_a_loss_of_each_sample_is_no_main_output(write):
    each = AUTOENCODER.replace("return self.decoder(z", 'return {"loss": commitment.expand(4), "sound": self.decoder(z')
    subject = load(write(each.replace(".detach()), commitment", ".detach())}")))
    assert "output.loss of the model, in which some parameters have no part, plus" in subject.loss_origin.text
    assert "for output sound 4x6" in subject.loss_origin.text


def test_a_whole_loss_stays_alone_although_a_layer_is_unused(write):
    whole = MIXTURE.replace("(weights.mean(0) ** 2).sum()", "F.cross_entropy(self.head(x) * weights[:, :1], y)")
    whole = whole.replace("(self, x)", "(self, x, y)").replace("self.router,", "self.unused, self.router,")
    subject = load(write(whole.replace("= nn.Linear(6, 2),", "= nn.Linear(2, 2), nn.Linear(6, 2),")))
    assert subject.loss_origin.text == "output[1] of the model, a scalar"


def test_outputs_without_a_gradient_are_told_apart():
    model = nn.Linear(3, 3)
    with pytest.raises(LossError) as raised_:
        made_up({"codes": torch.ones(2, dtype=torch.int64), "hidden": torch.ones(2)}, torch.ones(2, 3), model)
    assert "Whole numbers (codes: codes, places, counts)" in str(raised_.value)
    assert "hidden was computed without gradients" in str(raised_.value)
