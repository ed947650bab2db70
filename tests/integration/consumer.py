"""The example of a consumer, run as a project of its own against a stack in the same backend."""

import json
import shutil
from pathlib import Path

from tests.pulumi_project import CHECKOUT, Project, Run

EXAMPLE = CHECKOUT / "examples" / "consumer"
STACK = "reader"


class Consumer:
    """A copy of the example, with the backend of `project` and a stack of its own."""

    def __init__(self, project: Project, folder: Path, serving_stack: str) -> None:
        self.folder = folder / "consumer"
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        (self.folder / ".venv").symlink_to(CHECKOUT / ".venv")
        self._project = project
        self._run("stack", "init", STACK)
        self._run("config", "set", "serving_stack", f"organization/tf-serving/{serving_stack}")

    def preview(self) -> Run:
        """`pulumi preview`."""
        return self._run("preview", check=False)

    def up(self) -> Run:
        """`pulumi up`."""
        return self._run("up", "--yes", "--skip-preview", check=False)

    def outputs(self) -> dict[str, object]:
        """What the consumer made of the stack."""
        outputs: dict[str, object] = json.loads(self._run("stack", "output", "--json").output)
        return outputs

    def _run(self, *arguments: str, check: bool = True) -> Run:
        return self._project.pulumi(*arguments, check=check, cwd=self.folder)
