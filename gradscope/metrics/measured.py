"""The numbers of a recording by step, place and metric, as they were measured."""

from __future__ import annotations

import math
from functools import cached_property

from gradscope.metrics.columns import Rows, by_step
from gradscope.metrics.depth import Station
from gradscope.metrics.described import Described
from gradscope.metrics.precision import Magnitudes


class Measured(Described):
    """A recording with its measurements indexed."""

    @cached_property
    def call_gradients(self) -> Rows:
        """Step -> row of the call table -> gradient norm of the output."""
        return by_step(self.recording, "call_stats", "call", "grad_norm")

    @cached_property
    def call_forwards(self) -> Rows:
        """Step -> row of the call table -> norm of the output."""
        return by_step(self.recording, "call_stats", "call", "forward_norm")

    @cached_property
    def call_absmax(self) -> Rows:
        """Step -> row of the call table -> largest absolute value of the output."""
        return by_step(self.recording, "call_stats", "call", "forward_absmax")

    @cached_property
    def parameter_gradients(self) -> Rows:
        """Step -> row of the parameter table -> gradient norm."""
        return by_step(self.recording, "parameter_stats", "parameter", "grad_norm")

    @cached_property
    def weight_norms(self) -> Rows:
        """Step -> row of the parameter table -> norm of the weights before the update."""
        return by_step(self.recording, "parameter_stats", "parameter", "weight_norm")

    @cached_property
    def update_norms(self) -> Rows:
        """Step -> row of the parameter table -> norm of the update that the optimizer made."""
        return by_step(self.recording, "parameter_stats", "parameter", "update_norm")

    @cached_property
    def observations(self) -> dict[str, dict[int, dict[tuple[str, int], float]]]:
        """Metric -> step -> (module, call) -> value."""
        found: dict[str, dict[int, dict[tuple[str, int], float]]] = {}
        table = self.recording.tables["observations"]
        columns = (table["metric"], table["step"], table["module"], table["call"], table["value"])
        for metric, step, module, call, value in zip(*columns, strict=True):
            if value is not None:
                found.setdefault(metric, {}).setdefault(step, {})[module or "", call or 0] = value
        return found

    def observed(self, metric: str, step: int | None = None) -> dict[tuple[str, int], float]:
        """Return (module, call) -> value of a metric at a step, by default the first at which it was measured."""
        steps = self.observations.get(metric, {})
        if not steps:
            return {}
        return steps.get(min(steps) if step is None else step, {})

    def observed_later(self, metric: str) -> dict[tuple[str, int], float]:
        """Return a metric's values at the last step at which it was measured, {} where that is the first as well."""
        steps = self.observations.get(metric, {})
        return steps[max(steps)] if len(steps) > 1 else {}

    def last_cosine(self, metric: str, *, later: bool = False) -> float | None:
        """Return a cosine at the station nearest to the loss where it was measured, at the first or the last step."""
        values = self.observed_later(metric) if later else self.observed(metric)
        if not values:
            return None
        order = {(station.module, station.call): station.row for station in self.returned}
        ranked = [(order.get(place, -1), number, value) for number, (place, value) in enumerate(values.items())]
        return max(ranked)[2]

    @cached_property
    def returned(self) -> tuple[Station, ...]:
        """The stations that are the main output of their call, so that what was measured there holds for them.

        A call that returns several tensors is measured by the first; the stream may be another one of them.
        """
        calls, stats = self.recording.tables["calls"], self.recording.tables["stream_stats"]
        shapes = dict(zip(zip(calls["module"], calls["call"], strict=True), calls["shape"], strict=True))
        sizes = dict(zip(stats["station"], stats["num_elements"], strict=True))
        found = []
        for station in self.stations:
            shape, size = shapes.get((station.module, station.call)), sizes.get(station.row)
            if shape is None or size is None or math.prod(shape) == size:
                found.append(station)
        return tuple(found)

    @cached_property
    def token_cosines(self) -> tuple[float, ...]:
        """Token cosines near the loss at the first and the last step; empty for a network without tokens."""
        both = (self.last_cosine("token_cosine"), self.last_cosine("token_cosine", later=True))
        return tuple(cosine for cosine in both if cosine is not None)

    @cached_property
    def magnitudes(self) -> dict[int, tuple[Magnitudes, ...]]:
        """Step -> gradient magnitudes by octave."""
        found: dict[int, list[Magnitudes]] = {}
        for row in self.recording.rows("histograms"):
            found.setdefault(row["step"], []).append(
                Magnitudes(
                    row["name"], row["kind"], row["first_log2"], tuple(row["counts"]), row["zeros"], row["nonfinite"]
                )
            )
        return {step: tuple(items) for step, items in found.items()}
