"""Where a run has its Envoy and the files for it, and the script that brings them there."""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from components.envoy_config import CONFIG_FOLDER
from components.envoy_edge import edge_files, filled, secret_files
from components.envoy_files import bootstrap_file, envoy_files
from components.plan import FrontEndPlan
from components.settings import ADMIN_PORT, STATUS_PORT
from tests.envoy import stand_ins

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ground:
    """Where a run has its Envoy: the folder that Envoy reads, and ports in place of those in a container."""

    folder: Path
    admin_port: int
    status_port: int

    def moved(self, text: str) -> str:
        """A file of the container's, for here: its listeners are on loopback."""
        for value, here in (
            ('"0.0.0.0"', '"127.0.0.1"'),
            (f"port_value: {ADMIN_PORT}\n", f"port_value: {self.admin_port}\n"),
            (f"port_value: {STATUS_PORT}\n", f"port_value: {self.status_port}\n"),
            (f'"{CONFIG_FOLDER}', f'"{self.folder}'),
        ):
            text = text.replace(value, here)
        return text

    def write(
        self, plan: FrontEndPlan, folder: Path, secrets: Callable[[], Mapping[str, str]] = stand_ins.secrets
    ) -> Path:
        """Writes every file of a plan; the path of its bootstrap."""
        bootstrap, text = bootstrap_file(plan)
        for file in secret_files(plan):
            (folder / file.name).write_text(filled(file, secrets()))
            (folder / file.name).chmod(0o600)
        for name, content in {bootstrap: text, **edge_files(plan), **envoy_files(plan)}.items():
            (folder / name).write_text(self.moved(content))
        return folder / bootstrap


DATA = ROOT / "components" / "data"
SCRIPT = DATA / "envoy_files.sh"


@dataclass(frozen=True)
class Said:
    """How the script ended, and what it said."""

    code: int
    said: str


def run_script(*arguments: object, work: Path, patience_s: int = 30, put_back_s: int = 15) -> Said:
    """A function of the script that gives Envoy its files, as the containers run it."""
    env = {
        **os.environ,
        "WORK": str(work),
        "PATIENCE_S": str(patience_s),
        "PUT_BACK_S": str(put_back_s),
    }
    begin = ["/bin/bash", "-c", f'set -euo pipefail; . {SCRIPT}; "$@"', "envoy"]
    done = subprocess.run(
        [*begin, *map(str, arguments)], env=env, capture_output=True, text=True, check=False
    )
    return Said(done.returncode, done.stdout + done.stderr)


def envoy_command(binary: Path, bootstrap: Path, workers: int = 2) -> list[str]:
    """The command line of an Envoy of this run."""
    return [
        *(str(binary), "-c", str(bootstrap), "--concurrency", str(workers), "--log-level", "warning"),
        *("--use-dynamic-base-id", "--drain-time-s", "15", "--file-flush-interval-msec", "100"),
        "--reject-unknown-dynamic-fields",
    ]


def rehearse(binary: Path, ground: Ground, bootstrap: Path) -> Said:
    """Starts an Envoy on the files of a place, until it took or refused them."""
    command = envoy_command(binary, bootstrap)
    return run_script("rehearse", ground.folder, ground.status_port, *command, work=ground.folder)
