"""What every table of measurements begins with, printed while it grows."""

from __future__ import annotations

import platform
import time

import torch


def say(line: str) -> str:
    """Print a line at once, and return it."""
    print(line, flush=True)
    return line


def header(device: torch.device) -> str:
    """Return date, torch's version, machine and threads."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"
    threads = torch.get_num_threads()
    return f"{time.strftime('%Y-%m-%d')} · torch {torch.__version__} · {name} · {threads} thread(s)"
