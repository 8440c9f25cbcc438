"""The same network from other seeds: what an interval of D is over when initialisations are what is replicated.

Batches of one initialisation are not independent; initialisations are. Their totals are kept in the recording of the
first as observations, one call number per seed.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradscope.metrics.depth import replicated_decades_per_block
from gradscope.metrics.facts import Facts
from gradscope.metrics.interval import Interval, mean_interval
from gradscope.record import Recording

TOTAL, PER_BLOCK = "decades_of_seed", "decades_per_block_of_seed"
"""Names of the observations: D and its mean per block, in decades."""


def with_replicas(recording: Recording, others: Sequence[Recording]) -> Recording:
    """Return a recording that carries the totals of other initialisations of the same network beside its own.

    Where a factory gives the same weights whatever the seed, that is confessed and nothing is added.
    """
    profiles = [profile for one in (recording, *others) if (profile := Facts(one).profile) is not None]
    totals = [profile.decades for profile in profiles]
    tables = {name: {column: list(values) for column, values in table.items()} for name, table in _tables(recording)}
    result = Recording(recording.provenance, tables)
    if len(profiles) < 2 or len(set(totals)) == 1:  # noqa: PLR2004 - the first and another
        reason = "every seed gives the same network" if profiles else "no path along the depth was found"
        confessions = tables["confessions"]
        confessions["what"].append("the interval over seeds")
        confessions["why"].append(reason)
        return result
    step = profiles[0].step
    for number, profile in enumerate(profiles):
        slope = replicated_decades_per_block([profile])
        for metric, value in ((TOTAL, profile.decades), (PER_BLOCK, slope.mean if slope else None)):
            row = {"step": step, "metric": metric, "module": "", "call": number, "value": value}
            for column, cell in row.items():
                tables["observations"][column].append(cell)
    return result


def interval_of(facts: Facts, metric: str) -> Interval | None:
    """Return the interval over seeds of D or of its mean per block; None where there is one seed."""
    values = list(facts.observed(metric).values())
    return mean_interval(values, "seeds") if len(values) > 1 else None


def _tables(recording: Recording) -> list[tuple[str, dict[str, list[object]]]]:
    return [(name, dict(table)) for name, table in recording.tables.items()]
