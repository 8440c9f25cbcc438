"""Hand-built recordings with their diagnoses, for the views."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from gradscope.gate.outcome import Outcome
from gradscope.record import Recording
from gradscope.rules.finding import Diagnosis, Finding
from tests.support.recordings import add, stack

HOSTILE_NAMES = [
    "[b]",
    "[/0]",
    "<script>alert(1)</script>",
    "n" * 300,
    "line\nbreak",
    "\x1b[31mred\x1b[0m",
    "漢字モジュール",
    "👩‍👩‍👧 family",
    "שלום\u202eevil",
    "tab\there",
    "`tick` | pipe",
    "::error::no, 100%",
    "lone \ud800 surrogate",
    "__dunder__ *star* @someone",
]


def sick(num_blocks: int = 12) -> tuple[Recording, Diagnosis]:
    """A stack that vanishes, with one error and one warning."""
    recording = stack(num_blocks, decades_per_block=-0.4)
    total = -0.4 * num_blocks
    findings = (
        finding("GS101", "error", "layers.0", message=f"The gradient shrinks by {-total:.1f} decades.", line=41,
                evidence={"decades": total, "threshold_decades": -3.5, "num_blocks": num_blocks}),
        finding("GS303", "warning", "layers.3.fc", message="62 % of the units are off.", line=11,
                evidence={"dead_fraction": 0.62}),
        finding("GS109", "info", "", message="Some gradients are zero by design.", file=None),
    )  # fmt: skip
    metrics = {"decades": total, "decades_per_block": -0.4, "num_blocks": num_blocks, "jacobian_anisotropy": 51.3}
    return recording, Diagnosis("will-not-train", "The gradient does not reach the first layers.", findings, metrics)


@cache
def large() -> tuple[Recording, Diagnosis]:
    """A thousand blocks; not to be changed by a test."""
    return sick(1000)


def healthy(num_blocks: int = 12) -> tuple[Recording, Diagnosis]:
    """A stack without a finding."""
    return stack(num_blocks), Diagnosis("will-train", "The gradient reaches the first layers.", (), {"decades": 0.0})


def hostile() -> tuple[Recording, Diagnosis]:
    """Every name, path, message and origin is an attack."""
    recording = stack(len(HOSTILE_NAMES), names=HOSTILE_NAMES, decades_per_block=-0.4)
    every = " ".join(HOSTILE_NAMES)
    arguments = {"[b]": "\n[/b]"}
    told = {"target": every, "inputs": every, "loss": every}
    provenance = replace(recording.provenance, **told, inputs_synthetic=True, arguments=arguments)
    add(dict(recording.tables)["confessions"], what=every, why=every)
    findings = tuple(
        finding("GS101", "error", name, message=f"Module {name} is sick.", file=f"dir/{name}.py",
                advice=f"Mend {name}.", evidence={name: name})
        for name in HOSTILE_NAMES
    )  # fmt: skip
    diagnosis = Diagnosis("will-not-train", f"All of {every} is lost.", findings, {"decades": float("nan")})
    return Recording(provenance, recording.tables), diagnosis


def nothing_measured() -> tuple[Recording, Diagnosis]:
    """A recording that was interrupted before the first step ended."""
    recording = stack(0, steps=(0,))
    tables = {name: {column: [] for column in table} for name, table in recording.tables.items()}
    add(tables["confessions"], what="every gradient", why="the run was stopped before the first backward")
    partial = Recording(replace(recording.provenance, partial=True), tables)
    return partial, Diagnosis("cannot-say", "Nothing was measured.", (), {})


def finding(code: str, severity: Any, module: str, **fields: Any) -> Finding:
    known: dict[str, Any] = {"message": "It is sick.", "advice": "Mend it.", "file": "model.py", "line": 5}
    return Finding(code=code, severity=severity, module=module, **{**known, **fields})


def outcome(pair: tuple[Recording, Diagnosis], name: str = "model.py", **fields: Any) -> Outcome:
    recording, diagnosis = pair
    failing = tuple(found for found in diagnosis.findings if found.severity == "error")
    return Outcome(name, recording, diagnosis, failing=failing, **fields)
