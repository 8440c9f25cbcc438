"""Read predictors and verdicts off the recordings, with the rules as they are now."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.calibration import results
from benchmarks.calibration.measuring import OPTIMIZERS, recording_path
from benchmarks.calibration.training import AnyNetwork
from gradscope.record import Recording
from gradscope.rules import diagnose

METRICS = (
    "decades", "excess_decades", "later_decades", "decades_per_block", "num_blocks", "scale_free_decades",
    "time_decades", "jacobian_anisotropy", "token_cosine", "later_token_cosine", "sample_cosine",
    "query_key_to_value_log10",
)  # fmt: skip


def judge_all(chosen: Sequence[AnyNetwork]) -> None:
    """Judge every recording anew and write all predictors."""
    rows = []
    for network in chosen:
        for optimizer in OPTIMIZERS:
            path = recording_path(network.name, optimizer)
            if path.exists():
                rows.append(_row(network, optimizer, Recording.load(path)))
    results.write(results.PREDICTORS, rows)


def _row(network: AnyNetwork, optimizer: str, recording: Recording) -> dict[str, object]:
    diagnosis = diagnose(recording)
    errors = sorted({finding.code for finding in diagnosis.findings if finding.severity == "error"})
    warnings = sorted({finding.code for finding in diagnosis.findings if finding.severity == "warning"})
    return {
        "name": network.name,
        "optimizer": optimizer,
        "verdict": diagnosis.verdict,
        "errors": " ".join(errors),
        "warnings": " ".join(warnings),
        **{metric: diagnosis.metrics.get(metric) for metric in METRICS},
    }
