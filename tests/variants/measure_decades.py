"""Measure D of every built-in model at 10, 24 and 48 blocks and set it beside its expected range.

`make decades` (``python -m tests.variants.measure_decades``) writes docs/variants/decades.csv and decades.md; with the
names of variants it measures only those and prints them. All of them take about a quarter of an hour on one core.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gradscope import variants
from gradscope.target.subject import Subject
from gradscope.variants import VARIANTS, Variant
from gradscope.variants.expected import EXPECTED_DEPTHS, SHARE, Expected
from gradscope.variants.expected_networks import RESIDUAL_NETWORKS, RESIDUAL_SPREAD, THROUGH_TIME
from gradscope.variants.families import BUILDERS
from tests.variants.decade_settings import settings_lines
from tests.variants.gradients import end_gradients, time_gradients

FOLDER = Path(__file__).parents[2] / "docs" / "variants"
SETTING: dict[str, Any] = {"tokens": 32, "batch": 16}
"""The reference table's: 32 tokens. Sequence length shifts most wirings by some hundredths of a decade."""
SEEDS = 4
RESNET_SOURCE = "reference implementation, a quarter of the width, 32 x 32 images"


@dataclass(frozen=True)
class Cell:
    """One network of the table: what to build, and between which numbers its D is expected."""

    variant: str
    arguments: dict[str, Any]
    blocks: int
    low: float | None
    high: float | None
    source: str

    @property
    def shown_arguments(self) -> str:
        hidden = ("layers", *SETTING)
        return " ".join(f"{key}={value}" for key, value in self.arguments.items() if key not in hidden).lower()


@dataclass(frozen=True)
class Row:
    """A measured cell; None where there is no gradient or no finite one in float32."""

    cell: Cell
    values: tuple[float | None, ...]

    @property
    def mean(self) -> float | None:
        known = [value for value in self.values if value is not None]
        return statistics.fmean(known) if len(known) == len(self.values) else None

    @property
    def deviation(self) -> float | None:
        return None if self.mean is None else statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def inside(self) -> bool | None:
        """Whether the mean lies in the range; None where nothing is expected. Nothing finite may be expected too."""
        if self.cell.low is None or self.cell.high is None:
            return self.mean is None if self.cell.source else None
        return self.mean is not None and self.cell.low <= self.mean <= self.cell.high

    def written(self) -> list[str]:
        def number(value: float | None) -> str:
            return "" if value is None else f"{value:.3f}"

        inside = "" if self.inside is None else "yes" if self.inside else "no"
        numbers = (self.mean, self.deviation, self.cell.low, self.cell.high)
        cell = self.cell
        fixed = [cell.variant, cell.shown_arguments, str(cell.blocks), str(len(self.values))]
        return [*fixed, *map(number, numbers), inside, cell.source]


COLUMNS = ("variant", "arguments", "blocks", "seeds", "D", "sd", "low", "high", "inside", "source of the range")


def cells(variant: Variant) -> Iterator[Cell]:
    """List what is measured of a variant: its own initial scheme, those with an expectation, and two common ones."""
    if variant.family == "resnet":
        yield from _resnet_cells(variant)
    elif variant.family == "recurrent":
        for place, tokens in enumerate(EXPECTED_DEPTHS):
            expected = THROUGH_TIME[variant.name]
            yield Cell(variant.name, {"tokens": tokens}, tokens, *_ends(expected, place), expected.source)
    else:
        setting = SETTING if variant.family == "transformer" else {}
        for init in inits(variant):
            expected_here = variant.expected.get(init)
            for place, blocks in enumerate(EXPECTED_DEPTHS):
                low, high = _ends(expected_here, place)
                source = "" if expected_here is None else expected_here.source
                yield Cell(variant.name, {"init": init, "layers": blocks, **setting}, blocks, low, high, source)


def _ends(expected: Expected | None, place: int) -> tuple[float | None, float | None]:
    found = None if expected is None else expected.range_at(place)
    return (None, None) if found is None else found


def _resnet_cells(variant: Variant) -> Iterator[Cell]:
    depth = variant.parts["depth"]
    for shortcut, value in zip((True, False), RESIDUAL_NETWORKS[depth], strict=True):
        half = RESIDUAL_SPREAD + SHARE * abs(value)
        yield Cell(variant.name, {"shortcut": shortcut}, depth, value - half, value + half, RESNET_SOURCE)


def inits(variant: Variant) -> list[str]:
    """Initial schemes to measure, the variant's own first."""
    own = str(variant.parts.get("init") or own_init(variant))
    common = ("pytorch", "xavier") if variant.family == "transformer" and variant.name not in ("ngpt", "fixup") else ()
    return list(dict.fromkeys((own, *variant.expected, *common)))


def own_init(variant: Variant) -> str:
    """The scheme of the family's plain model."""
    plan = BUILDERS[variant.family].plan
    return str(next(field.default for field in dataclasses.fields(plan) if field.name == "init"))


def measure(cell: Cell, seeds: int = SEEDS) -> Row:
    """Build and measure a cell from every seed; in float64 where float32 has no number for it."""
    values = []
    for seed in range(seeds):
        value = _decades(variants.subject(cell.variant, cell.arguments, seed), cell)
        if value is None and cell.low is not None:
            subject = variants.subject(cell.variant, cell.arguments, seed)
            subject.model.double()
            value = _decades(subject, cell)
        values.append(value)
    return Row(cell, tuple(values))


def _decades(subject: Subject, cell: Cell) -> float | None:
    ends = time_gradients(subject) if cell.variant in THROUGH_TIME else end_gradients(subject)
    start, end = (float(gradient.double().norm()) for gradient in ends)
    return math.log10(start / end) if start and end and math.isfinite(start) and math.isfinite(end) else None


def write(rows: list[Row]) -> None:
    """Write both files."""
    with (FOLDER / "decades.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row.written() for row in rows)
    judged = [row for row in rows if row.inside is not None]
    lines = [
        "# D of every built-in model",
        "",
        f"D = log10(|g_0| / |g_L|) before training at {', '.join(map(str, EXPECTED_DEPTHS))} blocks (steps in time for",
        f"recurrent cells), means over {SEEDS} seeds by plain autograd, beside the range in which it is expected and",
        f"how that is known. {sum(bool(row.inside) for row in judged)} of {len(judged)} lie inside.",
        "Transformers: width 64, 4 heads, 32 tokens, 16 sequences, positions of a tenth of the tokens' size.",
        "`make decades` writes this page and [decades.csv](decades.csv).",
        "",
        *settings_lines(),
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|---|",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row.written()) + " |" for row in rows]
    (FOLDER / "decades.md").write_text("\n".join([*lines, ""]))


def main() -> None:
    """Measure and print, and write the files when everything was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for variant in VARIANTS:
        if not options.names or variant.name in options.names:
            for cell in cells(variant):
                rows.append(measure(cell, options.seeds))
                print(",".join(rows[-1].written()[:9]), flush=True)
    if not options.names:
        write(rows)


if __name__ == "__main__":
    main()
