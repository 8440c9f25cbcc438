"""The catalogue: arguments, counts with their sources, no architecture twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.catalog import entries

HEAD = "target,family,arguments,expected,source\n"


def test_reads_arguments_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "catalog.csv"
    path.write_text(HEAD + "timm:a,vit,depth=4 name='x',8,vit.py Block.forward: 2 x 4\nhf:b,b,,,\n")
    first, second = entries(path)
    assert first.arguments == {"depth": 4, "name": "x"}
    assert (first.expected, first.library) == (8, "timm")
    assert (second.expected, second.library) == (None, "hf")


def test_a_count_without_its_source_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.csv"
    path.write_text(HEAD + "timm:a,vit,,8,\n")
    with pytest.raises(ValueError, match="timm:a: a count of 8 without the file"):
        entries(path)


def test_a_target_listed_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.csv"
    path.write_text(HEAD + "timm:a,vit,,,\n" * 2)
    with pytest.raises(ValueError, match="timm:a more than once"):
        entries(path)


def test_the_catalogue_itself_is_sound() -> None:
    listed = entries()
    assert {entry.library for entry in listed} == {"torchvision", "timm", "hf"}
    counted = [entry for entry in listed if entry.expected is not None]
    assert len(counted) >= 100
    assert all(".py" in entry.source for entry in counted)
