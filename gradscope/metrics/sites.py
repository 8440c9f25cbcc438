"""The residual additions of a recording, with their numbers and what their growth explains of D."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

from gradscope.metrics.law import SiteGrowth, predicted_decades
from gradscope.metrics.measured import Measured
from gradscope.metrics.residual import Site
from gradscope.record import Recording


class WithSites(Measured):
    """A recording with its residual additions."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._sites_at: dict[int, tuple[Site, ...]] = {}

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
        """Return D_pred at a step, in decades: of the stream law, and of rows of the start that are next to nothing."""
        law = predicted_decades(
            SiteGrowth(site.normalised, site.skip_norm, site.out_norm, site.skip_scale)
            for site in self.sites_at(step)
            if site.on_stream and site.counted
        )
        return None if law is None else law + self.faint_rows_decades(step)

    def faint_rows_decades(self, step: int) -> float:
        """Return how much larger rows of next to nothing make the gradient at the stream's start, in decades.

        The stream law for each row instead of for all together: a branch that normalises a row multiplies its gradient
        by ||out|| / ||skip|| of that row.
        """
        share = next(iter(self.observed("start_rows_share", step).values()), 1.0)
        return -math.log10(share) if 0.0 < share < 1.0 else 0.0
