"""The commit that a row was measured on."""

from __future__ import annotations

import subprocess

from zoo.catalog import FOLDER


def commit() -> str:
    """Return the commit of this checkout, with a "+" where tracked Python files differ from it."""
    git = ("git", "-C", str(FOLDER))
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ":/*.py"], check=False).returncode
    return head.stdout.strip() + ("+" if head.stdout and changed else "")
