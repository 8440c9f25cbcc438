"""What got worse since a saved run: the gradient profile block by block, beyond what another seed would change."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradscope.errors import ConfigError
from gradscope.gate.profiles import block_labels
from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.facts import Facts
from gradscope.record import Recording
from gradscope.rules.finding import Finding, Severity
from gradscope.rules.kind import Rule, RuleDoc, Threshold

TOLERANCE = Threshold(
    "decades", 0.5, "decades (log10) since the saved run", "judgement",
    "Another seed moves the end-to-end gradient of a healthy network of some dozens of blocks by less than this.",
)  # fmt: skip
FAIL = Threshold(
    "fail_decades", 1.0, "decades (log10) since the saved run", "judgement",
    "A factor of ten in how much gradient reaches a place is no accident of a seed.",
)  # fmt: skip
SPREADS = Threshold(
    "spreads", 3.0, "standard deviations over seeds", "judgement",
    "With --seeds the tolerance grows to three deviations of what the seeds show: one false alarm in 370 comparisons.",
)  # fmt: skip

RULE = Rule(
    code="GS701",
    name="profile-regression",
    severity="error",
    summary="The gradient profile is worse than that of the saved run it is compared with.",
    thresholds=(TOLERANCE, FAIL, SPREADS),
    check=lambda facts, levels: (),  # needs a second recording: `gradscope check TARGET --against run.json`
    doc=RuleDoc(
        measures="""How much farther from zero the decades between the ends of the stream, or those of one block, are
than in a saved run, in decades (log10). Profiles are ratios along depth, so the scale of the loss, the batch size and
the learning rate cancel. Blocks are matched by name.""",
        why="""A change that costs a decade of gradient may still be far from failing today and be one of five such
changes that do. Compared with the run of the main branch, it shows in the commit that made it.""",
        false_positives="""A different seed moves the profile a little: `--seeds 3` measures by how much and widens the
tolerance. A change that is meant (more blocks, another norm) is accepted by saving the run again.""",
        example="""`gradscope inspect model.py -o main.json` on the main branch, then
`gradscope check model.py --against main.json` on the change.""",
        advice="""Look at the block that is named first: what it adds, how it is scaled and initialised. If the change
is meant, save the run again.""",
        references=("gradscope check --help",),
    ),
)


@dataclass(frozen=True)
class Change:
    """The profile of one step then and now; blocks by label, in decades gained toward the input."""

    step: int
    before: float | None
    after: float | None
    blocks_before: Mapping[str, float | None]
    blocks_after: Mapping[str, float | None]
    modules: Mapping[str, tuple[str, int]]


def regressions(
    before: Recording,
    after: Recording,
    since: str,
    levels: Mapping[str, float],
    others: Sequence[Recording] = (),
) -> tuple[Finding, ...]:
    """Compare a run with a saved one.

    Args:
        before: The saved run.
        after: The run to judge.
        since: What the saved run is called in the message.
        levels: The thresholds in force, by their short names.
        others: The same target with other seeds; their spread widens the tolerance.

    Raises:
        ConfigError: The two have no watched step with a profile in common, so that nothing can be compared.
    """
    changes = _changes(Facts(before), Facts(after))
    if not changes:
        raise ConfigError(
            f"{since} and this run have no measured profile in common.",
            rule="Both must watch the same steps of a model with a stream of blocks.",
            hint=f"gradscope inspect {after.provenance.target} -o {since}",
        )
    facts = Facts(after)
    found = []
    for change in changes:
        tolerance = _tolerance(change.step, after, others, levels)
        finding = _whole(change, since, tolerance, levels, facts) or _block(change, since, tolerance, levels, facts)
        if finding is not None:
            found.append(finding)
    return tuple(found[:1])  # a later step repeats what the first one shows


def _changes(before: Facts, after: Facts) -> list[Change]:
    return [
        Change(
            step,
            before.profiles[step].decades,
            after.profiles[step].decades,
            _blocks(before.profiles[step]),
            _blocks(after.profiles[step]),
            _places(after.profiles[step]),
        )
        for step in sorted(set(before.profiles) & set(after.profiles))
    ]


def _blocks(profile: DepthProfile) -> dict[str, float | None]:
    labels = [label for label, _ in block_labels(profile)[1:]]
    return dict(zip(labels, profile.increments, strict=True))


def _places(profile: DepthProfile) -> dict[str, tuple[str, int]]:
    stations = [(label, profile.stations[index]) for label, index in block_labels(profile)[1:]]
    return {label: (station.block or station.module, station.call) for label, station in stations}


def _tolerance(step: int, after: Recording, others: Sequence[Recording], levels: Mapping[str, float]) -> float:
    """Return the tolerance in decades: the threshold, or the spread over seeds where that is wider."""
    profiles = [facts.profiles.get(step) for facts in map(Facts, (after, *others))]
    totals = [p.decades for p in profiles if p is not None and p.decades is not None]
    spread = statistics.stdev(totals) if len(totals) > 1 else 0.0
    return max(levels["decades"], levels["spreads"] * spread)


def _whole(
    change: Change, since: str, tolerance: float, levels: Mapping[str, float], facts: Facts
) -> Finding | None:
    before, after = change.before, change.after
    if before is None:
        return None
    if after is None:
        text = (
            f"The gradient at the start of the stream is zero or not finite; in {since} it was {before:+.1f} decades "
            "from the one at the end."
        )
        return _finding("error", "", 0, text, {"decades_before": before, "step": change.step}, facts)
    if abs(after) - abs(before) < tolerance:
        return None
    worst = _most_changed(change, sign=after - before)
    blame = ""
    if worst is not None:
        blame = f" Most of it is block {worst}, which {_verb(_delta(change, worst))} decades."
    text = (
        f"The gradient that reaches the start of the stream {_verb(after - before)} decades since {since} "
        f"({before:+.2f} then, {after:+.2f} now, step {change.step}).{blame}"
    )
    module, call = change.modules[worst] if worst is not None else ("", 0)
    evidence = {"decades_before": before, "decades": after, "tolerance_decades": tolerance, "step": change.step}
    return _finding(_severity(before, after, tolerance, levels), module, call, text, evidence, facts)


def _block(
    change: Change, since: str, tolerance: float, levels: Mapping[str, float], facts: Facts
) -> Finding | None:
    """Find a block that got worse while others made up for it."""
    worst = _most_changed(change, sign=0.0)
    if worst is None:
        return None
    before, after = change.blocks_before[worst], change.blocks_after[worst]
    assert before is not None
    assert after is not None
    if abs(after) - abs(before) < tolerance:
        return None
    text = (
        f"Block {worst} {_verb(after - before)} decades since {since} "
        f"({before:+.2f} then, {after:+.2f} now, step {change.step})."
    )
    module, call = change.modules[worst]
    evidence = {"decades_before": before, "decades": after, "tolerance_decades": tolerance, "step": change.step}
    return _finding(_severity(before, after, tolerance, levels), module, call, text, evidence, facts)


def _delta(change: Change, block: str) -> float:
    before, after = change.blocks_before.get(block), change.blocks_after.get(block)
    return 0.0 if before is None or after is None else after - before


def _most_changed(change: Change, sign: float) -> str | None:
    """Return the block that changed most, in the direction of `sign` where that is not 0."""
    shared = [
        block
        for block, after in change.blocks_after.items()
        if after is not None and change.blocks_before.get(block) is not None
    ]
    moved = [block for block in shared if _delta(change, block) * sign >= 0]
    return max(moved, key=lambda block: abs(_delta(change, block)), default=None)


def _verb(delta: float) -> str:
    return f"{'lost' if delta < 0 else 'gained'} {abs(delta):.1f}"


def _severity(before: float, after: float, tolerance: float, levels: Mapping[str, float]) -> Severity:
    return "error" if abs(after) - abs(before) >= max(levels["fail_decades"], tolerance) else "warning"


def _finding(
    severity: Severity, module: str, call: int, text: str, evidence: Mapping[str, float | int], facts: Facts
) -> Finding:
    file, line = facts.place(module)
    return Finding(
        code=RULE.code,
        severity=severity,
        module=module,
        call=call,
        message=text,
        evidence=dict(evidence),
        advice="Look at what this block adds and how it is scaled; if the change is meant, save the run again.",
        file=file,
        line=line,
    )
