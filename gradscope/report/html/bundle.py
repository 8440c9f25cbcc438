"""The plotting library, compressed, from the plotly that is installed."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files


@cache
def plotly_bundle() -> tuple[str, str]:
    """Return plotly's own script as (base64 of its gzip, content-security-policy hash of the script)."""
    script = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes().decode()
    script = script.replace("\r\n", "\n")
    return packed(script), script_hash(script)


def packed(text: str) -> str:
    """Compress a text so that `DecompressionStream("gzip")` reads it; the same text gives the same characters."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def script_hash(script: str) -> str:
    """Return what a content-security policy must list for an inline script to run."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"
