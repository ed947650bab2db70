"""Says what a set-up step does, how long it usually takes, and that it is still alive."""

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TERMINAL_INTERVAL_S = 1.0
LOG_INTERVAL_S = 20.0
CLEAR_LINE = "\r\x1b[K"

# Steps may run side by side; on a terminal they share its last line.
_running: dict[int, tuple[str, float]] = {}
_lock = threading.RLock()


@contextmanager
def step(title: str, usual: str) -> Iterator[None]:
    """Announce a step, show a heartbeat while it runs, then how long it took.

    Everything goes to standard error, so that a command's own output stays clean for a shell to read.
    `usual` is a phrase such as "about 6 min on 2 cores".
    """
    started = time.monotonic()
    note(f"{title} (usually {usual}) ...")
    done = threading.Event()
    heart = threading.Thread(target=_beat, args=(done, title, started), daemon=True)
    with _lock:
        _running[id(done)] = (title, started)
    heart.start()
    outcome = "failed after"
    try:
        yield
        outcome = "done in"
    finally:
        done.set()
        heart.join()
        with _lock:
            del _running[id(done)]
        note(f"{title}: {outcome} {duration(time.monotonic() - started)}")


def note(text: str) -> None:
    """Print one line of information to standard error."""
    with _lock:
        _write(f"{CLEAR_LINE if sys.stderr.isatty() else ''}{text}\n")


def duration(seconds: float) -> str:
    """Render a duration as a person says it: `0.4 s`, `12 s`, `6 min 3 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _beat(done: threading.Event, title: str, started: float) -> None:
    on_terminal = sys.stderr.isatty()
    while not done.wait(TERMINAL_INTERVAL_S if on_terminal else LOG_INTERVAL_S):
        if on_terminal:
            with _lock:
                _write(CLEAR_LINE + _status_line())
        else:
            note(f"{title}: still at it after {duration(time.monotonic() - started)}")


def _status_line() -> str:
    """What runs now, no longer than the terminal is wide: a wrapped line could not be cleared."""
    now = time.monotonic()
    shown = "; ".join(f"{title}: {duration(now - started)}" for title, started in _running.values())
    return shown[: shutil.get_terminal_size().columns - 1]


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
