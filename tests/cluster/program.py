"""A small Pulumi program with a stack of its own: a test writes its objects and provider as plain values."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.pulumi_project import CHECKOUT, Run
from toolchain.tools import Toolchain

Manifest = Mapping[str, object]
STACK = "test"


class Program:
    """program/ in a folder of its own, with a file backend beside it."""

    def __init__(self, folder: Path, toolchain: Toolchain, env: Mapping[str, str]) -> None:
        self.folder = folder / "program"
        shutil.copytree(Path(__file__).with_name("program"), self.folder)
        (self.folder / ".venv").symlink_to(CHECKOUT / ".venv")
        state = folder / "state"
        state.mkdir()
        self._pulumi = str(toolchain.pulumi)
        self.env = {
            **env,
            **toolchain.env,
            "PULUMI_BACKEND_URL": f"file://{state}",
            "PULUMI_CONFIG_PASSPHRASE": "of this test alone",
        }
        assert self._run("stack", "init", STACK).code == 0

    def write(self, provider: Mapping[str, object], objects: Sequence[Manifest]) -> None:
        """Say what the provider is given and which objects there should be; `timeout` in one is Pulumi's."""
        (self.folder / "provider.json").write_text(json.dumps(provider))
        (self.folder / "objects.json").write_text(json.dumps(objects))

    def up(self, *options: str) -> Run:
        """`pulumi up` without a preview before it."""
        return self._run("up", "--yes", "--skip-preview", *options)

    def preview(self, *options: str) -> Run:
        """`pulumi preview`."""
        return self._run("preview", *options)

    def destroy(self) -> Run:
        """`pulumi destroy`."""
        return self._run("destroy", "--yes", "--skip-preview")

    def _run(self, *arguments: str) -> Run:
        command = [self._pulumi, *arguments, "--non-interactive", "--color", "never"]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        return Run(done.returncode, done.stdout)


def said(run: Run) -> str:
    """What a run printed, on one line with single spaces: the CLI breaks and indents lines as it likes."""
    return re.sub(r"\s+", " ", run.output)
