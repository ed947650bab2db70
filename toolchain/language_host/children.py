"""The programs that run now: they can be interrupted together, and waited for."""

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

GRACE_S = 4.0  # the engine kills the process group 5 s after it has interrupted it


class Children:
    """Starts programs in our own process group, so that an interrupt by the engine reaches them too."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._change = threading.Condition()

    @contextmanager
    def start(
        self, command: Sequence[str], *, cwd: str, env: Mapping[str, str], captured: bool
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command; on leaving, it has ended. Output goes to ours, or to pipes when `captured`."""
        output = subprocess.PIPE if captured else None
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, bufsize=0
        )
        with self._change:
            self._running.add(process)
        try:
            yield process
        finally:
            process.wait()
            with self._change:
                self._running.discard(process)
                self._change.notify_all()

    def interrupt(self) -> None:
        """Ask every running program to stop."""
        with self._change:
            for process in self._running:
                interrupt(process)

    def wait(self) -> None:
        """Wait until nothing runs, and end what outlives the engine's patience."""
        with self._change:
            if self._change.wait_for(lambda: not self._running, timeout=GRACE_S):
                return
            for process in self._running:
                process.kill()


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Send an interrupt to a process that may have ended meanwhile."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
