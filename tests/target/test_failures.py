"""Every way in which a target cannot be loaded has one clear line."""

from __future__ import annotations

import os
import sys

import pytest

from gradscope.errors import GradscopeError, InputsError, LossError, ModelError, TargetError
from gradscope.target import list_targets, load

GOOD = "def model(): return nn.Linear(3, 2)\n"


def failing(target: str, kind: type[GradscopeError] = TargetError, **options) -> GradscopeError:
    with pytest.raises(kind) as caught:
        load(target, **options)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return caught.value


def test_no_such_file_names_the_nearest(write):
    write(GOOD)
    error = failing("user_modle.py")
    assert "no file 'user_modle.py'" in error.what
    assert "user_model.py" in error.rule


def test_a_directory(write, tmp_path):
    write(GOOD)
    error = failing(str(tmp_path))
    assert "is a directory" in error.what
    assert "user_model.py" in error.hint


def test_a_checkpoint_is_no_model(write, tmp_path):
    (tmp_path / "net.pt").write_bytes(b"x")
    assert "--weights net.pt" in failing("net.pt").hint


def test_syntax_error_in_the_file(write):
    error = failing(write("def model(:\n    pass\n"))
    assert "user_model.py:4: syntax error" in error.what
    assert error.line == 4


def test_syntax_error_in_a_file_it_imports(write):
    write("x = = 2\n", "broken_part.py", head="")
    error = failing(write("import broken_part\n" + GOOD))
    assert "broken_part.py:1: syntax error" in error.what


def test_a_missing_library_is_not_a_missing_target(write):
    error = failing(write("import no_such_library\n" + GOOD))
    assert "imports 'no_such_library', which is not installed" in error.what
    assert error.line == 4


def test_a_missing_module_is_a_missing_target(write):
    write(GOOD, "nets/__init__.py")
    write(GOOD, "nets/small.py")
    error = failing("nets.smal:model")
    assert "no module 'nets.smal'" in error.what
    assert "nets.small" in error.rule


def test_a_missing_attribute_names_the_nearest(write):
    error = failing(
        write("def build_modle(): return nn.Linear(1, 1)\ndef get_model(): return nn.Linear(1, 1)\n") + ":get_modl"
    )
    assert "has no 'get_modl'" in error.what
    assert "get_model" in error.rule


def test_an_unknown_scheme():
    assert "torchvision" in failing("torchvison:resnet18").rule


def test_nothing_to_choose_from(write):
    error = failing(write("def train(): pass\n"))
    assert "holds no model" in error.what


def test_not_a_module(write):
    assert "returned None" in failing(write("def model(): pass\n")).what
    assert "a dict" in failing(write("def model(): return {}\n", "other.py")).what
    assert "is a int" in failing(write("size = 3\n", "third.py") + ":size").what


def test_a_factory_that_raises_shows_the_users_own_line(write):
    error = failing(
        write("""
        def helper():
            return nn.Linear(-1, "two")
        def model():
            return helper()
    """)
    )
    assert "Building model() in user_model.py raised" in error.what
    assert "user_model.py:6: return nn.Linear" in error.rule
    assert error.line == 6


@pytest.mark.parametrize("call", ["sys.exit()", "sys.exit('bye')", "exit(3)", "raise SystemExit"])
def test_leaving_at_import(write, call):
    error = failing(write(f"import sys\n{call}\n" + GOOD))
    assert "called sys.exit" in error.what
    assert "__main__" in error.hint


def test_reading_stdin_at_import(write):
    error = failing(write("name = input('which model? ')\n" + GOOD))
    assert "standard input" in error.what


def test_the_main_guard_is_respected(write):
    load(write(GOOD + "if __name__ == '__main__':\n    raise SystemExit('ran the script')\n"))


def test_a_circular_import(write):
    write("from user_model import model\ndef part(): pass\n", "part_one.py", head="")
    error = failing(write("from part_one import part\n" + GOOD))
    assert "circular import" in error.what


def test_forward_that_raises(write):
    error = failing(
        write("""
        class Net(nn.Module):
            def forward(self, x):
                return x @ torch.ones(5, 5)
        def model(): return Net()
        def batch(): return torch.ones(2, 3)
    """),
        ModelError,
    )
    assert "user_model.py:7" in error.rule


def test_no_gradient_at_all(write):
    file = write("""
        class Net(nn.Module):
            def forward(self, x):
                return x * 2
        def model(): return Net()
        def batch(): return torch.ones(2, 3)
    """)
    assert "depends on a trainable parameter" in failing(file, LossError).what


def test_made_up_things_can_be_ruled_out(write):
    assert "--inputs" in failing(write(GOOD), InputsError, allow_synthetic=False).hint
    file = write(GOOD + "def batch(): return torch.ones(2, 3)\n", "with_batch.py")
    assert "--loss" in failing(file, LossError, allow_synthetic=False).hint


def test_a_batch_function_that_raises_or_returns_nothing(write):
    assert "returned None" in failing(write(GOOD + "def batch(): pass\n"), InputsError).what
    assert "ZeroDivisionError" in failing(write(GOOD + "def batch(): return 1 / 0\n", "other.py"), InputsError).what


def test_the_surroundings_are_as_before(write, capsys):
    before = list(sys.path), list(sys.argv), sys.stdin, os.getcwd(), dict(os.environ)
    file = write("import sys, os\nsys.path.append('/x')\nsys.argv.append('y')\nos.chdir('/')\nprint('hello')\n" + GOOD)
    load(file)
    assert (list(sys.path), list(sys.argv), sys.stdin, os.getcwd(), dict(os.environ)) == before
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hello" in captured.err


def test_two_folders_with_files_of_the_same_names(write, tmp_path):
    for folder, width in (("one", 3), ("two", 5)):
        write(f"WIDTH = {width}\n", f"{folder}/sizes.py", head="")
        write("from sizes import WIDTH\ndef model(): return nn.Linear(WIDTH, 2)\n", f"{folder}/net.py")
    assert load("one/net.py").model.in_features == 3
    assert load("two/net.py").model.in_features == 5
    assert load("one/net.py").model.in_features == 3


def test_relative_imports_in_a_package(write):
    write("", "kit/__init__.py", head="")
    write("WIDTH = 6\n", "kit/sizes.py", head="")
    file = write(
        "from .sizes import WIDTH\nfrom . import sizes\ndef model(): return nn.Linear(WIDTH, 2)\n", "kit/net.py"
    )
    assert load(file).model.in_features == 6
    assert load("kit.net:model").model.in_features == 6


def test_a_file_named_like_a_library(write):
    """A user's random.py must not take the place of Python's."""
    load(write("import random as r\ndef model(): return nn.Linear(3, 2)\n", "random.py"))
    import random

    assert hasattr(random, "getstate")


def test_starting_processes_at_import(write):
    code = "import multiprocessing as mp\nmp.get_context('spawn').Process(target=print).start()\n"
    error = failing(write(code + GOOD))
    assert "starts processes while being loaded" in error.what
    assert "__main__" in error.hint


def test_a_file_without_text_has_no_line(write, tmp_path):
    (tmp_path / "binary.py").write_bytes(b"\0\1\2")
    assert "None" not in str(failing("binary.py"))


def test_a_model_beyond_the_memory_is_told_in_few_words(write):
    error = failing(write("def model(): return nn.Linear(10**8, 10**8)\n"))
    assert "ran out of memory" in error.what
    assert "alloc_cpu" not in str(error)
    assert "-a name=value" in error.hint


def test_what_lies_beside_the_file_can_be_imported_while_it_runs(write):
    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 2)
            def forward(self, x):
                from lazy_sibling import act
                return act(self.lin(x))
        def model(): return Net()
        def batch(): return torch.ones(2, 3)
        def loss(output, batch):
            from lazy_other import mean
            return mean(output)
    """
    write("def act(x): return torch.tanh(x)\n", "inner/lazy_sibling.py")
    write("def mean(x): return x.mean()\n", "inner/lazy_other.py")
    subject = load(write(code, "inner/main.py"))
    path = list(sys.path)
    for name in ("lazy_sibling", "lazy_other"):  # loading tried a forward
        sys.modules.pop(name, None)
    (batch, *_) = subject.batches
    assert subject.loss(subject.call(batch), batch).requires_grad
    assert sys.path == path


def test_entry_points_are_listed_as_targets(write):
    code = "dependencies = ['torch']\ndef small(width=2): return nn.Linear(3, width)\ndef wide(width): pass\n"
    write(code, "repo/hubconf.py")
    listed = list_targets("repo/hubconf.py")
    assert [(item.target, item.kind, item.needs) for item in listed] == [
        ("hub:repo:small", "entry", ()), ("hub:repo:wide", "entry", ("width",))
    ]  # fmt: skip


def test_a_forward_that_returns_nothing_is_told_so(write):
    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(3, 2)
            def forward(self, x):
                self.lin(x)
        def model(): return Net()
    """
    error = failing(write(code), InputsError)
    assert "returned no tensor" in error.what
    assert "return" in error.hint
