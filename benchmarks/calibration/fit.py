"""Fit thresholds on one half of the networks, judge them on the other, and write docs/calibration.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from benchmarks.calibration.cases import Case, cases, decided, rates
from benchmarks.calibration.curves import svg
from benchmarks.calibration.factors import factors_section
from benchmarks.calibration.networks import DEPTHS
from benchmarks.calibration.peers import PEERS
from benchmarks.calibration.roc import Score, area, curve, value
from benchmarks.calibration.thresholds import Rule, best_rule, excess, kappa, token_cosine
from benchmarks.calibration.training import BEGUN_SHARE, MORE_STEPS, NUM_STEPS, PASS_SHARE

DOCS = Path(__file__).parents[2] / "docs"
OPTIMIZERS = ("adam", "sgd")

SCORES: dict[str, Score] = {
    "size of D, beyond the stream law": excess,
    "kappa_J": kappa,
    "token cosine": token_cosine,
    "sample cosine": value("sample_cosine"),
    "-log10 of q, k over v gradient": lambda case: -case.numbers["query_key_to_value_log10"],
}


def fit() -> None:
    """Print the rules and write the page and its figures."""
    everything = cases()
    rules = {}
    for optimizer in OPTIMIZERS:
        fitted = _chosen(everything, optimizer, "fit")
        rules[optimizer] = best_rule(fitted)
        print(optimizer, rules[optimizer], _text(fitted, rules[optimizer].flags), "on the fitted half")
        judged = _chosen(everything, optimizer, "judge")
        print(optimizer, "held out: rule", _text(judged, rules[optimizer].flags), "verdict", _text(judged, _dead))
        (DOCS / f"calibration-{optimizer}.svg").write_text(_figure(judged, optimizer, rules[optimizer]))
    (DOCS / "calibration.md").write_text(_page(everything, rules))
    for case in decided(everything):
        if _dead(case) != (case.truth == "failed"):
            kind = "missed" if case.truth == "failed" else "false alarm"
            numbers = f"D {excess(case):.2f} kappa {kappa(case):.1f} token cosine {token_cosine(case):.3f}"
            print(kind, case.half, case.optimizer, case.name, case.verdict, sorted(case.codes), numbers)


def _dead(case: Case) -> bool:
    return case.verdict == "will-not-train"


def _warned(case: Case) -> bool:
    return case.verdict in ("will-not-train", "at-risk")


def _peer(name: str) -> Callable[[Case], bool]:
    return lambda case: name in case.peers


def _chosen(everything: Sequence[Case], optimizer: str, half: str | None = None) -> list[Case]:
    return [c for c in decided(everything) if c.optimizer == optimizer and half in (None, c.half)]


def _text(some: Sequence[Case], flags: Callable[[Case], bool]) -> str:
    found, alarms, num_failed, num_trained = rates(some, [flags(case) for case in some])
    return f"{found:.2f} of {num_failed} found, {alarms:.2f} of {num_trained} false alarms"


def _figure(some: Sequence[Case], optimizer: str, rule: Rule) -> str:
    shown = {f"{name} ({area(curve(some, score)):.2f})": curve(some, score) for name, score in list(SCORES.items())[:3]}
    points = {"gradscope's verdict": _point(some, _dead)}
    points |= {name: _point(some, _peer(name)) for name in PEERS}
    return svg(f"{optimizer}, held-out half: finding networks that fail (area)", shown, points)


def _point(some: Sequence[Case], flags: Callable[[Case], bool]) -> tuple[float, float]:
    found, alarms, _, _ = rates(some, [flags(case) for case in some])
    return alarms, found


def _page(everything: Sequence[Case], rules: Mapping[str, Rule]) -> str:
    num_networks = len({case.name for case in _main(everything)})
    sections = [
        "# Calibration",
        f"{num_networks} networks were built, watched for eleven steps (as `gradscope inspect` does), and then really"
        " trained: under Adam and under SGD with momentum, the better of two learning rates each (up to eight for SGD,"
        " with up to 600 steps, where only Adam had trained), on tasks that sound networks of the family solve. A"
        " network has *trained* when"
        f" its loss fell below {PASS_SHARE:.0%} of that of a guess; it has *failed* when after {NUM_STEPS} steps it was"
        f" still above {BEGUN_SHARE:.0%} of it, or not a number. Those in between got"
        f" {MORE_STEPS} steps; what had not arrived by then is *slow* and counts as neither.",
        "Levels were fitted on one half and judged on the other. The halves differ in depth within every family: "
        + "; ".join(_depths(family) for family in DEPTHS) + " (bold: held out).",
        "This page is written by `python -m benchmarks.calibration fit` from the tables in `benchmarks/calibration/`.",
        "## The networks",
        _network_table(everything),
        "## On the held-out half",
        _judged_table(everything, rules, "judge"),
        "The line of *the fitted levels alone* is blind: three levels, fitted on the other half. The verdict's line is"
        " not: the rules behind it were developed while this table, and that of the fresh networks, was in view. What"
        " a stranger's network meets is the three blind tests below.",
        "## On fresh networks",
        f"{_number(everything, 'fresh')} more networks, of depths and from a seed not used before.",
        _judged_table(everything, rules, "fresh"),
        "## Blind",
        f"{_number(everything, 'blind')} networks of wirings, activations, cells, widths, depths and seeds that nothing"
        " here had used (`strangers.py`) were written, trained and put aside, and judged once, after the levels above"
        f" were set. At that first look the verdict found {FIRST_LOOK}. The misses taught three things: a gated block"
        " whose gate is applied by a helper was taken for a loop over time, so that its depth was not followed;"
        " growth under Adam is fatal from 3 decades, not 3.5; and fewer lost directions than had been thought are"
        " bearable. With these mended the same networks give:",
        _judged_table(everything, rules, "blind"),
        f"Then {_number(everything, 'blind 2')} more were written, of other wirings again (`newcomers.py`), trained,"
        f" and judged once: the verdict found {SECOND_LOOK}. Three of its six false alarms were one mistake, mended"
        " since (a call in a recurrent network whose result nobody uses was taken for a gradient that had faded to"
        " zero):",
        _judged_table(everything, rules, "blind 2"),
        "What it gets wrong there:",
        _misses(everything, "blind 2"),
        "Rates below those that are usual were tried under SGD only after both looks: eleven of the networks that"
        " counted as failed then do begin to learn at a hundredth of them, most of what the verdict seemed to miss"
        " among them. The tables above count them as what they are. One level was"
        " changed for it: how little of the gradient may be left after the way back through time (GS107).",
        f"The first two sets hold wirings nothing had been developed on. The third, {_number(everything, 'blind 3')}"
        " networks (`outsiders.py`), holds kinds of networks and of faults: graph nets, U-Nets, flows, hypernetworks,"
        " experts, weight-tied loops, sinusoids, weight and spectral norm, autoencoders, twins; inputs, logits, losses"
        " and targets of a wrong size, a softmax or a mean over the wrong axis, gates shut, layers cut off. It was"
        f" judged before it was trained: the verdict found {THIRD_LOOK}. Half of what fails for a reason that does not"
        " lie along the depth was missed. The misses taught four things: layers under a parametrisation were not"
        " followed; a cross-entropy says how large logits have to be, so that their size, their differences between"
        " samples and what the layers do to them can be judged (GS111); tokens that drown in a common offset are lost"
        " however many directions the Jacobian keeps (GS301); and Adam's epsilon can stop a network (GS405). That"
        " plain SGD diverges where the loss is only multiplied is no longer held against the network (GS104). With"
        " these mended the same networks give:",
        _judged_table(everything, rules, "blind 3"),
        "What it gets wrong there:",
        _misses(everything, "blind 3"),
        "That line is no longer blind. Among what is still missed are logits that are bounded below what the loss"
        " needs, of which the gradient shows nothing; signals of a ten-thousandth and less under Adam, which are"
        " called a risk, since half of them begin to learn late; and targets far larger than the outputs, a risk as"
        " well (GS605). One of the false alarms under SGD is a loop that is given the input anew at every turn.",
        "So on wirings never seen the verdict finds nine in ten of those that fail under Adam, at about one false"
        " alarm in forty, and nearly all under SGD, at about one in fifteen. Some of the latter diverge at the rate"
        " that is watched, which is what the verdict says, and train at a far smaller one; the others lie just beyond"
        " a level. Of faults never thought of it finds about half at first sight.",
        "## A factor in the way",
        factors_section(),
        _peer_note(),
        *(f"![{optimizer}](calibration-{optimizer}.svg)" for optimizer in OPTIMIZERS),
        "## By family",
        _family_table(everything),
        "## Single numbers",
        _area_table(everything),
        "## Vanishing and exploding are not alike",
        "Outcomes by D, beyond the stream law, of all networks but recurrent ones (trained / failed / slow). Adam,"
        " which rescales every tensor, still trains many a network whose gradient shrinks by 3.5 to 8 decades, and few"
        " whose gradient grows by as much; SGD trains neither.",
        _bins_table(everything),
        "## Fitted levels",
        _rule_table(rules),
        "## What it does not tell",
        "Tasks are small and few, width is 8 to 128, one training seed per network and rate. Slow learners are judged"
        " as follows: " + _slow(everything) + " A network that fails for reasons that do not show in its first eleven"
        " steps is not found. `benchmarks/calibration/` allows all of it to be repeated: `train` takes about an hour"
        " on one core, everything else minutes.",
    ]
    return "\n\n".join(sections) + "\n"


FIRST_LOOK = "0.72 of 18 that fail under Adam at 0.05 of 66 false alarms, and 0.74 of 31 at 0.04 of 49 under SGD"
"""What was printed when the first blind set was judged for the first time; it cannot be computed again."""


SECOND_LOOK = "0.91 of 11 that fail under Adam at 0.06 of 54 false alarms, and 0.81 of 21 at 0.07 of 42 under SGD"
"""The same for the second blind set."""


THIRD_LOOK = "0.52 of 29 that fail under Adam at 0.06 of 69 false alarms, and 0.63 of 38 at 0.12 of 57 under SGD"
"""The same for the third blind set."""


def _main(everything: Sequence[Case]) -> list[Case]:
    """Leave out the fresh and the blind ones."""
    return [case for case in everything if case.half in ("fit", "judge")]


def _number(everything: Sequence[Case], half: str) -> int:
    return len({case.name for case in everything if case.half == half})


def _misses(everything: Sequence[Case], half: str) -> str:
    """List what the verdict got wrong on a blind set, with the numbers it had."""
    lines = ["| optimizer | network | is | judged | D | kappa_J |", "|---|---|---|---|---|---|"]
    for case in decided(everything):
        if case.half == half and _dead(case) != (case.truth == "failed"):
            numbers = f"{case.numbers['excess_decades']:.1f} | {kappa(case):.0f}".replace("nan", "-")
            lines.append(f"| {case.optimizer} | {case.name} | {case.truth} | {case.verdict} | {numbers} |")
    return "\n".join(lines)


def _depths(family: str) -> str:
    return f"{family} " + ", ".join(f"**{d}**" if i % 2 else str(d) for i, d in enumerate(DEPTHS[family]))


def _network_table(everything: Sequence[Case]) -> str:
    lines = ["| family | optimizer | trained | failed | slow |", "|---|---|---|---|---|"]
    for family in DEPTHS:
        for optimizer in OPTIMIZERS:
            mine = [c for c in _main(everything) if c.family == family and c.optimizer == optimizer]
            truths = [case.truth for case in mine]
            counts = " | ".join(str(truths.count(truth)) for truth in ("trained", "failed", "slow"))
            lines.append(f"| {family} | {optimizer} | {counts} |")
    return "\n".join(lines)


def _judged_table(everything: Sequence[Case], rules: Mapping[str, Rule], half: str) -> str:
    head = "| judged by | Adam: found | Adam: false alarms | SGD: found | SGD: false alarms |"
    lines = [head, "|---|---|---|---|---|"]
    kinds: dict[str, Callable[[str], Callable[[Case], bool]]] = {
        "gradscope: will not train": lambda _: _dead,
        "gradscope: will not train, or at risk": lambda _: _warned,
        "the fitted levels alone": lambda optimizer: rules[optimizer].flags,
        **{f"{name}'s thresholds": partial(_ignoring, _peer(name)) for name in PEERS},
    }
    for name, flags in kinds.items():
        cells = []
        for optimizer in OPTIMIZERS:
            some = _chosen(everything, optimizer, half)
            found, alarms, num_failed, num_trained = rates(some, [flags(optimizer)(case) for case in some])
            cells += [f"{found:.2f} of {num_failed}", f"{alarms:.2f} of {num_trained}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ignoring(flags: Callable[[Case], bool], _: str) -> Callable[[Case], bool]:
    return flags


def _peer_note() -> str:
    return (
        "Peers' thresholds are those their papers or sources state, applied over the same eleven steps; where a source"
        " leaves the reading open, the usual one was taken (`benchmarks/calibration/peers.py`)."
    )


def _family_table(everything: Sequence[Case]) -> str:
    lines = ["| family, held-out half | Adam: verdict | SGD: verdict |", "|---|---|---|"]
    for family in DEPTHS:
        halves = (_chosen(everything, optimizer, "judge") for optimizer in OPTIMIZERS)
        cells = [_text([case for case in half if case.family == family], _dead) for half in halves]
        lines.append(f"| {family} | {' | '.join(cells)} |")
    return "\n".join(lines).replace("nan of 0", "- of 0")


def _area_table(everything: Sequence[Case]) -> str:
    lines = ["| area under the curve, held-out half | Adam | SGD |", "|---|---|---|"]
    for name, score in SCORES.items():
        areas = [area(curve(_chosen(everything, optimizer, "judge"), score)) for optimizer in OPTIMIZERS]
        lines.append(f"| {name} | {' | '.join(f'{one:.3f}' for one in areas)} |")
    return "\n".join(lines) + "\n\nA number that a network does not have (tokens in an MLP) counts as harmless."


BINS = (1.0, 2.0, 3.0, 3.5, 5.0, 8.0, math.inf)


def _bins_table(everything: Sequence[Case]) -> str:
    lines = ["| decades | Adam: shrinks | Adam: grows | SGD: shrinks | SGD: grows |", "|---|---|---|---|---|"]
    for low, high in pairwise(BINS):
        cells = []
        for optimizer in OPTIMIZERS:
            inside = [c for c in everything if c.optimizer == optimizer and low <= excess(c) < high]
            for sign in (-1, 1):
                some = [c for c in inside if c.family != "recurrent" and sign * c.numbers["excess_decades"] > 0]
                cells.append(" / ".join(str([c.truth for c in some].count(t)) for t in ("trained", "failed", "slow")))
        lines.append(f"| {low:g} to {high:g} | {' | '.join(cells)} |".replace(" to inf", " and more"))
    return "\n".join(lines)


def _rule_table(rules: Mapping[str, Rule]) -> str:
    lines = ["| fails beyond | Adam | SGD |", "|---|---|---|"]
    for level, words in (("decades", "decades"), ("kappa", "kappa_J"), ("token_cosine", "token cosine")):
        lines.append(f"| {words} | {' | '.join(f'{getattr(rules[o], level):g}' for o in OPTIMIZERS)} |")
    return "\n".join(lines)


def _slow(everything: Sequence[Case]) -> str:
    parts = []
    for optimizer in OPTIMIZERS:
        slow = [c for c in _main(everything) if c.truth == "slow" and c.optimizer == optimizer]
        dead, warned = sum(map(_dead, slow)), sum(map(_warned, slow))
        parts.append(f"of {len(slow)} under {optimizer}, {dead} are called dead and {warned - dead} at risk")
    return "; ".join(parts) + "."
