"""The page that a run of the zoo writes."""

from __future__ import annotations

from dataclasses import replace

from zoo.catalog import Entry
from zoo.summary import lines, page
from zoo.table import Row

RIGHT = Row("timm:a", "yes", "yes", "8", "8", "identity:8", "will-train", "", "", "quick")
SHORT = replace(RIGHT, target="timm:b", found="5", errors="GS107")
OVER = replace(RIGHT, target="hf:c", found="9", unchanged="no")
STOPPED = Row("torchvision:d", "ValueError: a | b")
ROWS = [RIGHT, SHORT, OVER, STOPPED]


def test_the_sums_are_those_of_the_rows() -> None:
    said = lines(ROWS)
    assert "3 of 4 inspected" in said
    assert "2 of 3 with unchanged gradients" in said
    assert "21 of 24 residual additions counted by hand found in 3 architectures, 1 false" in said
    assert "1 with a false alarm" in said


def test_the_agreement_with_what_was_read_is_counted_by_addition() -> None:
    read = replace(RIGHT, expected_kinds="identity:8", placements="pre:7 none:1", expected_placements="pre:8")
    other = replace(SHORT, kinds="concat:1 gated:2 identity:3", expected_kinds="gated:4 identity:4")
    for said in (lines([read, other, OVER, STOPPED]), page([read, other, OVER, STOPPED], [], {})):
        assert "13 of 16 additions in 2 architectures have the kind that was read" in said
        assert "7 of 8 additions in 1 architectures have the placement that was read" in said


def test_the_page_lists_what_is_wrong_with_its_reason_and_what_does_not_run() -> None:
    catalogue = [Entry(row.target, "f", {"depth": 2} if row is RIGHT else {}, None, "") for row in ROWS]
    text = page(ROWS, catalogue, {"timm:b": {"found": "a fused kernel"}})
    assert "| timm | 2 | 2 | 2 | 2 | 16 | 13 | 3 | 0 | 1 |" in text
    assert "| `timm:b` | 5 residual additions instead of 8; false alarm GS107 | a fused kernel |" in text
    assert r"| `torchvision:d` | ValueError: a \| b |" in text
    assert "1 are given a factory argument" in text
    assert "`timm:a`" not in text


def test_a_page_without_faults_has_no_empty_section() -> None:
    assert "## " not in page([RIGHT], [], {})
