import os
from pathlib import Path

import pytest

from tests.rules.cases_table import cases, judge

SHARED = os.environ.get("GRADSCOPE_SHARED")


@pytest.mark.skipif(SHARED is None, reason="GRADSCOPE_SHARED does not point to the models of known truth")
@pytest.mark.parametrize("path", cases(Path(SHARED or "."), []), ids=lambda path: path.stem)
def test_a_model_of_known_truth_gets_the_judgement_it_deserves(path):
    assert judge(path).wrong == ""
