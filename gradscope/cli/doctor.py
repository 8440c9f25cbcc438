"""`gradscope doctor`: versions and devices, ready to paste into a bug report."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
from typing import Annotated

import typer

from gradscope.cli.debugging import remember_debug
from gradscope.cli.emit import emit
from gradscope.errors import EXIT_CLEAN
from gradscope.version import __version__

HELP = """
Show versions and devices for a bug report. Names no host, user or folder.
"""
EXAMPLES = (
    "gradscope doctor",
    "gradscope doctor --json",
)

REQUIRED = ("torch", "typer", "rich", "pandas", "plotly", "jinja2")
OPTIONAL = ("transformers", "timm", "torchvision", "lightning", "accelerate", "safetensors")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", callback=remember_debug, help="Show the traceback of an error.")
    ] = False,
) -> int:
    """Print versions of what is installed and the devices torch sees."""
    facts = {**_versions(), **_devices()}
    if as_json:
        emit(json.dumps(facts, indent=2) + "\n")
    else:
        width = max(map(len, facts))
        emit("".join(f"{name:<{width}}  {_words(value)}\n" for name, value in facts.items()))
    return EXIT_CLEAN


def _words(value: str | int | None) -> str:
    return "not installed" if value is None else str(value)


def _versions() -> dict[str, str | int | None]:
    return {
        "gradscope": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: _version(name) for name in (*REQUIRED, *OPTIONAL)},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> dict[str, str | int | None]:
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch

    found: dict[str, str | int | None] = {"threads": torch.get_num_threads(), "cuda": torch.version.cuda or "none"}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory_gib = properties.total_memory / 2**30
        compute = f"{properties.major}.{properties.minor}"
        found[f"cuda:{index}"] = f"{properties.name}, {memory_gib:.0f} GiB, compute {compute}"
    return found
