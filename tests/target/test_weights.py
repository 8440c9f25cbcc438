"""--weights: every usual kind of checkpoint, strict, and never running code."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from gradscope.errors import TargetError
from gradscope.target import load
from gradscope.target.weights.safetensors import read_safetensors

MODEL = """
def model(width=4):
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
"""
KINDS = {torch.float32: "F32", torch.int64: "I64"}


@pytest.fixture
def trained() -> nn.Sequential:
    torch.manual_seed(99)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].running_mean.normal_()
    return model


def save_safetensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write the format by its description: a length, a JSON header, the numbers."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": KINDS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def same(model: nn.Module, trained: nn.Module) -> bool:
    mine, other = model.state_dict(), trained.state_dict()
    return all(torch.equal(mine[name], other[name]) for name in other)


def failing(file: str, weights: str) -> TargetError:
    with pytest.raises(TargetError) as caught:
        load(file, weights=weights)
    assert "\n" not in str(caught.value)
    return caught.value


def test_plain_state_dicts(write, trained):
    file = write(MODEL)
    assert not same(load(file).model, trained)
    torch.save(trained.state_dict(), "net.pt")
    save_safetensors(trained.state_dict(), Path("net.safetensors"))
    for name in ("net.pt", "net.safetensors"):
        subject = load(file, weights=name)
        assert same(subject.model, trained)
        assert name in subject.weights


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod.", "_orig_mod.module."])
def test_prefixes_of_wrappers(write, trained, prefix):
    torch.save({prefix + name: value for name, value in trained.state_dict().items()}, "net.pt")
    subject = load(write(MODEL), weights="net.pt")
    assert same(subject.model, trained)
    assert prefix in subject.weights


def test_a_prefix_that_the_model_has_and_the_file_lacks(write, trained):
    torch.save(trained.state_dict(), "net.pt")
    code = MODEL.replace("return nn.Sequential", "inner = nn.Sequential") + "    return nn.DataParallel(inner)\n"
    assert same(load(write(code), weights="net.pt").model.module, trained)


@pytest.mark.parametrize(
    "nest",
    [
        lambda d: {"state_dict": d, "epoch": 3},
        lambda d: {"model": d, "optimizer": {"lr": 0.1}},
        lambda d: {"model": {"state_dict": d}},
    ],
)
def test_checkpoints_of_training_scripts(write, trained, nest):
    torch.save(nest(trained.state_dict()), "net.pth")
    assert same(load(write(MODEL), weights="net.pth").model, trained)


def test_a_lightning_checkpoint(write, trained):
    state = {f"net.{name}": value for name, value in trained.state_dict().items()}
    torch.save(
        {"state_dict": state, "pytorch-lightning_version": "2.5.0", "hyper_parameters": {"width": 4}}, "last.ckpt"
    )
    assert same(load(write(MODEL), weights="last.ckpt").model, trained)


def test_sharded_by_an_index(write, trained):
    state = trained.state_dict()
    names = list(state)
    shards = {"model-1.safetensors": names[:3], "model-2.safetensors": names[3:]}
    for shard, part in shards.items():
        save_safetensors({name: state[name] for name in part}, Path(shard))
    places = {name: shard for shard, part in shards.items() for name in part}
    Path("model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert same(load(write(MODEL), weights="model.safetensors.index.json").model, trained)
    places["0.weight"] = "../model-1.safetensors"
    Path("model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert "outside" in failing(write(MODEL), "model.safetensors.index.json").what


def test_a_misfit_is_told_in_names_and_shapes(write, trained):
    state = trained.state_dict()
    state["extra"] = torch.ones(1)
    del state["2.bias"]
    state["0.weight"] = torch.ones(5, 3)
    torch.save(state, "net.pt")
    error = failing(write(MODEL), "net.pt")
    assert "1 missing: 2.bias" in error.what
    assert "1 unexpected: extra" in error.what
    assert "0.weight (5x3, the model has 4x3)" in error.what
    assert "-a name=value" in error.hint


def test_tied_weights_may_be_stored_once(write):
    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
                self.head.weight = self.embed.weight
            def forward(self, x):
                return self.head(self.embed(x))
    """
    torch.save({"embed.weight": torch.ones(5, 3)}, "net.pt")
    assert bool((load(write(code), weights="net.pt").model.head.weight == 1).all())


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("pwned",))


def test_a_pickle_with_code_is_refused_and_not_run(write):
    file = write(MODEL)
    torch.save({"0.weight": Evil()}, "net.pt")
    with open("raw.pt", "wb") as stream:
        pickle.dump(Evil(), stream)
    for name in ("net.pt", "raw.pt"):
        error = failing(file, name)
        assert "wants to run code" in error.what, error.what
        assert "mkdir" in error.what or name == "raw.pt"
    assert not Path("pwned").exists()


def test_a_whole_pickled_model_is_refused_by_name(write, trained):
    torch.save(trained, "net.pt")
    error = failing(write(MODEL), "net.pt")
    assert "torch.nn.modules.container.Sequential" in error.what
    assert "state_dict" in error.rule


@pytest.mark.parametrize("size", [0, 7, 60, -40])
def test_truncated_files(write, trained, size):
    file = write(MODEL)
    torch.save(trained.state_dict(), "net.pt")
    save_safetensors(trained.state_dict(), Path("net.safetensors"))
    for name in ("net.pt", "net.safetensors"):
        Path(name).write_bytes(Path(name).read_bytes()[:size])
        assert name in failing(file, name).what


def test_a_safetensors_header_that_lies(tmp_path):
    for offsets, shape in (([0, 10**9], [4]), ([0, 8], [10**9]), ([8, 0], [2]), ([-4, 4], [2])):
        header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}).encode()
        path = tmp_path / "lie.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 16)
        with pytest.raises(TargetError):
            read_safetensors(path, TargetError)


def test_missing_and_empty_of_weights(write, trained):
    file = write(MODEL)
    torch.save(trained.state_dict(), "net_best.pt")
    assert "net_best.pt" in failing(file, "net_bets.pt").rule
    torch.save({"epoch": 3}, "net.pt")
    assert "no table of tensors" in failing(file, "net.pt").what


def test_loading_weights_leaves_the_seeding_alone(write, trained):
    """Data drawn after loading must not depend on whether a checkpoint was read."""
    file = write(MODEL + "def batch(): return torch.randn(4, 3)\n")
    torch.save(trained.state_dict(), "net.pt")
    assert torch.equal(next(iter(load(file).batches)), next(iter(load(file, weights="net.pt").batches)))


def test_what_is_no_checkpoint_is_told_so(write, tmp_path):
    (tmp_path / "notes.pt").write_text("hello world\n")
    error = failing(write(MODEL), "notes.pt")
    assert "is not a checkpoint" in error.what


def test_a_truncated_checkpoint_is_told_without_torchs_own_words(write, trained, tmp_path):
    torch.save(trained.state_dict(), tmp_path / "whole.pt")
    data = (tmp_path / "whole.pt").read_bytes()
    (tmp_path / "half.pt").write_bytes(data[: len(data) // 2])
    error = failing(write(MODEL), "half.pt")
    assert "damaged or truncated" in error.what
    assert "miniz" not in str(error)


def test_code_in_a_bare_pickle_is_named_and_not_run(write, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/pwned",)

    for protocol in (2, 4):
        (tmp_path / "bare.pt").write_bytes(pickle.dumps({"a": Evil()}, protocol))
        assert "system" in failing(write(MODEL), "bare.pt").what
    assert not (tmp_path / "pwned").exists()


def test_an_archive_that_unpacks_to_far_more_is_not_opened(write, tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(20_000_000))
    assert "times its own size" in failing(write(MODEL), "bomb.pt").what


def test_a_lost_shard_is_named_with_what_it_holds(write, trained, tmp_path):
    table = trained.state_dict()
    first = {name: table[name] for name in list(table)[:3]}
    save_safetensors(first, tmp_path / "one.safetensors")
    places = {name: "one.safetensors" if name in first else "two.safetensors" for name in table}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    error = failing(write(MODEL), "model.safetensors.index.json")
    assert "1 of the 2 shards" in error.what
    assert "two.safetensors" in error.what
    assert "2.weight" in error.rule or "more" in error.rule


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"dtype": "Q9", "shape": [4, 3], "data_offsets": [0, 48]}, "unknown type 'Q9'"),
        ({"dtype": "F32", "shape": [-4, -3], "data_offsets": [0, 48]}, "damaged"),
        ({"dtype": "F32", "shape": [4, 3], "data_offsets": ["a", "b"]}, "malformed"),
        ({"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 1 << 62]}, "damaged"),
    ],
)
def test_headers_that_lie(write, tmp_path, entry, words):
    header = json.dumps({"0.weight": entry}).encode()
    (tmp_path / "lie.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(48))
    assert words in failing(write(MODEL), "lie.safetensors").what
