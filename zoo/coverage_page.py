"""docs/coverage.md: what zoo/coverage.csv adds up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from zoo.catalog import FOLDER
from zoo.coverage_table import OUTCOMES, STEPS, Row

PAGE = FOLDER.parent / "docs" / "coverage.md"
WHAT = {
    "torchvision": "torchvision: every builder but the quantized",
    "timm": "timm: a model of every file",
    "hf": "transformers: every model type",
}


def write(rows: Mapping[str, Row], listed: Mapping[str, int], path: Path = PAGE) -> None:
    """Write the page."""
    path.write_text(page(rows, listed))


def page(rows: Mapping[str, Row], listed: Mapping[str, int]) -> str:
    """Return docs/coverage.md.

    Args:
        rows: The table, by target.
        listed: How many names each library lists.
    """
    by_library = {name: [row for t, row in rows.items() if t.startswith(f"{name}:")] for name in WHAT}
    table = [_line(WHAT[name], listed[name], found) for name, found in by_library.items()]
    failed = [row for found in by_library.values() for row in found if row["outcome"] != STEPS]
    commits = Counter(row["commit"] or "commits before they were noted" for row in rows.values())
    return "\n".join(
        [
            "# Coverage",
            "",
            "What comes of a target string alone, with no input, loss or setting given: the model is built at a",
            "small size, inputs and a loss are found, and one forward and backward is taken on them. *Steps* means",
            "that the loss and every gradient are finite; *all of it*, that every parameter that trains has a",
            "gradient, among the models of which that was noted. What was tried is the zoo's architectures and others",
            "in random order; what a watched step shows of the zoo's is on [its page](zoo.md). *Inference only* is a",
            "model whose forward turns gradients off. *A part steps* where no inputs were found for the whole; what",
            "has no forward, or is only ever a part of others, is taken by its part and counts as that does.",
            "",
            f"| library | names | tried | {' | '.join([STEPS, 'all of it', *OUTCOMES[1:]])} |",
            f"|---|{'--:|' * (len(OUTCOMES) + 3)}",
            *table,
            "",
            "`python -m zoo.coverage hf --all` tries the names that [zoo/coverage.csv](../zoo/coverage.csv) does not",
            "have yet, adds a row for each, and writes this page; `torchvision --all` and `timm --all` do the same.",
            "`hf --failed` tries once more what did not step.",
            f"Rows are from {', '.join(f'{name} ({number})' for name, number in commits.most_common())}.",
            "",
            "## What does not step",
            "",
            "| target | what came of it | detail |",
            "|---|---|---|",
            *(f"| `{row['target']}` | {row['outcome']} | {_cell(row['detail'])} |" for row in failed),
            "",
        ]
    )


def _line(what: str, num_names: int, rows: list[Row]) -> str:
    counts = Counter(row["outcome"] for row in rows)
    idle = [row["idle"] for row in rows if row["outcome"] == STEPS and row["idle"]]
    return f"| {what} | {num_names} | {len(rows)} | {counts[STEPS]} | {idle.count('0')} of {len(idle)} | " + " | ".join(
        str(counts[outcome]) for outcome in OUTCOMES[1:]
    ) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
