"""Write docs/variants/: a page per family of built-in models with a picture of what each does to its gradient.

python -m benchmarks.variant_pages
"""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

import torch

from gradscope import variants
from gradscope.metrics.facts import Facts
from gradscope.probe import measure
from gradscope.probe.settings import ProbeSettings
from gradscope.record import Recording
from gradscope.variants.catalog import VARIANTS, Variant

FOLDER = Path(__file__).parents[1] / "docs" / "variants"
NUM_BLOCKS = 12
SKIPPED = ("resnet101", "resnet152")
"""The same blocks as resnet50, only more of them, and minutes of work."""
COLUMNS, WIDTH, HEIGHT, GAP = 3, 220, 96, 14
TITLES = {
    "transformer": "Transformers",
    "vision-transformer": "Vision Transformers",
    "resnet": "Residual networks for images",
    "block-stack": "The articles' residual block",
    "mlp": "Multi-layer perceptrons",
    "recurrent": "Recurrent networks",
}


def main() -> None:
    """Measure every variant at step 0 and write the pages."""
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for family, title in TITLES.items():
        members = [v for v in VARIANTS if v.family == family and v.name not in SKIPPED]
        profiles = {variant.name: _profile(_recording(variant)) for variant in members}
        (FOLDER / f"{family}.svg").write_text(_picture(profiles))
        (FOLDER / f"{family}.md").write_text(_page(title, family, members, profiles))
        print(family, len(members), flush=True)


def _recording(variant: Variant) -> Recording:
    arguments = {"layers": NUM_BLOCKS} if variant.family == "transformer" else {}
    settings = ProbeSettings(num_steps=1, watched_steps=(0,), jacobian=False)
    return measure(variants.subject(variant.name, arguments, 0), settings)


def _profile(recording: Recording) -> list[float]:
    """Return log10 of the gradient norm along the stream relative to its last station, where it is a number."""
    facts = Facts(recording)
    norms = [norm for norm in recording.tables["stream_stats"]["grad_norm"] if norm and math.isfinite(norm)]
    return [math.log10(norm / norms[-1]) for norm in norms] if norms and facts.steps else []


def _decades(profile: list[float]) -> str:
    return f"{profile[0]:+.2f}" if len(profile) > 1 else "–"


def _page(title: str, family: str, members: list[Variant], profiles: dict[str, list[float]]) -> str:
    depth = f" with {NUM_BLOCKS} blocks" if family == "transformer" else ""
    rows = [
        f"| `builtin:{v.name}` | {v.description} | {v.paper} | {_decades(profiles[v.name])} |" for v in members
    ]
    return "\n".join([
        f"# {title}",
        "",
        f"Measured at initialisation{depth}, each in its own initialisation, seed 0. D is the gradient at the start of",
        "the stream relative to its end, in decades. This page is written by `python -m benchmarks.variant_pages`.",
        "",
        f"![gradient along the stream of each, input on the left, log scale]({family}.svg)",
        "",
        "| target | wiring | source | D |",
        "|---|---|---|--:|",
        *rows,
        "",
    ])  # fmt: skip


def _picture(profiles: dict[str, list[float]]) -> str:
    """Draw small panels, one a variant, on one vertical scale of plus and minus three decades."""
    rows = -(-len(profiles) // COLUMNS)
    panels = [_panel(i, name, profile) for i, (name, profile) in enumerate(profiles.items())]
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="#fff"/>', *panels, "</svg>\n"])


LIMIT = 3.0
"""Decades up and down that a panel shows; what leaves it is cut at the edge."""


def _panel(number: int, name: str, profile: list[float]) -> str:
    left = GAP + number % COLUMNS * (WIDTH + GAP)
    top = GAP + number // COLUMNS * (HEIGHT + GAP)
    middle = top + 20 + (HEIGHT - 24) / 2
    scale = (HEIGHT - 24) / 2 / LIMIT
    step = WIDTH / max(len(profile) - 1, 1)
    points = " ".join(
        f"{left + i * step:.1f},{middle - max(-LIMIT, min(LIMIT, y)) * scale:.1f}" for i, y in enumerate(profile)
    )
    return (
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="#f6f8fa" rx="4"/>'
        f'<line x1="{left}" x2="{left + WIDTH}" y1="{middle}" y2="{middle}" stroke="#bbb" stroke-dasharray="3 3"/>'
        f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="2"/>'
        f'<text x="{left + 6}" y="{top + 14}" font-size="12">{escape(name)}</text>'
        f'<text x="{left + WIDTH - 6}" y="{top + 14}" font-size="12" text-anchor="end">{_decades(profile)}</text>'
    )


if __name__ == "__main__":
    main()
