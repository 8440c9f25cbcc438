import json
import math

import pytest

from gradscope.experiments.result import Check, Claim, ExperimentResult, table


def check(value: float, low: float | None = None, high: float | None = None) -> Check:
    return Check("here", "number", value, low=low, high=high)


@pytest.mark.parametrize(
    ("value", "low", "high", "holds"),
    [
        (2.0, 1.0, None, True),
        (1.0, 1.0, None, True),
        (0.9, 1.0, None, False),
        (2.0, None, 1.0, False),
        (1.5, 1.0, 2.0, True),
        (math.inf, 1.0, None, True),
        (math.inf, None, 1.0, False),
        (math.nan, 1.0, None, False),
        (math.nan, None, 1.0, False),
    ],
)
def test_a_check_holds_inside_its_range(value, low, high, holds):
    assert check(value, low, high).holds is holds


@pytest.mark.parametrize(
    ("values", "verdict"), [((2.0, 3.0), "holds"), ((2.0, 0.0), "depends"), ((0.0, -1.0), "does not hold")]
)
def test_the_verdict_follows_from_the_checks(values, verdict):
    claim = Claim("text", "source", tuple(check(value, low=1.0) for value in values))
    assert claim.verdict == verdict


def test_criteria_in_words():
    assert check(0, low=1).criterion == "at least 1"
    assert check(0, high=0.001).criterion == "at most 0.001"
    assert check(0, low=4, high=6).criterion == "from 4 to 6"


def test_a_result_is_json_with_non_finite_numbers_as_words():
    claims = (Claim("a", "b", (check(math.inf, low=1), check(math.nan, low=1))),)
    tables = (table("t", ("x", "y"), [(1, math.nan), ("z", None)]),)
    result = ExperimentResult("n", "t", tables, claims)
    text = json.dumps(result.to_object(), allow_nan=False)
    back = json.loads(text)
    assert back["claims"][0]["verdict"] == "depends"
    assert [c["value"] for c in back["claims"][0]["checks"]] == ["inf", "nan"]
    assert back["tables"][0]["rows"] == [[1, "nan"], ["z", None]]


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="does not have 2 cells"):
        table("t", ("x", "y"), [(1,)])
