"""Judge every shared case and print what was expected beside what was found.

Run as ``GRADSCOPE_SHARED=... python -m tests.rules.cases_table [number ...]``; ``judge`` is what the test calls.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gradscope.errors import GradscopeError
from gradscope.rules import Diagnosis, diagnose

FAMILIES = {
    "vanishing": {"GS101", "GS107", "GS401"},
    "exploding": {"GS102", "GS107"},
    "nonfinite": {"GS104"},
    "dead": {"GS105"},
    "disconnected": {"GS106"},
}
"""Kind of a sick case -> the codes that name it."""


@dataclass(frozen=True)
class Judged:
    name: str
    kind: str
    where: str
    diagnosis: Diagnosis | None
    refusal: str
    seconds: float

    @property
    def wrong(self) -> str:
        """What is wrong with the judgement, "" where it is right."""
        if self.diagnosis is None:
            return "" if self.kind == "disconnected" else f"refused: {self.refusal}"
        errors = [f for f in self.diagnosis.findings if f.severity == "error"]
        codes = FAMILIES.get(self.kind)
        if codes is None:
            return f"errors in a healthy model: {[(f.code, f.module) for f in errors]}" if errors else ""
        right = [f for f in errors if f.code in codes]
        if not right:
            return f"no {self.kind} among {[(f.code, f.module) for f in errors]}"
        if not any(inside(f.module, self.where) for f in right):
            return f"blamed {[f.module for f in right]}, not {self.where!r}"
        if self.diagnosis.verdict not in ("will-not-train", "at-risk"):
            return f"verdict {self.diagnosis.verdict}"
        return ""


def inside(module: str, where: str) -> bool:
    return not where or module == where or module.startswith(where + ".")


def judge(path: Path) -> Judged:
    from gradscope.probe.settings import ProbeSettings
    from gradscope.probe.step import measure
    from gradscope.target import load

    expect = runpy.run_path(str(path))["EXPECT"]
    kind = expect.get("health") or expect["kind"]
    start = time.perf_counter()
    diagnosis, refusal = None, ""
    try:
        diagnosis = diagnose(measure(load(str(path)), ProbeSettings(device="cpu")))
    except GradscopeError as error:
        refusal = str(error)
    return Judged(path.stem, kind, expect["where"], diagnosis, refusal, time.perf_counter() - start)


def cases(folder: Path, chosen: list[str]) -> list[Path]:
    found = sorted((folder / "cases").glob("[0-9]*.py"))
    return [path for path in found if not chosen or path.stem[:3] in chosen]


def main() -> None:
    wrong = 0
    for path in cases(Path(os.environ["GRADSCOPE_SHARED"]), sys.argv[1:]):
        done = judge(path)
        wrong += bool(done.wrong)
        verdict = done.diagnosis.verdict if done.diagnosis else "refused"
        mark = "WRONG" if done.wrong else "ok"
        print(f"{mark:5} {done.name:34} {done.kind:22} {verdict:15} {done.seconds:5.1f} s  {done.wrong}")
        for finding in done.diagnosis.findings if done.diagnosis else ():
            print(f"        {finding.severity:7} {finding.code} {finding.module}: {finding.message}")
    print(f"{wrong} wrong")


if __name__ == "__main__":
    main()
