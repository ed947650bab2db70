"""Says what a set-up step does, how long it usually takes, and that it is still alive."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TERMINAL_INTERVAL_S = 1.0
LOG_INTERVAL_S = 20.0


@contextmanager
def step(title: str, usual: str) -> Iterator[None]:
    """Announce a step, show a heartbeat while it runs, then how long it took.

    Everything goes to standard error, so that a command's own output stays clean for a shell to read.
    `usual` is a phrase such as "about 6 min on 2 cores".
    """
    started = time.monotonic()
    on_terminal = sys.stderr.isatty()
    line = f"{title} (usually {usual})"
    _write(f"{line} ..." if on_terminal else f"{line} ...\n")
    done = threading.Event()
    heart = threading.Thread(target=_beat, args=(done, line, title, started, on_terminal), daemon=True)
    heart.start()
    outcome = "failed after"
    try:
        yield
        outcome = "done in"
    finally:
        done.set()
        heart.join()
        prefix = "\r\x1b[K" if on_terminal else ""
        _write(f"{prefix}{title}: {outcome} {duration(time.monotonic() - started)}\n")


def note(text: str) -> None:
    """Print one line of information to standard error."""
    _write(f"{text}\n")


def duration(seconds: float) -> str:
    """Render a duration as a person says it: `0.4 s`, `12 s`, `6 min 3 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _beat(done: threading.Event, line: str, title: str, started: float, on_terminal: bool) -> None:
    interval = TERMINAL_INTERVAL_S if on_terminal else LOG_INTERVAL_S
    while not done.wait(interval):
        elapsed = duration(time.monotonic() - started)
        _write(f"\r\x1b[K{line} ... {elapsed}" if on_terminal else f"{title}: still at it after {elapsed}\n")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
