"""Which findings count: codes and prefixes selected and ignored, everywhere or for modules that match a glob."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from gradscope.config import nearest
from gradscope.errors import ConfigError
from gradscope.rules.finding import Finding

ALL = "ALL"
"""The prefix of every code."""


@dataclass(frozen=True)
class Selection:
    """What to keep. The most specific prefix wins; of two equally specific ones, the ignore.

    Attributes:
        select: Codes and prefixes that count.
        ignore: Codes and prefixes that do not.
        per_module_ignores: The same by module glob ("encoder.*"), whatever `select` says.
    """

    select: tuple[str, ...] = (ALL,)
    ignore: tuple[str, ...] = ()
    per_module_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def keeps(self, finding: Finding) -> bool:
        """Say whether the finding counts."""
        if not self.keeps_code(finding.code):
            return False
        return not any(
            fnmatchcase(finding.module, glob) and _specificity(finding.code, codes) >= 0
            for glob, codes in self.per_module_ignores.items()
        )

    def keeps_code(self, code: str) -> bool:
        """Say whether findings of a code count anywhere."""
        return _specificity(code, self.select) > _specificity(code, self.ignore)


def split_codes(values: Iterable[str]) -> tuple[str, ...]:
    """Split repeated, comma-separated options into codes.

    Examples:
        >>> split_codes(["gs1, GS203", "GS4"])
        ('GS1', 'GS203', 'GS4')
    """
    return tuple(code.strip().upper() for value in values for code in value.split(",") if code.strip())


def check_codes(codes: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a code or prefix that no rule has: a typing mistake must not switch a gate off.

    Raises:
        ConfigError: Some code matches no rule.
    """
    for code in codes:
        if code.upper() != ALL and not any(rule.startswith(code.upper()) for rule in known):
            raise ConfigError(
                f"no rule has the code or prefix '{code}'.", rule=nearest(code.upper(), known), hint="gradscope rules"
            )


def _specificity(code: str, prefixes: Iterable[str]) -> int:
    """Return the length of the longest prefix that matches, -1 where none does."""
    return max((0 if p == ALL else len(p) for p in prefixes if p == ALL or code.startswith(p)), default=-1)
