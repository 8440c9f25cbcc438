"""Whole processes: start-up of commands, and `inspect` against a bare script that takes the same steps."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 5
EXAMPLE = Path(__file__).parents[1] / "examples" / "pre_ln_gpt.py"

EMPTY_APP = "import typer\napp = typer.Typer()\n@app.command()\ndef main() -> None:\n    ...\napp()\n"
"""What `--help` is compared with: the least a typer program can do."""

BARE_SCRIPT = f"""
import runpy, torch
names = runpy.run_path({str(EXAMPLE)!r})
torch.manual_seed(0)
model, batch = names["model"](), names["batch"]()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(11):
    optimizer.zero_grad()
    names["loss"](model(*batch), batch).backward()
    optimizer.step()
"""
"""What `inspect` is compared with: import torch, build the same model and take the same eleven steps."""


def startup_lines() -> list[str]:
    """Return a Markdown table of whole-process ratios, pair by pair."""
    gradscope = [sys.executable, "-m", "gradscope"]
    with tempfile.TemporaryDirectory() as folder:
        empty, bare, run = (Path(folder, name) for name in ("empty.py", "bare.py", "run.json"))
        empty.write_text(EMPTY_APP)
        bare.write_text(BARE_SCRIPT)
        subprocess.run([*gradscope, "inspect", str(EXAMPLE), "-o", str(run)], check=True, capture_output=True)
        least, same = ("an empty typer app --help", [str(empty), "--help"]), ("a bare script, same steps", [str(bare)])
        rows = [
            (["--help"], least),
            (["explain", "GS101"], least),
            (["report", str(run)], least),
            (["inspect", str(EXAMPLE)], same),
        ]
        lines = ["| command | seconds | compared with | ratio |", "| --- | --- | --- | --- |"]
        for words, (other, reference) in rows:
            ours, ratio = _paired([*gradscope, *words], [sys.executable, *reference])
            shown = " ".join(Path(word).name for word in words)
            lines.append(f"| `gradscope {shown}` | {ours:.2f} | {other} | {ratio:.2f} |")
    return lines


def _paired(command: list[str], reference: list[str]) -> tuple[float, float]:
    _seconds(command), _seconds(reference)
    pairs = [(_seconds(command), _seconds(reference)) for _ in range(REPEATS)]
    return statistics.median(a for a, _ in pairs), statistics.median(a / b for a, b in pairs)


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start
