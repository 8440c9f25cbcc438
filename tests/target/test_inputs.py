"""Where inputs are looked for, in order, and every form they may have."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gradscope.errors import InputsError
from gradscope.target import load
from gradscope.target.inputs.written import make_batch, parse_inputs
from gradscope.target.subject import Subject

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 2)
    def forward(self, x, scale=None):
        return self.a(x) if scale is None else self.a(x) * scale
"""


def first(subject: Subject):
    return next(iter(subject.batches))


def test_given_inputs_win(write):
    write("def mine(): return torch.full((6, 3), 7.0)\n", "data.py")
    subject = load(write(NET + "def batch(): return torch.ones(2, 3)\n"), inputs="data.py:mine")
    assert first(subject).shape == (6, 3)
    assert "mine() in data.py (--inputs)" in subject.inputs_origin.text


def test_written_inputs_win_over_the_file(write):
    subject = load(write(NET + "def batch(): return torch.ones(2, 3)\n"), input_spec="5x3")
    assert first(subject)[0].shape == (5, 3)
    assert subject.inputs_origin.synthetic


@pytest.mark.parametrize("name", ["batch", "get_batch", "example_inputs", "dummy_inputs", "example_input_array"])
def test_usual_names_as_functions_and_as_values(write, name):
    value = "(torch.ones(4, 3),)"
    for code in (f"def {name}(): return {value}\n", f"{name} = {value}\n"):
        subject = load(write(NET + code, f"with_{name}_{len(code)}.py"))
        assert first(subject)[0].shape == (4, 3)
        assert name in subject.inputs_origin.text


def test_a_batch_function_that_wants_a_split(write):
    subject = load(
        write(
            NET + "def get_batch(split, batch_size): return torch.ones(batch_size, 3) if split == 'train' else None\n"
        )
    )
    assert first(subject).shape == (8, 3)


def test_the_models_own_example(write):
    code = NET.replace(
        "self.a = nn.Linear(3, 2)", "self.a = nn.Linear(3, 2)\n        self.example_input_array = torch.ones(9, 3)"
    )
    assert first(load(write(code))).shape == (9, 3)


LOADER = """
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(36.0).reshape(12, 3), torch.arange(12) % 2)
train_loader = DataLoader(data, batch_size=4)
"""


def test_a_loaders_targets_go_to_the_loss(write):
    subject = load(write(NET + LOADER))
    batches = list(subject.batches)
    assert len(batches) == 3
    output = subject.call(batches[1])
    expected = torch.nn.functional.cross_entropy(subject.model.a(batches[1][0]), batches[1][1])
    torch.testing.assert_close(subject.loss(output, batches[1]), expected)
    assert not subject.loss_origin.synthetic
    assert len(list(subject.batches)) == 3  # again from the start


def test_a_loader_with_the_files_criterion(write):
    subject = load(write(NET + LOADER + "criterion = nn.CrossEntropyLoss(label_smoothing=0.3)\n"))
    batch = first(subject)
    expected = torch.nn.CrossEntropyLoss(label_smoothing=0.3)(subject.model.a(batch[0]), batch[1])
    torch.testing.assert_close(subject.loss(subject.call(batch), batch), expected)
    assert subject.loss_origin.text == "criterion in user_model.py"


def test_an_iterator_starts_anew(write):
    write("def stream():\n    for i in range(3):\n        yield torch.full((2, 3), float(i))\n", "data.py")
    subject = load(write(NET), inputs="data.py:stream")
    for _ in range(2):
        assert [float(batch[0, 0]) for batch in subject.batches] == [0, 1, 2]


def test_an_endless_iterator_is_not_used_up(write):
    write(
        "import itertools\ndef stream(): return (torch.full((2, 3), float(i)) for i in itertools.count())\n", "data.py"
    )
    subject = load(write(NET), inputs="data.py:stream")
    iterator = iter(subject.batches)
    assert [float(next(iterator)[0, 0]) for _ in range(3)] == [0, 1, 2]


def test_a_generator_a_factory_returned_is_kept(write):
    subject = load(
        write("def make_model():\n    return nn.Linear(3, 2), (torch.full((2, 3), float(i)) for i in range(3))\n")
    )
    for _ in range(2):
        assert [float(batch[0, 0]) for batch in subject.batches] == [0, 1, 2]


def test_dicts_with_more_than_forward_takes(write):
    subject = load(
        write(NET + "def batch(): return {'x': torch.ones(4, 3), 'labels': torch.zeros(4, dtype=torch.long)}\n")
    )
    batch = first(subject)
    expected = torch.nn.functional.cross_entropy(subject.model.a(batch["x"]), batch["labels"])
    torch.testing.assert_close(subject.loss(subject.call(batch), batch), expected)


def test_a_forward_that_takes_the_whole_batch(write):
    code = NET.replace(
        "def forward(self, x, scale=None):\n        return self.a(x) if scale is None else self.a(x) * scale",
        "def forward(self, batch):\n        return self.a(batch['x'])",
    )
    subject = load(write(code + "def batch(): return {'x': torch.ones(4, 3), 'other': torch.ones(1)}\n"))
    assert subject.call(first(subject)).shape == (4, 2)


def test_files_of_tensors(write):
    file = write(NET)
    torch.save(torch.ones(7, 3), "x.pt")
    torch.save({"x": torch.ones(7, 3)}, "d.pt")
    np.save("x.npy", np.ones((7, 3), dtype=np.float32))
    np.savez("x.npz", np.ones((7, 3), dtype=np.float32))
    np.savez("d.npz", x=np.ones((7, 3), dtype=np.float32))
    Path("d.json").write_text(json.dumps({"x": [[1.0, 2.0, 3.0]] * 7}))
    for name in ("x.pt", "d.pt", "x.npy", "x.npz", "d.npz", "d.json"):
        subject = load(file, inputs=name)
        assert subject.call(first(subject)).shape == (7, 2), name
        assert name in subject.inputs_origin.text


@pytest.mark.parametrize("name", ["gone.pt", "bad.npz", "bad.json", "bad.pt", "objects.npy"])
def test_bad_files_of_tensors(write, name):
    file = write(NET)
    for bad in ("bad.npz", "bad.json", "bad.pt"):
        Path(bad).write_bytes(b"\x80not what it says")
    np.save("objects.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(InputsError, match=name):
        load(file, inputs=name)


def test_written_out(write):
    one, two, three = parse_inputs("8x16:int64:3..50, 8x3 mask=8:bool")
    assert (one.shape, one.dtype, one.low, one.high) == ((8, 16), torch.int64, 3, 50)
    ids, floats, mask = make_batch([one, two, three])
    assert int(ids.min()) >= 3
    assert int(ids.max()) < 50
    assert floats.dtype is torch.float32
    assert mask.dtype is torch.bool
    assert list(make_batch(parse_inputs("x=2x3;y=():float:0..1"))) == ["x", "y"]


@pytest.mark.parametrize(
    "text", ["8y3", "8x3:int65", "8x3:int64:5..5", "8x3:int64:a..b", "99999x99999x9", "8x3:a:b:c", "x=", "-1x3"]
)
def test_badly_written(text):
    with pytest.raises(InputsError, match="--input"):
        parse_inputs(text)


def test_making_inputs_up_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    make_batch(parse_inputs("8x3, 4:int64:0..9, 3:bool, 2:float:0..1"))
    assert torch.equal(torch.get_rng_state(), before)


def test_given_inputs_that_are_no_inputs(write):
    file = write(NET + "def mine(a, b): pass\nnothing = None\n")
    for name in ("mine", "nothing", "gone"):
        with pytest.raises(InputsError):
            load(file, inputs=f"{file}:{name}")
    with pytest.raises(InputsError, match="names no function"):
        load(file, inputs=file)
