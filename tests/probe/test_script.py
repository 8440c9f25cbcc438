"""Training scripts, unmodified: what they print, how they end, and what is recorded of them."""

import multiprocessing
import zipfile

import pytest

from gradscope.errors import TargetError
from gradscope.probe.scripts.script import run_script
from tests.probe.scripting import SCRIPTS, bare, forked, python, watched

ODD = {
    "by_autograd_grad": {"net"}, "closure": {"net"}, "target_network": {"policy"}, "penalty": {"maker", "critic"},
    "sharpness": {"net"}, "keeps_itself": {"net"}, "torchrun": {"model"}, "modes": {"net"},
    "traced_copy": {"model"},
}  # fmt: skip
"""Scripts in `odd`, each with a loop of an unusual kind, and the models they train."""
MODELS = {
    "classifier": {"classifier"}, "char_lm": {"lm"}, "gan": {"net_g", "net_d"}, "reinforce": {"policy"},
    "contrastive": {"ModuleDict"}, "seq2seq": {"model"}, "amp": {"net"}, "accumulate": {"net"},
    "two_optimizers": {"tagger"}, "by_hand": {"net"},
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_printed_to_the_last_digit(name, tmp_path):
    plain = bare(f"{name}.py")
    assert plain.returncode == 0, plain.stderr
    done, recordings, outcome = watched(tmp_path, f"{name}.py", keep_going=True, num_steps=3)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    assert outcome == [False, False]
    assert set(recordings) == MODELS[name]
    for recording in recordings.values():
        assert recording.watched_steps == [0, 1, 2]
        assert all(norm is not None for norm in recording.tables["steps"]["grad_norm"])


@pytest.mark.parametrize("name", ODD)
def test_loops_of_an_unusual_kind(name, tmp_path):
    plain = bare(f"{name}.py", cwd=SCRIPTS / "odd")
    assert plain.returncode == 0, plain.stderr
    done, recordings, _ = watched(tmp_path, f"{name}.py", cwd=SCRIPTS / "odd", keep_going=True, num_steps=4)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    assert set(recordings) == ODD[name]
    for recording in recordings.values():
        assert recording.watched_steps == [0, 1, 2, 3]
        assert all(norm is not None for norm in recording.tables["parameter_stats"]["grad_norm"])


def test_steps_of_a_closure_are_those_of_its_optimizer(tmp_path):
    done, recordings, outcome = watched(tmp_path, "closure.py", cwd=SCRIPTS / "odd", num_steps=4)
    assert outcome == [True, False]
    printed = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert recordings["net"].tables["steps"]["loss"] == printed
    assert len(printed) == 4


def test_thread_of_the_script_is_stopped_without_a_word(tmp_path):
    done, recordings, outcome = watched(tmp_path, "modes.py", cwd=SCRIPTS / "odd", num_steps=4)
    assert outcome == [True, False]
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1] == "torch.float64 cpu"
    assert recordings["net"].watched_steps == [0, 1, 2, 3]


def test_gradients_that_are_returned_are_recorded(tmp_path):
    done, recordings, _ = watched(tmp_path, "by_autograd_grad.py", cwd=SCRIPTS / "odd", num_steps=4)
    printed = [float(line.split()[2]) for line in done.stdout.splitlines()]
    assert recordings["net"].tables["steps"]["grad_norm"] == pytest.approx(printed, rel=1e-5)


def test_stops_when_the_next_step_begins(tmp_path):
    done, _, outcome = watched(tmp_path, "keeps_itself.py", cwd=SCRIPTS / "odd", num_steps=4)
    assert outcome == [True, False]
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("name", ["classifier", "gan", "accumulate", "two_optimizers", "amp"])
def test_script_is_stopped_after_the_steps_wanted(name, tmp_path):
    plain = bare(f"{name}.py").stdout
    done, recordings, outcome = watched(tmp_path, f"{name}.py", num_steps=4)
    assert done.returncode == 0, done.stderr
    assert outcome == [True, False]
    assert plain.startswith(done.stdout)
    assert 0 < len(done.stdout) < len(plain)
    assert "Traceback" not in done.stderr
    for recording in recordings.values():
        assert recording.watched_steps == [0, 1, 2, 3]


def test_printed_losses_are_the_recorded_ones(tmp_path):
    done, recordings, _ = watched(tmp_path, "seq2seq.py", num_steps=3)
    printed = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert recordings["model"].tables["steps"]["loss"] == printed
    assert recordings["model"].num_rows("sites") == 2 * 2 + 2 * 3
    assert recordings["model"].provenance.optimizer == "adam"


def test_norms_before_clipping_and_without_the_loss_scale(tmp_path):
    done, recordings, _ = watched(tmp_path, "amp.py", num_steps=3)
    printed = [float(line.split()[2]) for line in done.stdout.splitlines()]
    assert recordings["net"].tables["steps"]["grad_norm"] == pytest.approx(printed, rel=1e-5)
    assert recordings["net"].tables["steps"]["loss_scale"] == [1024.0] * 3


def test_every_second_step(tmp_path):
    _, recordings, _ = watched(tmp_path, "char_lm.py", keep_going=True, every=5)
    assert recordings["lm"].watched_steps == [0, 5, 10]


def test_worker_processes_and_arguments(tmp_path):
    argv = ["classifier.py", "--epochs", "1", "--workers", "1"]
    done, recordings, _ = watched(tmp_path, *argv, num_steps=6, keep_going=True)
    assert done.stdout == bare(*argv).stdout
    assert recordings["classifier"].provenance.target == "classifier.py --epochs 1 --workers 1"


def write(folder, name, text):
    (folder / name).write_text(text)
    return name


BODY = """
import sys, torch
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    optimizer.zero_grad(); net(torch.ones(3, 2)).square().mean().backward(); optimizer.step()
"""


@pytest.mark.parametrize(
    ("tail", "code", "words"),
    [
        ("step(); sys.exit(3)", 3, ""),
        ("step(); sys.exit('no more')", 1, "no more"),
        ("step(); raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("step(); raise KeyboardInterrupt", 130, ""),
        ("step()", 0, ""),
    ],
)
def test_ends_as_it_would_without_us(tmp_path, tail, code, words):
    name = write(tmp_path, "train.py", BODY + tail)
    done, recordings, outcome = watched(tmp_path, name, cwd=tmp_path)
    assert done.returncode == code
    assert words in done.stderr
    assert "gradscope" not in done.stderr
    assert recordings["net"].watched_steps == [0]
    assert recordings["net"].provenance.partial == (code in (1, 130) and "exit" not in tail)
    assert outcome == [False, code == 130]


def test_traceback_is_pythons_own(tmp_path):
    name = write(tmp_path, "train.py", BODY + "def f():\n    raise ValueError('wrong')\nf()\n")
    done, _, _ = watched(tmp_path, name, cwd=tmp_path)
    assert done.stderr == python(name, cwd=tmp_path).stderr


def test_sees_its_own_main_argv_path_folder_and_stdin(tmp_path):
    text = """
import os, sys
from helper import x
print(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), input(), x)
"""
    write(tmp_path, "helper.py", "x = 5")
    name = write(tmp_path, "train.py", text)
    done, recordings, _ = watched(tmp_path, name, "-a", "b", cwd=tmp_path, stdin="line\n")
    assert done.stdout == python(name, "-a", "b", cwd=tmp_path, stdin="line\n").stdout
    assert done.returncode == 0
    assert recordings == {}


def test_module_by_name(tmp_path):
    (tmp_path / "pkg").mkdir()
    write(tmp_path / "pkg", "__init__.py", "")
    write(tmp_path / "pkg", "train.py", BODY + "step(); print(sys.argv[1:], __name__, __package__)")
    done, recordings, _ = watched(tmp_path, "-m", "pkg.train", "x", cwd=tmp_path)
    assert done.stdout == "['x'] __main__ pkg\n"
    assert recordings["net"].watched_steps == [0]


def test_script_that_catches_everything_and_sets_global_hooks(tmp_path):
    catching = """
from torch.nn.modules.module import register_module_forward_hook
seen = []
register_module_forward_hook(lambda m, a, o: seen.append(type(m).__name__))
try:
    while True:
        step()
except:
    print("caught", len(seen))
print("on")
"""
    name = write(tmp_path, "train.py", BODY + catching)
    done, recordings, outcome = watched(tmp_path, name, num_steps=3, cwd=tmp_path)
    assert done.stdout == "caught 3\non\n"
    assert outcome == [True, False]
    assert recordings["net"].watched_steps == [0, 1, 2]


def test_compiled_model_runs_eagerly_and_confesses(tmp_path):
    compiled = BODY.replace("torch.nn.Linear(2, 1)", "torch.compile(torch.nn.Linear(2, 1), backend='eager')")
    name = write(tmp_path, "train.py", compiled + "step(); step(); print('done')")
    done, recordings, _ = watched(tmp_path, name, num_steps=1, keep_going=True, cwd=tmp_path)
    assert done.stdout == "done\n"
    assert any("torch.compile" in why for why in recordings["net"].tables["confessions"]["why"])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["none.py"], "none.py"),
        ([], "no script"),
        (["-m"], "no script"),
        (["-m", "no_such_package.train"], "no module 'no_such_package.train'"),
        (["-m", "bare"], "without a __main__"),
        (["bare"], "no __main__.py in 'bare'"),
        (["weights.pt"], "not a Python script"),
    ],
)
def test_nothing_to_run(argv, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare").mkdir()
    write(tmp_path / "bare", "__init__.py", "")
    (tmp_path / "weights.pt").write_bytes(b"PK\0\0")
    with pytest.raises(TargetError, match=words):
        run_script(argv)


def test_archive_that_python_can_run(tmp_path):
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", BODY + "step(); print(sys.argv)")
    done, recordings, _ = watched(tmp_path, "app.pyz", "x", cwd=tmp_path)
    assert done.stdout == "['app.pyz', 'x']\n"
    assert recordings["net"].watched_steps == [0]


def test_tells_that_other_processes_are_not_watched(tmp_path):
    text = BODY + """
import multiprocessing
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=step)
    process.start()
    process.join()
    print(process.exitcode)
"""
    name = write(tmp_path, "train.py", text)
    done = forked(lambda: print(run_script([name]).seen) or 0, tmp_path)
    assert done.stdout.startswith("0\nit trains in processes of its own")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print(1)", "no nn.Module ran"),
        (BODY + "with torch.no_grad(): net(torch.ones(1, 2))", "none that has parameters to train"),
        (BODY + "net(torch.ones(1, 2))", "`net` ran, but no backward"),
    ],
)
def test_tells_what_was_seen_where_nothing_was_trained(tmp_path, monkeypatch, text, words):
    monkeypatch.chdir(tmp_path)
    next(multiprocessing.process._process_counter)  # as if a process had been started before the script
    assert words in run_script([write(tmp_path, "train.py", text)]).seen
