"""The error funnel: run one command and turn whatever it raises into one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from gradscope.cli.debugging import debug_wanted
from gradscope.cli.direct import direct
from gradscope.cli.emit import close_quietly
from gradscope.errors import EXIT_CLEAN, EXIT_ERROR, EXIT_INTERRUPTED, GradscopeError

PROGRAM = "gradscope"


def _complain(error: GradscopeError) -> None:
    from gradscope.cli.complaint import complain  # late: most runs have nothing to complain about

    complain(error)


def run_command(arguments: Sequence[str]) -> int:
    """Parse the command line, run the command and return the exit code; raises nothing a user can cause."""
    if "_GRADSCOPE_COMPLETE" in os.environ:  # the shell asks for completions: typer's own way through
        from gradscope.cli.app import app

        app()
    run = direct(arguments) or _parsed(arguments)
    try:
        return run()
    except GradscopeError as error:
        _complain(error)
        _debug()
        return error.exit_code
    except KeyboardInterrupt:
        _complain(GradscopeError("interrupted; nothing had been measured yet."))
        return EXIT_INTERRUPTED
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # how rich says that the reader of a help page has gone
            return EXIT_CLEAN
        _complain(GradscopeError(f"the model's code called sys.exit({ended.code!r}).", rule="It must return a model."))
        return EXIT_ERROR
    except OSError as error:
        if error.errno != errno.EPIPE:
            return _unexpected(error)
        return EXIT_CLEAN  # whoever read our output has had enough
    except BaseException as error:
        usage = getattr(error, "format_message", None)  # typer's own complaints: a wrong option, a missing argument
        if usage is None:
            return _unexpected(error)
        _complain(GradscopeError(usage(), hint=_help_command(error)))
        return EXIT_ERROR
    finally:
        close_quietly(sys.stdout)


def _parsed(arguments: Sequence[str]) -> Callable[[], int]:
    """Load the parser and return what parses a command line and runs its command."""
    import typer
    from typer.main import get_command

    from gradscope.cli.app import app

    def run() -> int:
        command = get_command(app)
        try:
            with command.make_context(PROGRAM, list(arguments) or ["--help"]) as context:
                code = command.invoke(context)
        except typer.Exit as ended:
            return ended.exit_code
        return code if isinstance(code, int) else EXIT_CLEAN

    return run


def _unexpected(error: BaseException) -> int:
    hint = "the same command with --debug shows the traceback"
    told = f": {error}" if str(error) else ""
    _complain(GradscopeError(f"unexpected {type(error).__name__}{told}", hint=hint))
    _debug()
    return EXIT_ERROR


def _debug() -> None:
    if debug_wanted():
        traceback.print_exc()


def _help_command(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", PROGRAM)
    return f"{path} --help"
