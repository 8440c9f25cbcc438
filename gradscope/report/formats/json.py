"""`json`: the machine view, one object for one target, `{"schema": 1, "runs": [...]}` for several."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gradscope.gate.outcome import Outcome
from gradscope.report.machine import MACHINE_SCHEMA, to_object


def json_object(outcomes: Sequence[Outcome]) -> str:
    """Render the outcomes; ASCII only, so that no encoding on the way can break it."""
    objects = [to_object(outcome.recording, outcome.diagnosis) for outcome in outcomes]
    content = objects[0] if len(objects) == 1 else {"schema": MACHINE_SCHEMA, "runs": objects}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
