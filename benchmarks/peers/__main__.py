"""Make an environment with the other tools, and measure them and gradscope in the same run.

python -m benchmarks.peers [--only WORKLOAD] [--venv FOLDER] [--output FILE]

The environment lies in benchmarks/work/peers, which git ignores, and is kept for the next time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("torchlens", "torchinstruments", "torch-module-monitor", "ormas-monitor", "wandb", "lightning")


def main() -> int:
    """Install what is missing and hand over to the environment's own Python."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / "benchmarks" / "work" / "peers")
    parser.add_argument("--only", default="")
    parser.add_argument("--pairs-s", help="seconds of pairs for each tool and network")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    python = options.venv / "bin" / "python"
    if not python.exists():
        venv.create(options.venv, with_pip=True)
        _install(python)
    arguments = ["--only", options.only]
    arguments += ["--pairs-s", options.pairs_s] if options.pairs_s else []
    arguments += ["--output", str(options.output)] if options.output else []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    return subprocess.run([python, "-m", "benchmarks.peers.table", *arguments], env=environment, check=False).returncode


def _install(python: Path) -> None:
    """Install our torch first, then each tool by itself: one that cannot be had does not take the others with it."""
    import torch

    pip = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, f"torch=={torch.__version__.partition('+')[0]}"], check=True)
    subprocess.run([*pip, str(ROOT)], check=True)
    for package in PACKAGES:
        if subprocess.run([*pip, package], check=False).returncode:
            print(f"{package} cannot be installed; its row will say so", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
