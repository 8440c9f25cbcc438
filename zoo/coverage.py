"""How much of a library can be inspected given nothing but its target string: load, forward, backward.

python -m zoo.coverage hf --all            every model type of transformers that coverage.csv does not have yet
python -m zoo.coverage torchvision --all   likewise; timm: one model of every file
python -m zoo.coverage hf bert llama       these, whether it has them or not
python -m zoo.coverage hf --failed         those that did not step, once more

Rows are written to zoo/coverage.csv as they come, so that a run may be stopped at any time, and docs/coverage.md at the
end. Each model runs in a forked process of its own, with limits on its processor time and memory.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

from zoo import coverage_page, coverage_table
from zoo.attempt import in_child
from zoo.commit import commit
from zoo.coverage_table import STEPS

IMPORTED_ONCE = {
    "hf": ("transformers.models.auto.modeling_auto", "transformers.models.llama.modeling_llama"),
    "timm": ("timm",),
    "torchvision": ("torchvision",),
}
"""What is imported before forking, so that no child pays for it."""
SMALL = ("test", "nano", "pico", "femto", "atto", "tiny", "xxs", "_s", "small", "050", "18")
"""Parts of the names of small models, smallest first."""


def main() -> int:
    """Run the chosen names and return the exit code."""
    options = _parser().parse_args()
    rows = coverage_table.read()
    for target in _chosen(options, rows):
        row = in_child(target, options.limit)
        rows[target] = {**row, "commit": commit()}
        coverage_table.write(rows)
        print(f"{target:44.44} {row['outcome']:20} {row['cpu_s']:>6} s  {row['detail'][:160]}", flush=True)
    coverage_page.write(rows, {library: len(names()) for library, names in NAMES.items()})
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=NAMES)
    parser.add_argument("names", nargs="*", help="these names only")
    parser.add_argument("--all", action="store_true", help="every name that coverage.csv lacks, in random order")
    parser.add_argument("--failed", action="store_true", help="the names of coverage.csv that did not step")
    parser.add_argument("--limit", type=int, default=90, help="seconds of processor time for one model")
    return parser


def _chosen(options: argparse.Namespace, rows: dict[str, coverage_table.Row]) -> list[str]:
    """Return the targets to run."""
    chosen = [f"{options.library}:{name}" for name in options.names]
    if options.failed:
        chosen += [t for t, r in rows.items() if t.startswith(f"{options.library}:") and r["outcome"] != STEPS]
    if options.all:
        left = [f"{options.library}:{name}" for name in NAMES[options.library]()]
        chosen += random.Random(0).sample(left, len(left))
        chosen = [target for target in chosen if target not in rows]
    for module in IMPORTED_ONCE[options.library] if chosen else ():
        importlib.import_module(module)
    return list(dict.fromkeys(chosen))


def _torchvision() -> list[str]:
    """Every builder but those of quantized models, which have no gradients."""
    import torchvision

    return [name for name in torchvision.models.list_models() if not name.startswith("quantized_")]


def _timm() -> list[str]:
    """One model of every file: one that was tried, or else the smallest by its name."""
    from timm.models._registry import _module_to_models

    tried = coverage_table.read()

    def rank(name: str) -> tuple[bool, int, str]:
        size = next((i for i, word in enumerate(SMALL) if word in name), len(SMALL))
        return f"timm:{name}" not in tried, size, name

    return [min(models, key=rank) for models in _module_to_models.values()]


def _transformers() -> list[str]:
    """Every model type that has a configuration."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return list(CONFIG_MAPPING_NAMES)


NAMES: dict[str, Callable[[], list[str]]] = {"torchvision": _torchvision, "timm": _timm, "hf": _transformers}

if __name__ == "__main__":
    sys.exit(main())
