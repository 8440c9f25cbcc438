"""Writing results: to stdout, whatever its encoding and even when its reader has gone, or to a file in full."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TextIO

from gradscope.record import write_atomically


def emit(text: str, file: Path | None = None) -> None:
    """Write a result to a file, or to stdout where there is none.

    Raises:
        RecordError: The file cannot be written.
    """
    if file is not None:
        write_atomically(file, text.encode())
    else:
        write_text(sys.stdout, text)


def write_text(stream: TextIO, text: str) -> None:
    """Write text; what the encoding cannot carry is escaped, and a reader that has gone is no error."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EINVAL):  # EINVAL: the same on Windows
            raise
        _discard(stream)


def close_quietly(stream: TextIO) -> None:
    """Flush what is left, so that a reader that has gone is found here and not at the interpreter's exit."""
    try:
        stream.flush()
    except (OSError, ValueError):
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Send the rest of a stream nowhere."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
