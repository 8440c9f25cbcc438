"""A recording of a very deep model with noisy numbers, which no compressor can make small, built without torch."""

from __future__ import annotations

import math
import random
from typing import Any

from gradscope.record import Columns, Recording, empty_table
from tests.support.recordings import build

CHILDREN = (("norm1", "norm"), ("attn", "attention"), ("norm2", "norm"), ("mlp", "container"), ("mlp.fc", "linear"))
SIZE = 4 * 16 * 64


def recording(num_blocks: int = 1000, num_steps: int = 50, seed: int = 0) -> Recording:
    """Build blocks of five modules and two residual additions each, all of them measured at every step."""
    dice = random.Random(seed)
    names = ["embed"]
    roles = ["embedding"]
    for block in range(num_blocks):
        names += [f"layers.{block}.{child}" for child, _ in CHILDREN] + [f"layers.{block}"]
        roles += [role for _, role in CHILDREN] + ["container"]
    tables: dict[str, Columns] = {}
    rows = range(len(names))
    tables["modules"] = _columns(
        "modules",
        len(names),
        name=names,
        type=[role.title() for role in roles],
        role=roles,
        num_parameters=[4096] * len(names),
        called=[True] * len(names),
    )
    tables["calls"] = _columns(
        "calls",
        len(names),
        module=names,
        call=[0] * len(names),
        shape=[[4, 16, 64]] * len(names),
        dtype=["float32"] * len(names),
    )
    owners = [row for row in rows if roles[row] in ("linear", "norm", "embedding")]
    tables["parameters"] = _columns(
        "parameters", len(owners), name=[f"{names[row]}.weight" for row in owners],
        module=[names[row] for row in owners],
        shape=[[64, 64]] * len(owners), dtype=["float32"] * len(owners), num_elements=[4096] * len(owners),
        requires_grad=[True] * len(owners), takes_part=[True] * len(owners))  # fmt: skip
    sites = [(block, child) for block in range(num_blocks) for child in ("attn", "mlp")]
    tables["stream"] = _columns(
        "stream",
        len(sites) + 1,
        name=["embed", *(f"layers.{b} + {c}" for b, c in sites)],
        kind=["start", *("addition" if c == "attn" else "block" for _, c in sites)],
        block=[None, *(f"layers.{b}" for b, _ in sites)],
        module=["embed", *(f"layers.{b}" for b, _ in sites)],
    )
    tables["sites"] = _columns(
        "sites", len(sites), name=[f"layers.{b} + {c}" for b, c in sites], module=[f"layers.{b}" for b, _ in sites],
        kind=["identity"] * len(sites), counted=[True] * len(sites), placement=["pre"] * len(sites),
        branches=[[f"layers.{b}.{c}"] for b, c in sites], skip_scale=[1.0] * len(sites),
        depth=list(range(1, len(sites) + 1)),
    )  # fmt: skip
    tables["steps"] = _columns(
        "steps", num_steps, step=list(range(num_steps)), loss=[3 - 0.01 * step for step in range(num_steps)]
    )
    for table, key, count, columns in (
        ("call_stats", "call", len(names), ("forward_norm", "grad_norm")),
        ("parameter_stats", "parameter", len(owners), ("grad_norm", "weight_norm", "update_norm")),
        ("stream_stats", "station", len(sites) + 1, ("forward_norm", "grad_norm")),
        ("site_stats", "site", len(sites), ("skip_norm", "branch_norm", "out_norm", "grad_norm", "skip_grad_norm",
                                            "branch_grad_norm", "cosine")),
    ):  # fmt: skip
        total = count * num_steps
        numbers: dict[str, list[Any]] = {
            column: [math.exp(dice.gauss(-3, 0.5)) for _ in range(total)] for column in columns
        }
        if "num_elements" in empty_table(table):
            numbers["num_elements"] = [SIZE] * total
        steps = [step for step in range(num_steps) for _ in range(count)]
        tables[table] = _columns(table, total, step=steps, **{key: list(range(count)) * num_steps}, **numbers)
    return build(tables, optimizer="adam", lr=1e-3, num_steps=num_steps)


def _columns(table: str, length: int, **given: list[Any]) -> Columns:
    return {column: given.get(column, [None] * length) for column in empty_table(table)}
