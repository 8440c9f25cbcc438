"""Everything a rule asks of a recording, computed once when first asked for."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from gradscope.metrics.attention import AttentionBalance, attention_balances, fused_balances
from gradscope.metrics.columns import by_step
from gradscope.metrics.depth import Cliff, DepthProfile, cliff
from gradscope.metrics.described import Event, Module
from gradscope.metrics.law import excess_decades, size_decades
from gradscope.metrics.sites import WithSites
from gradscope.metrics.time import FEWEST_CALLS, TimeProfile, time_profiles

__all__ = ["Event", "Facts", "Module"]

FEWEST_STATIONS = 3
"""Stations (count) with a gradient that make a depth profile: two ends and something between them."""

LEAST_COUPLING = 1e-6
"""Share of a sample's gradient at other samples (fraction) below which it is the rounding of float32 (1e-14)."""


DIVERGED_RATIO = 100.0
"""Loss at a later step over that at the first beyond which plain SGD has left the network that was built; one that is
still to be trained rises tenfold at most."""


class Facts(WithSites):
    """A recording, indexed, with every metric the rules share; nothing is computed before it is asked for."""

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
        """The profile at the last watched step; None where there is only one, or where plain SGD has diverged by then.

        At the rate of the inspection it does for any network whose loss is multiplied: what is left is another network.
        """
        if len(self.profiles) < 2:  # noqa: PLR2004 - the first and a later one
            return None
        last = self.profiles[max(self.profiles)]
        if self.rescales_gradients or self.provenance.own_loop:
            return last
        first, later = self.losses.get(min(self.profiles)), self.losses.get(last.step)
        return None if first and later and later > DIVERGED_RATIO * first else last

    @cached_property
    def judged_profiles(self) -> tuple[DepthProfile, ...]:
        """The profiles at the first and the last watched step: what there was, and what the first steps made of it."""
        return tuple(profile for profile in (self.profile, self.later_profile) if profile)

    def excess_decades(self, profile: DepthProfile) -> float | None:
        """Return what the laws leave unexplained of a profile's D, in decades."""
        return excess_decades(profile.decades, self.predicted_decades(profile.step), self.size_decades(profile))

    def size_decades(self, profile: DepthProfile) -> float | None:
        """Return what the size of the stream explains of a profile's D; None where its size is not forgotten."""
        end = profile.ends[-1]
        if (profile.stations[end].module, profile.stations[end].call) not in self.observed("size_forgotten"):
            return None
        return size_decades(profile.forward_norm[0], profile.forward_norm[end], profile.num_elements[end])

    @cached_property
    def cliff(self) -> Cliff | None:
        """The largest single jump of the first profile, beyond what the size of the stream explains."""
        if self.profile is None:
            return None
        forgotten = self.size_decades(self.profile) is not None
        return cliff(self.profile, self.profile.size_law if forgotten else None)

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
        """Whether the stream runs through modules that are called again and again: its depth is time.

        With skips it does where all additions get their branches from the same modules.
        """
        branches = {site.branches for site in self._static_sites if site.counted and site.on_stream}
        if branches:
            calls = [len(self.calls_of.get(module, ())) for module in next(iter(branches))]
            return len(branches) == 1 and bool(calls) and min(calls) >= FEWEST_CALLS
        again = sum(n for module, n in self.passes.items() if len(self.calls_of.get(module, ())) >= FEWEST_CALLS)
        return 2 * again > self.passes.total()

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
        """Whether every sample depends on others, as under statistics over the batch."""
        return any(share > LEAST_COUPLING for share in self.observed("couples_samples").values())

    @cached_property
    def dtypes(self) -> frozenset[str]:
        """Floating dtypes of the module outputs."""
        return frozenset(str(d).removeprefix("torch.") for d in self.recording.tables["calls"]["dtype"] if d)
