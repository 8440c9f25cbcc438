"""The residual experiment's tables."""

from __future__ import annotations

import statistics

from gradscope.experiments.residual_findings import LAYERS, VOCAB, Findings, Run, Start
from gradscope.experiments.result import Table, table
from gradscope.experiments.training import History, chance_loss


def draw(found: Findings) -> list[Table]:
    """Put the findings into tables."""
    return [
        _start_table(found.starts),
        _loss_table(found.runs),
        *_profile_tables(found.runs),
        _shallow_table(found.shallow),
        _growth_table(found.growth),
    ]


def _start_table(starts: dict[str, list[Start]]) -> Table:
    rows = []
    for name, found in starts.items():
        decades = [start.decades for start in found]
        rows.append(
            (
                name,
                statistics.fmean(decades),
                min(decades),
                max(decades),
                max(start.largest_gradient for start in found),
                statistics.fmean(start.cosine for start in found),
                statistics.median(start.query_to_value for start in found),
            )
        )
    return table(
        f"Before training, {LAYERS} layers",
        (
            "wiring",
            "D (decades)",
            "D lowest",
            "D highest",
            "largest parameter gradient",
            "token cosine at the end",
            "last |dW_q| / |dW_v|",
        ),
        rows,
        "D = log10(|g_0| / |g_L|). What is broken without skips is not the norms: all tokens have become the same.",
    )


def _loss_table(runs: dict[str, Run]) -> Table:
    num_steps = len(runs["pre-ln"].history.losses)
    steps = sorted({0, num_steps // 4, num_steps // 2, 3 * num_steps // 4, num_steps - 1})
    rows = [
        (name, *(_loss_at(one.history, step) for step in steps), one.history.accuracy) for name, one in runs.items()
    ]
    return table(
        "Training",
        ("wiring", *(f"loss at step {step}" for step in steps), "accuracy"),
        rows,
        f"Knowing nothing costs ln {VOCAB} = {chance_loss(VOCAB):.3f}.",
    )


def _loss_at(history: History, step: int) -> float | None:
    return history.losses[step] if step < len(history.losses) else None


def _profile_tables(runs: dict[str, Run]) -> list[Table]:
    tables = []
    for name, one in runs.items():
        steps = sorted(one.profiles)
        rows = [(layer, *(one.profiles[step][layer] for step in steps)) for layer in range(LAYERS + 1)]
        tables.append(
            table(
                f"Gradient norm along the stream, {name}",
                ("layer (0 = embedding)", *(f"step {step}" for step in steps)),
                rows,
            )
        )
    return tables


def _shallow_table(shallow: dict[int, History]) -> Table:
    rows = [(layers, one.final_loss, one.accuracy) for layers, one in shallow.items()]
    return table("Shallower networks without skips", ("layers", "final loss", "accuracy"), rows)


def _growth_table(growth: dict[tuple[str, str, int], float]) -> Table:
    rows = [(name, init, layers, decades) for (name, init, layers), decades in growth.items()]
    return table("D as depth grows, with skips", ("wiring", "init", "layers", "D (decades)"), rows)
