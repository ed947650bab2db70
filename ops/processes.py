"""Child processes whose output goes to the terminal, and what Ctrl-C means to them."""

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from ops.daemon import children, send

EXIT_INTERRUPTED = 130


def run_through(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a command with our own standard streams and return its exit code.

    On an interrupt it waits for the command, which got the signal too and may have to write its state down;
    then it raises KeyboardInterrupt.
    """
    codes: list[int] = []
    # In a thread, which no interrupt cuts off: one that came while the command was being started left it
    # running, and nobody waited for it.
    together(lambda: codes.append(subprocess.run(command, cwd=cwd, env=dict(env), check=False).returncode))
    return codes[0]


def handle_signals() -> None:
    """Make SIGINT and SIGTERM end this process once its children have had an interrupt, each exactly once."""
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, _interrupt)


def _interrupt(sign: int, _frame: FrameType | None) -> None:
    # A terminal sends Ctrl-C to the whole foreground group; a second SIGINT makes Pulumi drop everything.
    if not (sign == signal.SIGINT and _in_terminal_foreground()):
        for pid in children(os.getpid()):
            send(pid, signal.SIGINT)
    raise KeyboardInterrupt


def _in_terminal_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def together(*jobs: Callable[[], None]) -> None:
    """Run jobs side by side, wait for all of them, then raise the first one's error.

    An interrupt reaches the programs that they run, which then fail; the jobs are waited for all the same.
    """
    errors: list[BaseException] = []
    ended: list[Callable[[], None]] = []
    told: queue.SimpleQueue[None] = queue.SimpleQueue()

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread
            errors.append(error)
        ended.append(job)
        told.put(None)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    interrupted = False
    # Not `join`: where an interrupt ends it, Python 3.11 takes the thread for one that has ended.
    while len(ended) < len(threads):
        try:
            with suppress(queue.Empty):
                told.get(timeout=1)
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    if errors:
        raise errors[0]
