"""What shrinks a gradient, as far as the record tells, and what to do about that."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median

from gradscope.metrics.columns import log10_ratio
from gradscope.metrics.depth import DepthProfile
from gradscope.metrics.facts import Facts
from gradscope.metrics.faint import gain, layers
from gradscope.metrics.weights import rms
from gradscope.rules.culprit import Place, station_label, station_module, surroundings
from gradscope.rules.numbers import factor, listed

MAIN_SHARE = 0.5
"""Share of the lost decades (fraction) that a cause must account for: more than all other causes together."""

UNDONE = 0.5
"""What norms give over their gain (median, fraction) below which they do not restore the size of what they read, half
meaning an epsilon of three times the variance; and gains (median, absolute) below which they shrink it themselves."""

MOST_NAMES = 3
"""Blocks (count) named as those that lose most."""


def advice(facts: Facts, profile: DepthProfile, place: Place, lost: float) -> str:
    """Return what to do about a loss, by the first cause that accounts for most of it.

    Args:
        facts: The recording.
        profile: The gradient along the stream.
        place: The block to blame.
        lost: Decades (log10), negative.
    """
    around = surroundings(facts)
    if place.alone:
        return (
            f"Look at `{station_module(place.station)}` first: a tiny scale factor, a saturated activation or a badly "
            "scaled weight in this one place costs most of the gradient."
        )
    if around.has_skips and around.post_norm:
        return (
            "The norm after each addition rescales the skip as well. Use Pre-LN or Peri-LN, or keep Post-LN with "
            "DeepNorm (both its alpha and its beta), Admin or B2T initialisation, and warm the learning rate up."
        )
    gains = [scale for _, scale in _norms_between(facts, profile.step)]
    if gains and median(gains) < UNDONE and faded_decades(profile) >= MAIN_SHARE * -lost:
        return (
            f"The activations fade as well (by a factor of {_shrink(profile)}): the norms that no skip goes around "
            f"start with gains of {median(gains):.2g} in size, where one keeps what they have normalised. Start "
            "them at one; an initialisation meant for weights may have been applied to norms too."
        )
    if around.has_skips:
        return _with_skips(facts, profile, -lost)
    if around.has_attention:
        return (
            "Add a skip around attention and around the feed-forward part, x + f(norm(x)). Without skips attention "
            "also averages the tokens into one; no initialisation repairs that."
        )
    if around.has_sigmoids:
        return (
            "Replace the sigmoids inside the stack by ReLU or GELU with He initialisation (a sigmoid passes at most "
            "a quarter of the gradient), or add skips around the blocks."
        )
    return (
        "Add skips around the blocks; or initialise at the critical scale: He (kaiming_normal_, nonlinearity='relu') "
        "for ReLU, orthogonal for tanh. PyTorch's default nn.Linear initialisation loses 0.39 decades per ReLU layer."
    )


def _with_skips(facts: Facts, profile: DepthProfile, lost: float) -> str:
    """Tell scaled skips from layers that no skip goes around; what is neither is said to be unknown."""
    if _scaled_decades(facts, profile.step) >= MAIN_SHARE * lost:
        return "Keep the skip an unscaled identity: a factor below one on it is multiplied once per block."
    kept, where = [kept for kept, _ in _norms_between(facts, profile.step)], listed(_steepest(profile))
    undone = bool(kept) and median(kept) < UNDONE
    if where and faded_decades(profile) >= MAIN_SHARE * lost:
        said = (
            f"The activations fade as well (by a factor of {_shrink(profile)}), most at {where}: layers there that no "
            "skip goes around pass little on in either direction"
        )
    else:
        thin = _thin(facts, profile.step) if undone or not kept else []
        if sum(decades for decades, _ in thin) < MAIN_SHARE * lost:
            return (
                "What shrinks it was not found: the skips are not scaled and the activations keep their size. Look at "
                f"the blocks that lose most{f', {where}' if where else ''}, for saturated activations, and factors or "
                "layers that no skip goes around."
            )
        names = listed([name for _, name in thin])
        said = f"Layers that no skip goes around have weights that pass little on in either direction ({names})"
    if undone:
        said += "; norms do not restore it, since what they read is so small that their epsilon outweighs its variance"
    return (
        f"{said}. Initialise them at the scale of their inputs (He, kaiming_normal_; 1/sqrt(fan-in) where no ReLU "
        "follows) instead of a fixed small standard deviation, or "
        + ("lower the epsilon." if undone else "put a norm behind each.")
    )


def _thin(facts: Facts, step: int) -> list[tuple[float, str]]:
    """Return the layers outside of all branches that shrink what they read: decades and module, the thinnest first."""
    inside, weights = _branches(facts, step), facts.weight_norms.get(step, {})
    outside = [p for p in layers(facts) if not inside & set(_with_parents(p.module))]
    shrinks = [(-math.log10(gain(p, norm)), p.module) for p in outside if (norm := weights.get(p.row))]
    return sorted((pair for pair in shrinks if pair[0] > 0.0), reverse=True)


def _branches(facts: Facts, step: int) -> set[str]:
    return {name for site in facts.sites_at(step) if site.counted for name in site.branches}


def _with_parents(module: str) -> list[str]:
    """Return a module's name and those of all that contain it."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _shrink(profile: DepthProfile) -> str:
    """Write the factor between the root mean squares of the stream at its start and where it is smallest."""
    pairs = zip(profile.forward_norm, profile.num_elements, strict=True)
    sizes = [size for norm, count in pairs if (size := rms(norm, count or 0))]
    return factor(log10_ratio(sizes[0], min(sizes)) or 0.0) if sizes else "0"


def _scaled_decades(facts: Facts, step: int) -> float:
    """Return the decades that constant factors on the skips of the stream take, multiplied."""
    sites = [site for site in facts.sites_at(step) if site.on_stream and site.counted]
    return -sum(math.log10(abs(site.skip_scale)) for site in sites if site.skip_scale and abs(site.skip_scale) < 1.0)


def faded_decades(profile: DepthProfile) -> float:
    """Return how many decades the root mean square of the stream falls, its rises (another stream) left out."""
    sizes = [rms(profile.forward_norm[i], profile.num_elements[i] or 0) for i in profile.ends]
    falls = [log10_ratio(below, above) or 0.0 for below, above in pairwise(sizes)]
    return sum(fall for fall in falls if fall > 0.0)


def _steepest(profile: DepthProfile) -> list[str]:
    """Return the blocks in which the gradient shrinks most, the steepest first."""
    changes = [(step, above) for (_, above), step in zip(profile.blocks, profile.increments, strict=True) if step]
    falling = sorted((step, above) for step, above in changes if step < 0.0)[:MOST_NAMES]
    return [station_label(profile.stations[above]) for _, above in falling]


def _norms_between(facts: Facts, step: int) -> list[tuple[float, float]]:
    """Return, of each call of a norm outside of all blocks with a skip, what it gives over its gain, and that gain.

    Gains of zero are left out: a design that starts as the identity closes its branches with them.
    """
    outputs, gains = facts.call_forwards.get(step, {}), facts.weight_norms.get(step, {})
    inside = {site.module for site in facts.sites_at(step) if site.counted} | _branches(facts, step)
    gain_of = {p.module: rms(gains.get(p.row), p.num_elements) for p in facts.parameters if p.name.endswith("weight")}
    shapes = facts.recording.tables["calls"]["shape"]
    found = []
    for module in facts.modules.values():
        scale = gain_of.get(module.name)
        if module.role != "norm" or not scale or inside & set(_with_parents(module.name)):
            continue
        sizes = (rms(outputs.get(row), math.prod(shapes[row] or (0,))) for row in facts.calls_of.get(module.name, ()))
        found += [(size / scale, scale) for size in sizes if size is not None]
    return found
