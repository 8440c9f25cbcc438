"""What the table of results adds up to: the lines after a run, and docs/zoo.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from zoo.catalog import FOLDER, Entry
from zoo.table import Row

PAGE = FOLDER.parent / "docs" / "zoo.md"
LIBRARIES = ("torchvision", "timm", "hf")
COLUMNS = ("architectures", "run", "unchanged gradients", "counted by hand", "additions expected", "found", "missed",
           "false", "false alarms")  # fmt: skip
Known = dict[str, dict[str, str]]
"""For each target, the kinds of fault that are known, and why they are left."""


def lines(rows: list[Row]) -> str:
    """Return the summary printed at the end of a run."""
    total = _Tally(rows)
    return (
        f"{total.run} of {total.rows} inspected without configuration; "
        f"{total.unchanged} of {total.run} with unchanged gradients; "
        f"{total.expected - total.missed} of {total.expected} residual additions counted by hand found "
        f"in {total.counted} architectures, {total.extra} false; "
        f"{'; '.join(_agreement(rows))}; "
        f"{total.alarms} with a false alarm"
    )


def page(rows: list[Row], catalogue: Iterable[Entry], known: Known) -> str:
    """Return docs/zoo.md."""
    arguments = {entry.target: entry.arguments for entry in catalogue}
    num_waiting = len(arguments.keys() - {row.target for row in rows})
    table = [_line(name, _Tally([row for row in rows if row.target.startswith(f"{name}:")])) for name in LIBRARIES]
    stopped = [f"| `{row.target}` | {_cell([row.runs])} |" for row in rows if not row.ran]
    wrong = [
        f"| `{row.target}` | {_cell(row.faults().values())} | {_cell(known.get(row.target, {}).values())} |"
        for row in rows
        if row.ran and row.faults()
    ]
    num_given = sum(bool(arguments.get(row.target)) for row in rows)
    return "\n".join(
        [
            "# The zoo",
            "",
            "Real architectures of torchvision, timm and transformers, each inspected by its target string alone, with",
            "random weights and made-up inputs. `make zoo ZOO_ARGS=--write` makes this page and",
            "[zoo/results.csv](../zoo/results.csv), one row per architecture. The counts to compare with are read from",
            "the libraries' sources; [zoo/catalog.csv](../zoo/catalog.csv) names file and expression for each.",
            "Where it names them too, kinds and placements (as in [residual-additions.md](residual-additions.md)) are",
            f"compared as well: {'; '.join(_agreement(rows))}.",
            f"Of {len(rows)} architectures, {num_given} are given a factory argument, for fewer blocks or a size.",
            *([f"The catalogue lists {num_waiting} more, which `--new --write` adds."] if num_waiting else []),
            f"Measured on {_commits(rows)}; the last column of results.csv says which row is from which.",
            "",
            f"| library | {' | '.join(COLUMNS)} |",
            f"|---|{'--:|' * len(COLUMNS)}",
            *table,
            _line("all", _Tally(rows)),
            "",
            "*Unchanged*: loss, every gradient and every buffer of a watched step are bitwise those of a bare step.",
            "*False alarm*: an error-level finding on an architecture at its standard initialisation, as "
            "`gradscope inspect` raises it.",
            "",
            *_section("Not as it should be", "| target | what | why |", "|---|---|---|", wrong),
            *_section("Does not run", "| target | reason |", "|---|---|", stopped),
        ]
    )


def _agreement(rows: list[Row]) -> list[str]:
    """Say of how many architectures kinds and placements were read by hand, and how many additions agree."""
    said = []
    for column, noun in (("kinds", "kind"), ("placements", "placement")):
        pairs = [row.split()[column] for row in rows if row.ran and column in row.split()]
        agree = sum((seen & read).total() for seen, read in pairs)
        labelled = sum(read.total() for _, read in pairs)
        said.append(f"{agree} of {labelled} additions in {len(pairs)} architectures have the {noun} that was read")
    return said


def _commits(rows: list[Row]) -> str:
    """Return the commits that rows were measured on, with their numbers of rows."""
    numbers = Counter(row.commit or "commits before they were noted" for row in rows)
    return ", ".join(f"{commit} ({number} row{'s' * (number > 1)})" for commit, number in numbers.most_common())


def write_page(rows: list[Row], catalogue: Iterable[Entry], known: Known, path: Path = PAGE) -> None:
    """Write docs/zoo.md."""
    path.write_text(page(sorted(rows, key=lambda row: row.target), catalogue, known))


class _Tally:
    """Sums over rows."""

    def __init__(self, rows: list[Row]) -> None:
        run = [row for row in rows if row.ran]
        counted = [(int(row.found), int(row.expected)) for row in run if row.expected]
        self.rows = len(rows)
        self.run = len(run)
        self.unchanged = sum(row.unchanged == "yes" for row in run)
        self.counted = len(counted)
        self.expected = sum(expected for _, expected in counted)
        self.missed = sum(max(0, expected - found) for found, expected in counted)
        self.extra = sum(max(0, found - expected) for found, expected in counted)
        self.alarms = sum(bool(row.errors) for row in run)


def _line(name: str, tally: _Tally) -> str:
    cells = (tally.rows, tally.run, tally.unchanged, tally.counted, tally.expected, tally.expected - tally.missed,
             tally.missed, tally.extra, tally.alarms)  # fmt: skip
    return f"| {name} | {' | '.join(str(cell) for cell in cells)} |"


def _section(title: str, head: str, rule: str, body: list[str]) -> list[str]:
    return [f"## {title}", "", head, rule, *body, ""] if body else []


def _cell(texts: Iterable[str]) -> str:
    return "; ".join(texts).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
