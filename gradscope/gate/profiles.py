"""Names for the blocks of a depth profile, by which two runs are matched."""

from __future__ import annotations

from gradscope.metrics.depth import DepthProfile


def block_labels(profile: DepthProfile) -> list[tuple[str, int]]:
    """Return (label, index of the station) for the start and the end of every block; repeats are numbered."""
    seen: dict[str, int] = {}
    labels = []
    for index in profile.ends:
        station = profile.stations[index]
        name = station.block or station.name
        seen[name] = seen.get(name, 0) + 1
        labels.append((name if seen[name] == 1 else f"{name} ({seen[name]})", index))
    return labels
