import subprocess
import sys

import pytest

from gradscope.errors import TargetError
from gradscope.experiments import EXPERIMENTS, find


def test_the_list_loads_no_torch():
    code = "import sys, gradscope.experiments as e; e.find('residual'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_are_unique_and_answer_to_underscores():
    names = [experiment.name for experiment in EXPERIMENTS]
    assert len(names) == len(set(names))
    assert find("norm_axis").name == "norm-axis"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(TargetError, match="did you mean 'collapse'"):
        find("colapse")
