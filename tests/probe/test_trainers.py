"""Training loops of Lightning, transformers and Accelerate: what they print, where they stop, what is recorded.

They run where these libraries are installed, as in the zoo's environment; there, with GRADSCOPE_TRAINERS=required, none
may be skipped.
"""

import importlib.util
import os

import pytest

from tests.probe.scripting import bare, watched

LIBRARIES = {
    "lightning_loop": ["pytorch_lightning"], "lightning_whole": ["lightning"],
    "hf_trainer": ["transformers", "accelerate"], "accelerate_loop": ["accelerate"],
}  # fmt: skip
MODELS = {
    "lightning_loop": {"AutoEncoder"}, "lightning_whole": {"model"}, "hf_trainer": {"model"}, "accelerate_loop": {"net"}
}  # fmt: skip


@pytest.fixture(autouse=True)
def _libraries(request):
    for library in LIBRARIES[request.getfixturevalue("name")]:
        if importlib.util.find_spec(library) is None:
            assert os.environ.get("GRADSCOPE_TRAINERS") != "required", f"{library} is not installed"
            pytest.skip(f"{library} is not installed")


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_printed_to_the_last_digit_and_steps_are_stopped(name, tmp_path):
    plain = bare(f"{name}.py")
    assert plain.returncode == 0, plain.stderr
    (tmp_path / "on").mkdir()
    done, recordings, outcome = watched(tmp_path / "on", f"{name}.py", keep_going=True, num_steps=3)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    assert outcome == [False, False]
    check(recordings, name, [0, 1, 2])

    (tmp_path / "stopped").mkdir()
    done, recordings, outcome = watched(tmp_path / "stopped", f"{name}.py", num_steps=4)
    assert done.returncode == 0, done.stderr
    assert outcome == [True, False]
    assert plain.stdout.startswith(done.stdout)
    assert len(done.stdout) < len(plain.stdout)
    assert "Traceback" not in done.stderr
    check(recordings, name, [0, 1, 2, 3])


def check(recordings, name, steps):
    assert set(recordings) == MODELS[name]
    for recording in recordings.values():
        assert recording.watched_steps == steps
        assert all(norm is not None for norm in recording.tables["parameter_stats"]["grad_norm"])
