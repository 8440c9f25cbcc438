"""Start the command line, and turn every way it can end into one clear line and the right exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run gradscope; `python -m gradscope` and the console script both come here.

    Args:
        arguments: The command line without the program's name; the process's own by default.

    Returns:
        0 done (for `check`: clean), 1 findings, 2 anything else, 130 interrupted.
    """
    # Nothing may leave here as an exception: Python would exit with 1, which `check` means as "findings".
    try:
        from gradscope.cli.funnel import run_command

        return run_command(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # an installation so broken that not even the funnel could be loaded
        if os.environ.get("GRADSCOPE_DEBUG"):
            raise
        print(f"error: gradscope cannot start ({type(error).__name__}: {error}).", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
