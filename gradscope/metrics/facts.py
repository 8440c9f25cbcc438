"""Everything a rule asks of a recording, computed once when first asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gradscope.metrics.attention import AttentionBalance, attention_balances, fused_balances
from gradscope.metrics.columns import Rows, by_step
from gradscope.metrics.depth import Cliff, DepthProfile, Station, cliff
from gradscope.metrics.law import SiteGrowth, excess_decades, predicted_decades
from gradscope.metrics.precision import Magnitudes
from gradscope.metrics.residual import Site
from gradscope.metrics.time import FEWEST_CALLS, TimeProfile, time_profiles
from gradscope.metrics.weights import Parameter
from gradscope.record import Provenance, Recording

FEWEST_STATIONS = 3
"""Stations (count) with a gradient that make a depth profile: two ends and something between them."""


@dataclass(frozen=True)
class Module:
    """A module of the model: its name, class, role, whether it was called, where its class is written."""

    name: str
    type: str
    role: str
    num_parameters: int
    called: bool
    file: str | None
    line: int | None


@dataclass(frozen=True)
class Event:
    """Something that happened at a place (see the recording's `events` table)."""

    step: int | None
    kind: str
    module: str
    call: int
    op: str | None
    file: str | None
    line: int | None
    detail: str | None


class Facts:
    """A recording, indexed, with every metric the rules share; nothing is computed before it is asked for."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._sites_at: dict[int, tuple[Site, ...]] = {}

    # Steps ------------------------------------------------------------------------------------------------------

    @property
    def provenance(self) -> Provenance:
        """Where the recording comes from."""
        return self.recording.provenance

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The watched steps, ascending."""
        return tuple(sorted(set(self.recording.watched_steps)))

    @cached_property
    def losses(self) -> dict[int, float | None]:
        """Loss per watched step."""
        return dict(zip(self.recording.tables["steps"]["step"], self.recording.tables["steps"]["loss"], strict=True))

    @cached_property
    def learning_rate(self) -> float | None:
        """The optimizer's learning rate, where known."""
        rates = [rate for rate in self.recording.tables["steps"]["lr"] if rate is not None]
        return rates[-1] if rates else self.provenance.lr

    @property
    def optimizer(self) -> str:
        """Name of the optimizer in lower case, "" where the weights were not updated."""
        name = (self.provenance.optimizer or "").lower()
        return "" if name == "none" else name

    @property
    def rescales_gradients(self) -> bool:
        """Whether the optimizer rescales every tensor's gradient (Adam and its kin), so that it forgives small ones."""
        return "sgd" not in self.optimizer

    # Static structure -------------------------------------------------------------------------------------------

    @cached_property
    def modules(self) -> dict[str, Module]:
        """Modules by name, in the model's order."""
        fields = Module.__dataclass_fields__
        rows = self.recording.rows("modules")
        return {row["name"]: Module(**{field: row[field] for field in fields}) for row in rows}

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters in the model's order, one per tensor name."""
        return tuple(
            Parameter(
                row=number,
                name=row["name"],
                module=row["module"],
                shape=tuple(row["shape"] or ()),
                dtype=row["dtype"] or "",
                num_elements=row["num_elements"] or 0,
                requires_grad=bool(row["requires_grad"]),
                role=row["role"],
                takes_part=row["takes_part"],
                shared=row["shared_with"] is not None,
            )
            for number, row in enumerate(self.recording.rows("parameters"))
        )

    @cached_property
    def trainable(self) -> tuple[Parameter, ...]:
        """Parameters that are meant to learn, each tensor once."""
        return tuple(p for p in self.parameters if p.requires_grad and not p.shared)

    @cached_property
    def call_modules(self) -> list[str]:
        """Module of every row of the call table, in the order in which the calls ended."""
        return self.recording.tables["calls"]["module"]

    @cached_property
    def calls_of(self) -> dict[str, list[int]]:
        """Rows of the call table per module, in order of call."""
        found: dict[str, list[int]] = {}
        for row, module in enumerate(self.call_modules):
            found.setdefault(module, []).append(row)
        return found

    @cached_property
    def stations(self) -> tuple[Station, ...]:
        """The stream's stations from the input to the loss."""
        calls = self.recording.tables["calls"]["call"]
        return tuple(
            Station(
                row=number,
                name=row["name"],
                kind=row["kind"],
                block=row["block"],
                module=row["module"] or "",
                call=calls[row["call"]] if row["call"] is not None and row["call"] < len(calls) else 0,
            )
            for number, row in enumerate(self.recording.rows("stream"))
        )

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Events in the order in which they were recorded."""
        rows = self.recording.rows("events")
        return tuple(Event(**{**row, "call": row["call"] or 0, "module": row["module"] or ""}) for row in rows)

    def events_of(self, *kinds: str) -> tuple[Event, ...]:
        """Events of the given kinds, in order."""
        return tuple(event for event in self.events if event.kind in kinds)

    def place(self, module: str) -> tuple[str | None, int | None]:
        """Return file and line of the user's code nearest to a module (or parameter): its class, else its parents'."""
        while True:
            found = self.modules.get(module)
            if found is not None and found.file is not None:
                return found.file, found.line
            if not module:
                return None, None
            module = module.rpartition(".")[0]

    def was_called(self, module: str) -> bool:
        """Whether the module was called in a watched forward."""
        found = self.modules.get(module)
        return found is not None and bool(found.called)

    # Measured ---------------------------------------------------------------------------------------------------

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
        order = {(station.module, station.call): station.row for station in self.stations}
        ranked = [(order.get(place, -1), number, value) for number, (place, value) in enumerate(values.items())]
        return max(ranked)[2]

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

    # Derived ----------------------------------------------------------------------------------------------------

    @cached_property
    def profiles(self) -> dict[int, DepthProfile]:
        """Step -> gradient profile along the stream, where three stations or more have a gradient."""
        gradients = by_step(self.recording, "stream_stats", "station", "grad_norm")
        forwards = by_step(self.recording, "stream_stats", "station", "forward_norm")
        counts = by_step(self.recording, "stream_stats", "station", "num_elements")
        found = {}
        for step, grads in gradients.items():
            seen = [station for station in self.stations if grads.get(station.row) is not None]
            while seen and seen[-1].kind == "end":
                seen.pop()
            if len(seen) >= FEWEST_STATIONS:
                found[step] = DepthProfile(
                    step,
                    tuple(seen),
                    tuple(grads[station.row] for station in seen),
                    tuple(forwards[step].get(station.row) for station in seen),
                    tuple(counts[step].get(station.row) for station in seen),
                )
        return found

    @cached_property
    def profile(self) -> DepthProfile | None:
        """The profile at the first watched step: initialisation, where the theory holds."""
        return self.profiles[min(self.profiles)] if self.profiles else None

    @cached_property
    def later_profile(self) -> DepthProfile | None:
        """The profile at the last watched step; None where there is only one."""
        return self.profiles[max(self.profiles)] if len(self.profiles) > 1 else None

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """Residual additions at the first watched step."""
        return self.sites_at(self.steps[0]) if self.steps else self._static_sites

    def sites_at(self, step: int) -> tuple[Site, ...]:
        """Residual additions with their numbers at a step, in order of execution."""
        if step not in self._sites_at:
            numbers = self._site_numbers.get(step, {})
            self._sites_at[step] = tuple(
                replace(site, **numbers[site.row]) if site.row in numbers else site for site in self._static_sites
            )
        return self._sites_at[step]

    @cached_property
    def _site_numbers(self) -> dict[int, dict[int, dict[str, Any]]]:
        table = self.recording.tables["site_stats"]
        names = [name for name in table if name not in ("step", "site")]
        found: dict[int, dict[int, dict[str, Any]]] = {}
        for number, (step, site) in enumerate(zip(table["step"], table["site"], strict=True)):
            found.setdefault(step, {})[site] = {name: table[name][number] for name in names}
        return found

    @cached_property
    def _static_sites(self) -> tuple[Site, ...]:
        rows = enumerate(self.recording.rows("sites"))
        calls = self.recording.tables["calls"]["call"]
        return tuple(
            Site(
                row=number,
                name=row["name"],
                module=row["module"] or "",
                call=calls[row["call"]] if row["call"] is not None else 0,
                kind=row["kind"],
                placement=row["placement"] or "none",
                normalised=self._is_normalised(row["placement"] or "none", row["branches"] or ()),
                branches=tuple(row["branches"] or ()),
                skip_scale=row["skip_scale"],
                branch_scale=row["branch_scale"],
                on_stream=row["depth"] is not None and not row["recurrent"],
                counted=bool(row["counted"]),
                file=row["file"],
                line=row["line"],
            )
            for number, row in rows
        )

    def _is_normalised(self, placement: str, branches: list[str] | tuple[()]) -> bool:
        if placement in ("pre", "sandwich", "output"):
            return True
        if placement == "post":
            return False
        return any(name in self._normed for name in branches)

    @cached_property
    def _normed(self) -> frozenset[str]:
        """Modules that are norms or contain one."""
        found = set()
        for module in self.modules.values():
            name = module.name
            while module.role == "norm" and name and name not in found:
                found.add(name)
                name = name.rpartition(".")[0]
        return frozenset(found)

    def predicted_decades(self, step: int) -> float | None:
        """Return D_pred of the stream law at a step, in decades."""
        return predicted_decades(
            SiteGrowth(site.normalised, site.skip_norm, site.out_norm, site.skip_scale)
            for site in self.sites_at(step)
            if site.on_stream and site.counted
        )

    def excess_decades(self, profile: DepthProfile) -> float | None:
        """Return what the law leaves unexplained of a profile's D, in decades."""
        return excess_decades(profile.decades, self.predicted_decades(profile.step))

    @cached_property
    def cliff(self) -> Cliff | None:
        """The largest single jump of the first profile."""
        return cliff(self.profile) if self.profile else None

    @cached_property
    def time_profiles(self) -> tuple[TimeProfile, ...]:
        """Gradients through time at the first watched step, of modules that are called again and again.

        A state keeps its size over time. Outputs of different sizes are one head used for several maps, as for the
        levels of a feature pyramid.
        """
        if not self.steps:
            return ()
        step = self.steps[0]
        shapes = self.recording.tables["calls"]["shape"]
        of_one_size = {
            module: rows for module, rows in self.calls_of.items() if len({str(shapes[row]) for row in rows}) == 1
        }
        return time_profiles(of_one_size, self.call_gradients.get(step, {}), step)

    @cached_property
    def runs_through_time(self) -> bool:
        """Whether the stream runs through modules that are called again and again, without skips: its depth is time."""
        again = sum(n for module, n in self.passes.items() if len(self.calls_of.get(module, ())) >= FEWEST_CALLS)
        skips = any(site.counted and site.on_stream for site in self._static_sites)
        return 2 * again > self.passes.total() and not skips

    @cached_property
    def passes(self) -> Counter[str]:
        """How often the stream passes the output of each module, its start left out."""
        return Counter(station.module for station in self.stations if station.kind != "start")

    @cached_property
    def attention_balances(self) -> tuple[AttentionBalance, ...]:
        """Query, key and value gradients of every attention at the first watched step."""
        if not self.steps:
            return ()
        fused = {role: self.observed(f"{role}_grad_norm") for role in ("query", "key", "value")}
        apart = attention_balances(self.parameters, self.parameter_gradients.get(self.steps[0], {}))
        return (*apart, *fused_balances(fused))

    @cached_property
    def couples_samples(self) -> bool:
        """Whether statistics over the batch make every sample depend on all others."""
        norms = [module for module in self.modules.values() if module.called and module.role == "norm"]
        return self.provenance.mode != "eval" and any("BatchNorm" in module.type for module in norms)

    @cached_property
    def dtypes(self) -> frozenset[str]:
        """Floating dtypes of the module outputs."""
        return frozenset(str(d).removeprefix("torch.") for d in self.recording.tables["calls"]["dtype"] if d)
