"""What theory expects of the gradient at every station: the laws of stream and size, from the loss to the input."""

from __future__ import annotations

from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.facts import Facts
from gradscope.metrics.law import SiteGrowth, predicted_decades


def expected_decades(facts: Facts, profile: DepthProfile) -> tuple[float, ...] | None:
    """Return the expected G_l per station of a profile, in decades; None where neither law applies.

    The law that explains more of D is taken: `law.predicted_decades`, or `law.size_decades`.
    """
    of_size, of_stream = facts.size_decades(profile), facts.predicted_decades(profile.step)
    if of_size is not None and abs(of_size) > max(of_stream or 0.0, 0.0):
        return profile.size_law
    return _of_stream(facts, profile)


def _of_stream(facts: Facts, profile: DepthProfile) -> tuple[float, ...] | None:
    """Return the stream law, summed over the additions above each station: 0 at the last, D_pred at the first."""
    depths = facts.recording.tables["sites"]["depth"]
    growth: dict[int, float] = {}
    for site in facts.sites_at(profile.step):
        if not site.on_stream or not site.counted:
            continue
        one = predicted_decades([SiteGrowth(site.normalised, site.skip_norm, site.out_norm, site.skip_scale)])
        if one is not None:
            growth[depths[site.row]] = growth.get(depths[site.row], 0.0) + one
    if not growth:
        return None
    expected = []
    above = sum(growth.values())
    passed = sorted(growth, reverse=True)
    for station in profile.stations:
        while passed and passed[-1] <= station.row:
            above -= growth[passed.pop()]
        expected.append(above)
    expected[0] += facts.faint_rows_decades(profile.step)
    return tuple(value - expected[-1] for value in expected)
