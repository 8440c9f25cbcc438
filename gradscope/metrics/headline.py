"""The headline numbers of a whole model, by the names of the machine view; None where not measured."""

from __future__ import annotations

from gradscope.metrics.columns import middle
from gradscope.metrics.facts import Facts
from gradscope.metrics.precision import FORMAT_FLOOR_LOG2, fraction_below, largest_log2, recommended_loss_scale_log2
from gradscope.metrics.replicas import PER_BLOCK, TOTAL, interval_of
from gradscope.metrics.residual import effective_path_length
from gradscope.metrics.weights import update_to_weight

Metrics = dict[str, float | int | None]


def headline(facts: Facts) -> Metrics:
    """Return the model's headline metrics; the unit of each is in docs/json.md and in the metric it comes from."""
    return {**_depth(facts), **_signal(facts), **_residual(facts), **_updates(facts), **_precision(facts)}


def _depth(facts: Facts) -> Metrics:
    profile, later = facts.profile, facts.later_profile
    total = interval_of(facts, TOTAL)
    slope = interval_of(facts, PER_BLOCK) or (profile.decades_per_block if profile else None)
    return {
        "decades": profile.decades if profile else None,
        "decades_per_block": slope.mean if slope else None,
        "decades_per_block_low": slope.low if slope else None,
        "decades_per_block_high": slope.high if slope else None,
        "num_seeds": total.num_values if total else None,
        "decades_over_seeds": total.mean if total else None,
        "decades_low": total.low if total else None,
        "decades_high": total.high if total else None,
        "num_blocks": profile.num_blocks if profile else None,
        "decades_rms": profile.decades_rms if profile else None,
        "decades_from_first_block": profile.decades_from_first_block if profile else None,
        "predicted_decades": facts.predicted_decades(profile.step) if profile else None,
        "excess_decades": facts.excess_decades(profile) if profile else None,
        "later_decades": later.decades if later else None,
        "scale_free_decades": profile.scale_free_decades if profile else None,
        "largest_jump_decades": facts.cliff.jump_decades if facts.cliff else None,
        "time_decades": _worst([time.decades for time in facts.time_profiles]),
    }


def _signal(facts: Facts) -> Metrics:
    return {
        "jacobian_anisotropy": _worst(list(facts.observed("jacobian_anisotropy").values())),
        "token_cosine": facts.last_cosine("token_cosine"),
        "later_token_cosine": facts.last_cosine("token_cosine", later=True),
        "sample_cosine": facts.last_cosine("sample_cosine"),
        "query_key_to_value_log10": _lowest([balance.worst_log10 for balance in facts.attention_balances]),
        "attention_entropy": _lowest(list(facts.observed("attention_entropy").values())),
        "saturated_fraction": _worst(list(facts.observed("saturated_fraction").values())),
        "dead_fraction": _worst(list(facts.observed("dead_fraction").values())),
        "activation_peak": _worst(list(facts.observed("activation_peak").values())),
        "amplification": _worst(list(facts.observed("amplification").values())),
        "shattering_cosine": _lowest(list(facts.observed("shattering_cosine").values())),
        "gradient_cosine": _lowest(list(facts.observed("gradient_cosine").values())),
    }


def _residual(facts: Facts) -> Metrics:
    sites = [site for site in facts.sites if site.counted]
    return {
        "num_residual_additions": len(sites),
        "forward_ratio": middle(site.forward_ratio for site in sites),
        "backward_ratio": middle(site.backward_ratio for site in sites),
        "effective_path_length": effective_path_length(sites),
    }


def _updates(facts: Facts) -> Metrics:
    step = max(facts.update_norms, default=None)
    if step is None:
        return {"update_to_weight": None}
    weights, updates = facts.weight_norms.get(step, {}), facts.update_norms[step]
    matrices = [p.row for p in facts.trainable if p.is_matrix]
    return {"update_to_weight": middle(update_to_weight(updates.get(row), weights.get(row)) for row in matrices)}


def _precision(facts: Facts) -> Metrics:
    magnitudes = facts.magnitudes.get(min(facts.magnitudes), ()) if facts.magnitudes else ()
    seen = facts.observed("grad_log2_max").values()
    peak = max(seen) if seen else largest_log2(magnitudes)
    return {
        "underflow_fp16": _or(
            _worst(list(facts.observed("underflow_fp16").values())),
            fraction_below(magnitudes, FORMAT_FLOOR_LOG2["float16"]),
        ),
        "overflow_fp16": _worst(list(facts.observed("overflow_fp16").values())),
        "recommended_loss_scale_log2": recommended_loss_scale_log2(peak),
        "absorption_bf16": middle(facts.observed("absorption_bf16").values()),
        "absorption_fp16": middle(facts.observed("absorption_fp16").values()),
    }


def _worst(values: list[float | None] | list[float]) -> float | None:
    """Return the value farthest from zero, None of none."""
    known = [value for value in values if value is not None]
    return max(known, key=abs) if known else None


def _lowest(values: list[float | None] | list[float]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def _or(first: float | None, second: float | None) -> float | None:
    return second if first is None else first
