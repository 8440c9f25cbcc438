"""Write docs/articles-checked.md: every claim of the two articles with its verdict, then every experiment in full.

python -m benchmarks.articles_page (or `make articles`); --quick runs the short forms.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from gradscope.cli.experiment_page import experiment_markdown
from gradscope.experiments import EXPERIMENTS, ExperimentResult, run
from gradscope.experiments.article_claims import ARTICLE_CLAIMS

FOLDER = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Run everything and write the page and its numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for experiment in EXPERIMENTS:
        began = time.process_time()  # another program on the machine does not count
        results[experiment.name] = replace(
            run(experiment.name, options.quick), seconds=round(time.process_time() - began, 1)
        )
        print(f"{experiment.name}: {results[experiment.name].seconds:.0f} s", flush=True)
    objects = [result.to_object() for result in results.values()]
    (FOLDER / "articles-checked.json").write_text(json.dumps(objects, indent=1, allow_nan=False) + "\n")
    (FOLDER / "articles-checked.md").write_text(_page(results, quick=options.quick))


def _page(results: dict[str, ExperimentResult], *, quick: bool) -> str:
    sections = "\n".join(experiment_markdown(result) for result in results.values())
    return "\n".join([_introduction(results, quick=quick), *_claims(results), "", sections])


def _introduction(results: dict[str, ExperimentResult], *, quick: bool) -> str:
    form = "in its short form" if quick else "in full"
    minutes = sum(result.seconds for result in results.values()) / 60
    times = ", ".join(f"{name} {result.seconds:.0f} s" for name, result in results.items())
    return f"""# The two articles, checked

Two widely read articles on residual connections and normalisation teach by example and by claim. Here every claim that
can be run is run, {form}, on small networks; the verdict beside it is computed from the numbers. `make articles` writes
this page and [the numbers behind it](articles-checked.json); `gradscope experiment NAME` runs one experiment. All of it
took {minutes:.1f} minutes of one core's time ({times}).

## Every claim

*Study* is what an earlier, independent study of the same claims found, with code of its own."""


def _claims(results: dict[str, ExperimentResult]) -> list[str]:
    lines = ["", "| | claim | experiment | here | study | |", "|--:|---|---|---|---|---|"]
    agreed = judged = 0
    for number, claim in enumerate(ARTICLE_CLAIMS, start=1):
        verdict = claim.verdict(results)
        agreed += verdict == claim.studied
        judged += verdict is not None
        here = f"**{verdict}**" if verdict else "not run"
        cells = (str(number), claim.text, claim.experiment, here, claim.studied or "cannot be checked", claim.remark)
        lines.append("| " + " | ".join(cells) + " |")
    total = len(ARTICLE_CLAIMS)
    return [*lines, "", f"{judged} of {total} are run; {agreed} of those come out as in the study."]


if __name__ == "__main__":
    main()
