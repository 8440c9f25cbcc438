"""The report as text: what it says, what it carries, and what it says when there is nothing."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from gradscope.errors import ConfigError, RecordError
from gradscope.metrics.expected import expected_decades
from gradscope.metrics.facts import Facts
from gradscope.record import Recording, empty_table
from gradscope.report.html import html, read_back, write
from gradscope.report.html.comparison import Compared, Comparison, html_comparison
from gradscope.report.html.experiment import html_experiment
from gradscope.report.html.pages import Page, html_page
from gradscope.report.html.panel import Column, Panel, Table
from gradscope.report.html.payload import MAX_NUMBERS, embed, spread
from gradscope.report.html.sweep import Curve, Sweep, SweepPoint, html_sweep
from gradscope.report.html.views.flow import ratio_chart
from gradscope.rules import RULES, diagnose
from tests.html import large
from tests.html.pages import MODELS, diagnosed, with_signals
from tests.support.recordings import add, build, stack


@pytest.mark.parametrize("name", [name for name in MODELS if name != "large"])
def test_the_recording_comes_back_whole(name: str, tmp_path: Path) -> None:
    recording, diagnosis = diagnosed(name)
    write(recording, diagnosis, tmp_path / "report.html")
    back = read_back(tmp_path / "report.html")
    assert repr(back) == repr(recording)
    assert html(back, diagnosis) == (tmp_path / "report.html").read_text()


def test_a_thinned_recording_says_so_and_can_be_judged(tmp_path: Path) -> None:
    recording = large.recording(200, 50)
    diagnosis = diagnose(recording)
    write(recording, diagnosis, tmp_path / "report.html")
    carried = read_back(tmp_path / "report.html")
    assert carried.watched_steps == recording.watched_steps
    assert carried.num_rows("call_stats") < recording.num_rows("call_stats")
    assert {0, 49} <= set(carried.tables["stream_stats"]["step"])
    assert diagnose(carried).verdict == diagnosis.verdict
    assert "This file carries a copy of the recording with" in (tmp_path / "report.html").read_text()
    assert sum(len(t["step"]) for n, t in carried.tables.items() if n.endswith("_stats")) < MAX_NUMBERS


def test_small_recordings_are_not_thinned() -> None:
    assert embed(stack(24)).note == ""
    assert spread(range(10), 1) == [0]
    assert spread(range(10), 4) == [0, 3, 6, 9]


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:40_000], lambda text: text.replace("H4sI", "AAAA"), lambda _: "", lambda _: "<html></html>"],
)
def test_damaged_reports_are_a_clear_error(damage: object, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(damage(html(*diagnosed("healthy"))))  # type: ignore[operator]
    with pytest.raises(RecordError) as caught:
        read_back(path)
    assert str(path) in str(caught.value)


def test_a_missing_report_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no such report"):
        read_back(tmp_path / "none.html")
    with pytest.raises(RecordError, match="cannot"):
        read_back(tmp_path)


def test_views_without_data_say_why_in_one_line() -> None:
    text = html(*diagnosed("empty"))
    for words in ("No path from the input", "No residual addition", "watched steps have a depth profile",
                  "Gradient magnitudes",
                  "No weight matrix", "No modules were recorded", "No token, sample"):  # fmt: skip
        assert words in text, words
    assert "Only one step was watched" in html(*diagnosed("one-step"))


def test_a_ratio_that_was_not_measured_has_no_line() -> None:
    recording = stack(4)
    assert [line.name for line in ratio_chart(Facts(recording)).layers][:2] == ["forward, step 0", "backward, step 0"]
    stats = recording.tables["site_stats"]
    stats["branch_grad_norm"] = [None] * len(stats["site"])
    assert [line.name for line in ratio_chart(Facts(recording)).layers] == ["forward, step 0", "forward, step 10"]


def test_every_rule_can_be_explained() -> None:
    from gradscope.report.html.explanation import explanation, rule_name

    for rule in RULES:
        assert rule_name(rule.code)
        assert next(heading for heading, _ in explanation(rule.code)) == "What it measures"
    assert explanation("GS999") == []


def test_confessions_and_made_up_inputs_are_shown() -> None:
    recording = with_signals(stack(6))
    recording = Recording(dataclasses.replace(recording.provenance, inputs_synthetic=True), recording.tables)
    text = html(recording, diagnose(recording))
    assert "made up by gradscope" in text
    assert "the module returns a packed sequence" in text


def test_how_the_target_was_loaded_is_told(tmp_path: Path) -> None:
    recording = stack(6)
    notes = ("Only the <b>decoder</b> of Whole, in miniature.",)
    recording = Recording(dataclasses.replace(recording.provenance, notes=notes), recording.tables)
    diagnosis = diagnose(recording)
    text = html(recording, diagnosis)
    assert text.count("Only the &lt;b&gt;decoder&lt;/b&gt; of Whole, in miniature.") == 2
    write(recording, diagnosis, tmp_path / "report.html")
    assert read_back(tmp_path / "report.html").provenance == recording.provenance


def test_partial_runs_say_so() -> None:
    recording = stack(6)
    recording = Recording(dataclasses.replace(recording.provenance, partial=True), recording.tables)
    assert "the run ended early" in html(recording, diagnose(recording))


def test_no_jinja_plotly_or_torch_before_they_are_needed() -> None:
    script = (
        "import sys; import gradscope.report, gradscope.record, gradscope.rules;"
        "assert not {'jinja2', 'plotly', 'torch'} & set(sys.modules), sorted(sys.modules);"
        "from gradscope.report.html import html; from tests.html.pages import diagnosed; html(*diagnosed('one-step'));"
        "assert not {'torch', 'pandas', 'numpy', 'plotly.graph_objs'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_expected_profile_ends_in_the_predicted_total() -> None:
    facts = Facts(stack(12, forward_ratio=0.5, stream_growth=0.05))
    profile = facts.profile
    assert profile is not None
    expected = expected_decades(facts, profile)
    assert expected is not None
    assert expected[0] == pytest.approx(facts.predicted_decades(0))
    assert expected[-1] == 0.0
    step = 0.5 * math.log10(1 + 0.5**2)
    assert [a - b for a, b in pairwise(expected)] == pytest.approx([step] * 12)
    assert expected_decades(Facts(stack(12, residual=False)), profile) is None


def test_comparison_shows_every_model() -> None:
    models = [Compared(name, *diagnosed(name)) for name in ("healthy", "vanishing", "one-step")]
    text = html_comparison(Comparison(models))
    assert "Will train: healthy and one-step. Will not train: vanishing." in text
    assert "GS101" in text
    assert text.count('class="line') >= 3
    empty = html_comparison(Comparison([Compared("empty", build({}), diagnose(build({})))]))
    assert empty.count("None of the models") == 1


def test_comparison_over_seeds_shows_their_spread() -> None:
    seeds = [stack(12, decades_per_block=0.01 * seed) for seed in range(3)]
    models = [Compared("seeded", seeds[0], diagnose(seeds[0]), seeds), Compared("single", *diagnosed("one-step"))]
    text = html_comparison(Comparison(models))
    assert "seeded, median of 3 seeds" in text
    assert 'class="band' in text


def test_a_module_called_again_and_again_is_shown_through_time() -> None:
    tables = {name: empty_table(name) for name in ("modules", "calls", "steps", "call_stats")}
    add(tables["modules"], name="cell", type="RNNCell", role="recurrent", num_parameters=1, called=True)
    add(tables["steps"], step=0, loss=1.0)
    for call in range(20):
        row = add(tables["calls"], module="cell", call=call)
        add(tables["call_stats"], step=0, call=row, forward_norm=1.0, grad_norm=10.0 ** (call - 19))
    recording = build(tables)
    text = html(recording, diagnose(recording))
    assert "cell is called 20 times; at its first call the gradient is 10¹⁹× smaller than at its last." in text
    assert 'id="chart-time"' in text
    assert "Gradient through time" not in html(*diagnosed("healthy"))


def test_pages_carry_no_paths_of_this_machine() -> None:
    home = "/home/ann/run.json"
    table = Table(home, (Column(home),), [(home,)])
    page = Page(
        "Comparison", home, home, [Panel("a", home, home, home, (table,))], notes=[home], provenance=[(home, home)]
    )
    text = html_page(page)
    assert "/home" not in text
    assert "…/run.json" in text


def test_sweep_shows_networks_law_and_limits() -> None:
    points = [
        SweepPoint(depth, -0.1 * depth, "will-train" if depth < 35 else "will-not-train", "plain")
        for depth in (6, 12, 48)
    ]
    law = Curve("exponential", [6, 96], [-0.6, -9.6], [-0.7, -10.0], [-0.5, -9.0])
    sweep = Sweep("plain, layers", "It loses 0.1 decades a layer and breaks at 35.", "layers", "decades", points,
                  (law, Curve("power law", [6, 96], [-0.6, -4.0])), ((-3.5, "will not train"),))  # fmt: skip
    text = html_sweep(sweep)
    for words in (
        "breaks at 35",
        "exponential",
        "95 % for one network",
        "power law",
        'class="limit bad"',
        "Will not train",
    ):
        assert words in text
    nothing = Sweep("plain", "Nothing.", "layers", "decades", [SweepPoint(6, None, "cannot-say")])
    assert "there is nothing to draw" in html_sweep(nothing)


def test_experiment_shows_claims_and_tables() -> None:
    claim = {
        "text": "gradients vanish <b>", "source": "an article", "verdict": "depends", "reading": "Only later.",
        "checks": [{"setting": "start", "measure": "decades", "value": -1.1, "criterion": "below -3", "holds": False}],
    }  # fmt: skip
    table = {
        "title": "Results: all",
        "columns": ["wiring", "loss"],
        "rows": [["pre", 1.5], ["none", "nan"]],
        "note": "lower is better",
    }
    text = html_experiment(
        {"title": "Skips", "claims": [claim], "tables": [table], "notes": ["three seeds"], "quick": True,
             "seconds": 1.0, "provenance": {"torch": "2"}}
    )  # fmt: skip
    for words in (
        "1 claim tested: 1 depends on the setting.",
        "gradients vanish &lt;b&gt;",
        "three seeds",
        "lower is better",
        "short form",
    ):
        assert words in text
    assert len(text) < 100_000, "no chart, no bundle"


def test_notebook_view_and_figures() -> None:
    recording = with_signals(stack(24, decades_per_block=-0.3, residual=False))
    text = recording._repr_html_()
    assert "Will not train" in text
    assert "<svg" in text
    assert "<script" not in text
    figure = recording.figure()
    assert figure.data[0].fill is None
    assert len(figure.data) < 10
    assert recording.figure("heatmap").data[0].type == "heatmap"
    with pytest.raises(ConfigError, match="no view 'depht'"):
        recording.figure("depht")
