"""The catalogue: arguments, counts with their sources, no architecture twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.catalog import WORDS, counts, entries

HEAD = "target,family,arguments,expected,source,kinds,placements\n"


def test_reads_arguments_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "catalog.csv"
    read = "8,vit.py Block.forward: 2 x 4,identity:7 scaled:1,pre:8"
    path.write_text(HEAD + f"timm:a,vit,depth=4 name='x',{read}\nhf:b,b,,,,,\n")
    first, second = entries(path)
    assert first.arguments == {"depth": 4, "name": "x"}
    assert (first.expected, first.library) == (8, "timm")
    assert (first.kinds, first.placements) == ("identity:7 scaled:1", "pre:8")
    assert (second.expected, second.library) == (None, "hf")
    assert (second.kinds, second.placements) == ("", "")


@pytest.mark.parametrize(
    ("cells", "column"),
    [
        ("identity:7,", "kinds"),
        ("identity:7 scaled:2,", "kinds"),
        ("identity:7 concat:1,", "kinds"),
        (",pre:7", "placements"),
        (",pre:7 before:1", "placements"),
    ],
)
def test_what_splits_a_count_must_add_up_to_it_in_known_words(tmp_path: Path, cells: str, column: str) -> None:
    path = tmp_path / "catalog.csv"
    path.write_text(HEAD + f"timm:a,vit,,8,vit.py,{cells}\n")
    with pytest.raises(ValueError, match=f"timm:a: {column} .* is no sum of .* to 8"):
        entries(path)


def test_kinds_without_a_count_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.csv"
    path.write_text(HEAD + "timm:a,vit,,,vit.py,identity:8,\n")
    with pytest.raises(ValueError, match="to None"):
        entries(path)


def test_a_count_without_its_source_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.csv"
    path.write_text(HEAD + "timm:a,vit,,8,,,\n")
    with pytest.raises(ValueError, match="timm:a: a count of 8 without the file"):
        entries(path)


def test_a_target_listed_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.csv"
    path.write_text(HEAD + "timm:a,vit,,,,,\n" * 2)
    with pytest.raises(ValueError, match="timm:a more than once"):
        entries(path)


def test_the_catalogue_itself_is_sound() -> None:
    listed = entries()
    assert {entry.library for entry in listed} == {"torchvision", "timm", "hf"}
    counted = [entry for entry in listed if entry.expected is not None]
    assert len(counted) >= 100
    assert all(".py" in entry.source for entry in counted)
    labelled = [entry for entry in listed if entry.kinds]
    assert len(labelled) >= 150
    assert {word for entry in labelled for word in counts(entry.kinds)} == set(WORDS["kinds"])
    assert {word for entry in listed for word in counts(entry.placements)} == set(WORDS["placements"])
