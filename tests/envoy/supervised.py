"""An Envoy that runs as in the front end's container: by the script that has others take over from it."""

import os
import random
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ops.daemon import children
from tests.envoy.ground import DATA, Ground, Said
from tests.envoy.harness import ask, wait_for

RUN_SCRIPT = DATA / "envoy_run.sh"
_SOURCES = f". {DATA / 'envoy_files.sh'}; . {DATA / 'envoy_upgrade.sh'}"
# That of `publish.sh`, which is no library.
_PUT = 'put() { cp "$1" "$folder/.put" && chmod "$2" "$folder/.put" && mv "$folder/.put" "$folder/$4"; }'
END_S = 8


@dataclass
class FrontEnd:
    """A place, and what is to run there."""

    ground: Ground
    config: Path
    process: subprocess.Popen[bytes]
    base_id: int = field(default_factory=lambda: random.randint(1, 30_000))  # noqa: S311 - not a secret

    def arguments(self, *more: str, workers: int = 2) -> list[str]:
        """Envoy's, of this run."""
        return [
            *("-c", str(self.config), "--concurrency", str(workers), "--log-level", "warning"),
            *("--base-id", str(self.base_id), "--drain-time-s", str(END_S - 2)),
            *("--file-flush-interval-msec", "100", "--reject-unknown-dynamic-fields", *more),
        ]

    def stage(self, image: str, binary: Path, arguments: Sequence[str]) -> None:
        """Bring a binary and what is to run to the place, as the publisher does."""
        wanted = self.config.parent.parent / "wanted"
        wanted.write_text("".join(f"{line}\n" for line in (image, str(END_S), *arguments)))
        (self.ground.folder / ".next").mkdir(exist_ok=True)
        done = self._run("stage_run", wanted, binary, *self._where)
        assert done.code == 0, done.said

    def take_over(self, image: str, binary: Path, arguments: Sequence[str], patience_s: int = 40) -> Said:
        """Have another Envoy take over, as publisher and acceptance do."""
        self.stage(image, binary, arguments)
        return self._run("take_over", self.ground.folder / ".next", *self._where, patience_s)

    @property
    def _where(self) -> tuple[object, ...]:
        return self.ground.folder, "127.0.0.1", self.ground.status_port

    def _run(self, *arguments: object) -> Said:
        script = f'set -euo pipefail; folder={self.ground.folder}; {_SOURCES}; {_PUT}; "$@"'
        command = ["/bin/bash", "-c", script, "envoy", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return Said(done.returncode, done.stdout + done.stderr)

    def envoys(self) -> list[int]:
        """Processes of Envoys that live, the newest last; the script runs other things for a moment."""
        return sorted(pid for pid in children(self.process.pid) if _name(pid).startswith("envoy-"))

    def alone(self) -> None:
        """Waits until no Envoy from before is left."""
        wait_for("one Envoy is left", lambda: len(self.envoys()) == 1)

    @property
    def runs(self) -> str:
        """Version and epoch of the one that answers."""
        info = ask("127.0.0.1", self.ground.admin_port, "GET", "/server_info").json()
        options = info["command_line_options"]
        assert isinstance(options, dict)
        return f"{str(info['version']).split('/')[1]} {options['restart_epoch']}"

    def said(self) -> list[str]:
        """What the script says of what is to run."""
        return (self.ground.folder / ".said" / "envoy").read_text().splitlines()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


@dataclass
class Runner:
    """Starts a front end on a place; `made` is it."""

    binary: Path
    image: str = "first"
    edit: str = ""
    made: FrontEnd | None = None

    @contextmanager
    def __call__(self, ground: Ground, config: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """As `site` asks for it."""
        with log.open("wb") as output:
            front_end = FrontEnd(ground, config, process=None)  # type: ignore[arg-type]
            front_end.stage(self.image, self.binary, front_end.arguments())
            command = ["/bin/bash", str(RUN_SCRIPT), str(ground.folder), str(ground.admin_port)]
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        front_end.process, self.made = process, front_end
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                for envoy in front_end.envoys():
                    os.kill(envoy, signal.SIGKILL)
                process.kill()
                process.wait()
