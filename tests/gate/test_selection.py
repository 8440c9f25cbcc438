"""Which findings count."""

from __future__ import annotations

import pytest

from gradscope.errors import ConfigError
from gradscope.gate.selection import Selection, check_codes, split_codes
from tests.report.samples import finding


@pytest.mark.parametrize(
    ("select", "ignore", "kept"),
    [
        (("ALL",), (), True),
        (("GS1",), (), True),
        (("GS2",), (), False),
        (("ALL",), ("GS101",), False),
        (("GS1",), ("GS101",), False),
        (("GS101",), ("GS1",), True),
        (("GS101",), ("GS101",), False),
        (("GS101",), ("ALL",), True),
        ((), (), False),
    ],
)
def test_the_more_specific_prefix_wins(select: tuple[str, ...], ignore: tuple[str, ...], kept: bool) -> None:
    assert Selection(select, ignore).keeps(finding("GS101", "error", "layers.0")) is kept


def test_ignores_by_module_glob() -> None:
    selection = Selection(per_module_ignores={"encoder.*": ("GS3",), "*.norm": ("ALL",)})
    assert not selection.keeps(finding("GS303", "error", "encoder.layers.0"))
    assert selection.keeps(finding("GS101", "error", "encoder.layers.0"))
    assert selection.keeps(finding("GS303", "error", "decoder.layers.0"))
    assert not selection.keeps(finding("GS101", "error", "decoder.norm"))


def test_codes_come_in_commas_and_repeats() -> None:
    assert split_codes(["gs1,GS203 ", "", "all"]) == ("GS1", "GS203", "ALL")


def test_a_code_that_no_rule_has_is_refused_with_the_nearest() -> None:
    check_codes(["ALL", "GS1", "gs101"], ["GS101", "GS102"])
    with pytest.raises(ConfigError, match=r"'GS110'.*Did you mean 'GS10"):
        check_codes(["GS110"], ["GS101", "GS102"])
