import subprocess
import sys

import pytest

from gradscope.errors import ConfigError
from gradscope.rules import RULES, diagnose, rule
from gradscope.rules.registry import levels_of, register
from tests.support.recordings import build, stack


def test_a_second_rule_of_the_same_code_is_refused():
    with pytest.raises(ValueError, match="registered twice: GS101"):
        register([*RULES, RULES[0]])


def test_rules_come_in_order_of_code():
    assert [r.code for r in RULES] == sorted(r.code for r in RULES)


def test_a_rule_is_found_by_code_or_name_in_any_case():
    assert rule("gs101") is rule("vanishing-with-depth") is RULES[0]


def test_an_unknown_rule_names_the_nearest_one():
    for wrong, code in (("GS1O1", "GS101"), ("vanishing", "GS101"), ("GS6O4", "GS604"), ("no-skip", "GS205")):
        with pytest.raises(ConfigError, match=wrong) as error:
            rule(wrong)
        assert error.value.hint == f"gradscope explain {code}"


@pytest.mark.parametrize("key", ["GS101.decade", "GS999.decades", "decades", "GS101"])
def test_an_unknown_threshold_names_the_nearest_one(key):
    with pytest.raises(ConfigError, match="no threshold"):
        diagnose(stack(4), {key: 3.0})


@pytest.mark.parametrize("value", ["3", None, True, float("nan")])
def test_a_threshold_is_a_number(value):
    with pytest.raises(ConfigError, match="not a number"):
        levels_of({"GS101.decades": value})


def test_overrides_leave_the_defaults_alone():
    assert levels_of({"gs101.decades": 9})["GS101"]["decades"] == 9.0
    assert levels_of(None)["GS101"]["decades"] == rule("GS101").defaults["decades"]


@pytest.mark.parametrize("known", RULES, ids=lambda r: r.code)
def test_every_rule_is_documented_under_the_fixed_headings(known):
    headings = [heading for heading, text in known.doc.sections() if text]
    assert headings == [
        "What it measures", "Why it matters", "Known false positives", "Example", "What to do", "References",
    ]
    assert known.summary.endswith(".")
    for threshold in known.thresholds:
        assert threshold.unit
        assert threshold.source
        assert threshold.why.endswith(".")


def test_an_empty_recording_cannot_be_judged():
    diagnosis = diagnose(build({}))
    assert diagnosis.verdict == "cannot-say"
    assert diagnosis.reason
    assert diagnosis.metrics["decades"] is None


def test_judging_loads_neither_torch_nor_pandas_nor_numpy():
    script = (
        "import sys\nfrom tests.support.recordings import stack\nfrom gradscope.rules import diagnose\n"
        "diagnose(stack(4))\nprint([m for m in ('torch', 'pandas', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
