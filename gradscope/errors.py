"""The one kind of error a user can cause: what was wrong, the rule, and what to type next."""

from __future__ import annotations

EXIT_CLEAN = 0
EXIT_FINDINGS = 1
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


class GradscopeError(Exception):
    """A mistake in what gradscope was given, told in one clear line.

    Args:
        what: What was wrong, quoting what the user wrote.
        rule: What would have been right.
        hint: The next command to type, or the line to add, ready to paste.
        file: The user's file the error points at.
        line: The line in that file (1-based).
    """

    exit_code = EXIT_ERROR

    def __init__(
        self, what: str, *, rule: str = "", hint: str = "", file: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.rule = rule
        self.hint = hint
        self.file = file
        self.line = line

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.rule) if part)


class TargetError(GradscopeError):
    """The target could not be found, imported or built."""


class InputsError(GradscopeError):
    """No inputs could be found for the model, or they do not fit it."""


class LossError(GradscopeError):
    """There is no scalar loss with a gradient."""


class ModelError(GradscopeError):
    """The user's own code raised while it was being watched."""


class InferenceOnlyError(ModelError):
    """The model's forward turns gradients off: nothing can be seen of its training."""


class ConfigError(GradscopeError):
    """An unknown or ill-typed setting."""


class RecordError(GradscopeError):
    """A recording that cannot be read or written."""


class MissingLibraryError(GradscopeError):
    """An optional library that the target names is not installed."""
