"""Run the command line in this process and look at everything it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gradscope.__main__ import main


@dataclass(frozen=True)
class Done:
    """What a command returned and wrote."""

    code: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Done:
    """Run one command."""
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return Done(code, out, err)
