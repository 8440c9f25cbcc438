"""The list of the articles' claims is whole, and its verdicts are the experiments' own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradscope.experiments import EXPERIMENTS
from gradscope.experiments.article_claims import ARTICLE_CLAIMS, ArticleClaim
from gradscope.experiments.result import Check, Claim, ExperimentResult

PAGE = Path(__file__).parents[2] / "docs" / "articles-checked.md"
NUMBERS = PAGE.with_suffix(".json")
VERDICTS = {"holds", "does not hold", "depends"}


def judged(*claims: tuple[str, float]) -> dict[str, ExperimentResult]:
    made = tuple(Claim(text, "somebody", (Check("here", "number", value, low=1.0),)) for text, value in claims)
    return {"sample": ExperimentResult("sample", "A sample", (), made)}


def saved() -> dict[str, dict]:
    return {entry["name"]: entry for entry in json.loads(NUMBERS.read_text())}


def test_all_62_are_there_and_each_is_run_or_says_why_not():
    assert len(ARTICLE_CLAIMS) == 62
    assert len({claim.text for claim in ARTICLE_CLAIMS}) == 62
    for claim in ARTICLE_CLAIMS:
        assert bool(claim.experiment) == bool(claim.piece), claim
        assert claim.experiment or claim.remark, claim
        assert claim.studied in VERDICTS | {""}, claim


def test_every_experiment_but_two_runs_a_claim():
    """Collapse is the study's own finding, and the laws are a paper's: neither is a claim of the articles."""
    named = {claim.experiment for claim in ARTICLE_CLAIMS if claim.experiment}
    assert named == {experiment.name for experiment in EXPERIMENTS} - {"collapse", "xiong"}


def test_the_saved_page_is_of_full_runs_and_its_verdicts_are_the_studys():
    numbers = saved()
    assert set(numbers) == {experiment.name for experiment in EXPERIMENTS}
    assert not any(entry["quick"] for entry in numbers.values())
    page = PAGE.read_text()
    for number, claim in enumerate(ARTICLE_CLAIMS, start=1):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {number} | {claim.text} |")]
        here, study = (cell.strip() for cell in line.split("|")[4:6])
        assert study == (claim.studied or "cannot be checked")
        assert here == f"**{study}**" or claim.remark, line
        if claim.experiment:
            found = [entry["verdict"] for entry in numbers[claim.experiment]["claims"] for piece in claim.piece
                     if piece in entry["text"]]  # fmt: skip
            assert len(found) == len(claim.piece)
            assert here == (f"**{found[0]}**" if len(set(found)) == 1 else "**depends**")


def test_claims_that_agree_have_their_verdict_and_others_depend():
    results = judged(("it is so", 2.0), ("it is so too", 0.0))
    assert ArticleClaim("a", "holds", "sample", ("so too",)).verdict(results) == "does not hold"
    assert ArticleClaim("a", "holds", "sample", ("it is so too", "so too")).verdict(results) == "does not hold"
    with pytest.raises(LookupError, match="2 claims of 'sample' say 'it is so'"):
        ArticleClaim("a", "holds", "sample", ("it is so",)).verdict(results)
    assert ArticleClaim("a", "", remark="history").verdict(results) is None
