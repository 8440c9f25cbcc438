"""The machine view: one stable, versioned JSON object of what was measured and what the rules say (docs/json.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gradscope.record import Recording, json_number
from gradscope.report.numbers import ratio
from gradscope.rules.finding import Diagnosis, Finding

MACHINE_SCHEMA = 1
"""Version of the object; it changes when a key is removed or changes its meaning, not when one is added."""

ALWAYS_PRESENT_METRICS = ("decades", "decades_per_block", "num_blocks", "jacobian_anisotropy", "token_cosine")
"""Metrics every object has, null where they were not measured."""

_PLACEMENTS = {"output": "none"}
"""The view's four words say where the stream is normalised; a norm at the branch's end alone does not touch it."""


def to_object(recording: Recording, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the machine view, ready for `json.dumps(..., allow_nan=False)`.

    Per-parameter, per-module and per-site numbers are those of the first watched step (step 0 unless the user chose
    others).
    """
    steps = recording.watched_steps
    first = steps[0] if steps else None
    return {
        "schema": MACHINE_SCHEMA,
        "target": recording.provenance.target,
        "verdict": diagnosis.verdict,
        "reason": diagnosis.reason,
        "findings": [finding_object(finding) for finding in diagnosis.findings],
        "metrics": {**dict.fromkeys(ALWAYS_PRESENT_METRICS), **_plain(diagnosis.metrics)},
        "residual_sites": _sites(recording, first),
        "steps": [
            {"step": row["step"], "loss": _plain(row["loss"]), "grad_norm": _plain(row["grad_norm"])}
            for row in recording.rows("steps")
        ],
        "parameters": _parameters(recording, first),
        "modules": _modules(recording, first),
        "not_measured": [{"what": row["what"], "why": row["why"]} for row in recording.rows("confessions")],
        "provenance": _plain(vars(recording.provenance)),
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    """Return one finding as a JSON-ready object."""
    return {
        "code": finding.code,
        "severity": finding.severity,
        "module": finding.module,
        "call": finding.call,
        "file": finding.file,
        "line": finding.line,
        "message": finding.message,
        "evidence": _plain(finding.evidence),
        "advice": finding.advice,
    }


def _sites(recording: Recording, step: int | None) -> list[dict[str, Any]]:
    stats = {row["site"]: row for row in recording.rows("site_stats") if row["step"] == step}
    sites = []
    for number, site in enumerate(recording.rows("sites")):
        row = stats.get(number, {})
        sites.append(
            {
                "name": site["name"],
                "module": site["module"],
                "kind": site["kind"],
                "placement": _PLACEMENTS.get(site["placement"], site["placement"]),
                "branches": list(site["branches"] or ()),
                "forward_ratio": _plain(ratio(row.get("branch_norm"), row.get("skip_norm"))),
                "backward_ratio": _plain(ratio(row.get("branch_grad_norm"), row.get("skip_grad_norm"))),
                "cosine": _plain(row.get("cosine")),
                "file": site["file"],
                "line": site["line"],
            }
        )
    return sites


def _parameters(recording: Recording, step: int | None) -> list[dict[str, Any]]:
    """List every parameter once: a tensor with several names goes by its first, as in `named_parameters()`."""
    norms = {row["parameter"]: row["grad_norm"] for row in recording.rows("parameter_stats") if row["step"] == step}
    return [
        {"name": row["name"], "grad_norm": _plain(norms.get(number))}
        for number, row in enumerate(recording.rows("parameters"))
        if row["shared_with"] is None
    ]


def _modules(recording: Recording, step: int | None) -> list[dict[str, Any]]:
    stats = {row["call"]: row for row in recording.rows("call_stats") if row["step"] == step}
    return [
        {
            "name": call["module"],
            "call": call["call"],
            "grad_norm": _plain(stats.get(number, {}).get("grad_norm")),
            "forward_norm": _plain(stats.get(number, {}).get("forward_norm")),
        }
        for number, call in enumerate(recording.rows("calls"))
    ]


def _plain(value: Any) -> Any:
    """Make a value JSON-ready: non-finite numbers become "nan", "inf", "-inf"; foreign values their text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else json_number(value)
    if isinstance(value, bool | int | str) or value is None:
        return value
    return str(value)
