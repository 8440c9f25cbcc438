"""The commands that follow from a report, quoted for a shell."""

from __future__ import annotations

import shlex

from gradscope.record import Provenance, Recording
from gradscope.rules.finding import Diagnosis


def next_commands(recording: Recording, diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Return (command, what it is for), most useful first."""
    codes = list(dict.fromkeys(finding.code for finding in diagnosis.findings if finding.severity != "info"))
    commands = [(f"gradscope explain {code}", "what it means and what to do") for code in codes[:1]]
    if recording.provenance.own_loop:
        script = recording.provenance.target
        commands.append((f"gradscope run --html report.html {script}", "one file to share"))
        commands.append((f"gradscope run --check {script}", "the same as a gate for CI"))
        return commands
    if not any(sign in recording.provenance.target for sign in ":./"):
        return commands  # a model handed over in Python: there is no target to type
    target = target_words(recording.provenance)
    commands.append((f"gradscope inspect {target} --html report.html", "one file to share"))
    commands.append((f"gradscope check {target}", "the same as a gate for CI"))
    return commands


def target_words(provenance: Provenance) -> str:
    """Rebuild the target and its arguments as the user would type them."""
    words = [provenance.target]
    for key, value in provenance.arguments.items():
        words += ["-a", f"{key}={value}"]
    return shlex.join(words)
