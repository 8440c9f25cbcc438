"""What single model types need beyond the common rules: sizes that hang together in ways no name tells.

Each line is a fact about that architecture, found by reading its configuration and modelling files.
"""

from __future__ import annotations

from typing import Any

FACTS: dict[str, dict[str, Any]] = {}
FIRST_CLASS: dict[str, str] = {}
