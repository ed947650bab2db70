"""One command at a time in a checkout."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.errors import UserError


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold the checkout's lock, or raise UserError that names who has it; it ends with its process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "another command"
            raise UserError(f"{holder} is at work in this checkout: wait until it has ended.") from None
        handle.truncate(0)
        handle.write(f"{what} (process {os.getpid()})\n")
        handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)
