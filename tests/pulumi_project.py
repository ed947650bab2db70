"""A copy of the program with a stack and state of its own, driven by the real Pulumi CLI."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from toolchain.tools import Toolchain

_COUNT = re.compile(r"^\s*[-+~]*\s*(\d+) (.+?)$", re.MULTILINE)
CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Run:
    """How a command ended and all that it printed."""

    code: int
    output: str

    def changes(self) -> dict[str, int]:
        """Counts of the summary (`replaced`, `unchanged`, …), empty where there is none."""
        summary = self.output.partition("Resources:")[2].partition("\n\n")[0]
        return {what: int(count) for count, what in _COUNT.findall(summary)}


class Project:
    """The program in a folder of its own: nothing that a test does reaches the checkout or its state."""

    def __init__(self, folder: Path, toolchain: Toolchain, env: Mapping[str, str]) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        for name in ("Pulumi.yaml", "__main__.py"):
            shutil.copy(CHECKOUT / name, self.folder)
        for name in ("components", ".venv"):
            (self.folder / name).symlink_to(CHECKOUT / name)
        state = folder / "state"
        state.mkdir()
        self._pulumi = str(toolchain.pulumi)
        self.env = {
            **env,
            **toolchain.env,
            "PULUMI_BACKEND_URL": f"file://{state}",
            "PULUMI_CONFIG_PASSPHRASE": "of this test alone",
        }

    def write_stack(self, name: str, config: Mapping[str, object]) -> None:
        """Write the stack file (keys without the namespace), keeping the salt that Pulumi put there."""
        file = self.folder / f"Pulumi.{name}.yaml"
        kept = yaml.safe_load(file.read_text()) if file.exists() else {}
        document = {**(kept or {}), "config": {f"tf-serving:{key}": value for key, value in config.items()}}
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        if not kept:
            self.pulumi("stack", "init", name)

    def up(self, stack: str, *options: str) -> Run:
        """`pulumi up` without a preview before it."""
        return self.pulumi("up", "--yes", "--skip-preview", "--stack", stack, *options, check=False)

    def preview(self, stack: str, *options: str) -> Run:
        """`pulumi preview`."""
        return self.pulumi("preview", "--stack", stack, *options, check=False)

    def destroy(self, stack: str) -> Run:
        """`pulumi destroy`."""
        return self.pulumi("destroy", "--yes", "--skip-preview", "--stack", stack, check=False)

    def outputs(self, stack: str) -> dict[str, object]:
        """The stack's outputs."""
        outputs: dict[str, object] = json.loads(
            self.pulumi("stack", "output", "--json", "--stack", stack).output
        )
        return outputs

    def pulumi(
        self, *arguments: str, check: bool = True, cwd: Path | None = None, given: str | None = None
    ) -> Run:
        """Run the CLI to its end, in the project's folder or in another one; `given` is what it reads."""
        command: Sequence[str] = [self._pulumi, *arguments, "--non-interactive", "--color", "never"]
        done = subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=self.env,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"pulumi {' '.join(arguments)} failed:\n{done.stdout}")
        return Run(done.returncode, done.stdout)
