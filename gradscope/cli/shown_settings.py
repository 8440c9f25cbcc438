"""`--show-settings`: what is in force, and where it comes from."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gradscope.cli.gate_settings import GateSettings
from gradscope.cli.request import Request
from gradscope.config import Config
from gradscope.report.names import visible


def shown_settings(requests: Sequence[Request], settings: GateSettings, config: Config) -> str:
    """Return the settings as one line each, in TOML's notation."""
    lines = [f"# configuration: {config.path.as_posix() if config.path else 'none found'}"]
    rows = {
        "select": list(settings.selection.select),
        "ignore": list(settings.selection.ignore),
        "fail-on": settings.fail_on,
        "baseline": str(settings.baseline_file) if settings.baseline_file else None,
        "against": [name for name, _ in settings.against] or None,
        "seeds": settings.seeds or "auto",
    }
    lines += [f"{key} = {_toml(value)}" for key, value in rows.items() if value is not None]
    lines += _table("per-module-ignores", {k: list(v) for k, v in settings.selection.per_module_ignores.items()})
    lines += _table("thresholds", {**settings.thresholds, **{f"GS701.{k}": v for k, v in settings.comparison.items()}})
    for request in requests:
        own = {"target": request.target, "arguments": dict(request.arguments), **request.settings}
        lines += _table(f"targets.{_key(request.name)}", own)
    return "\n".join(lines) + "\n"


def _table(name: str, rows: dict[str, object]) -> list[str]:
    return ["", f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in rows.items())] if rows else []


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _toml(name)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(str(k))} = {_toml(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(visible(str(value)), ensure_ascii=False)
