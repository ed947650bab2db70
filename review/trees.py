"""The two trees that are compared, and the stacks that they hold."""

import io
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_STACK_FILES = ("Pulumi.*.yaml", "examples/*/Pulumi.*.yaml")
POLICIES = "policies"
_ON_KUBERNETES = re.compile(r"""^\s*["']?(tf-serving:)?target["']?\s*:\s*["']?kubernetes\b""", re.MULTILINE)
# A branch's own beginning comes first; on the main branch itself it is the commit before.
_MAIN = ("origin/main", "main")
# No program reads these. What lies elsewhere may be named by a stack file, such as its `models_file`.
_NOT_READ = frozenset(
    (
        *(
            "docs",
            "tests",
            "ops",
            "toolchain",
            "bench",
            "drills",
            "simulator",
            "images",
            "review",
            "policies",
            "schemas",
        ),
        *(".github", ".ci", ".gitignore", ".pre-commit-config.yaml", "Makefile", "pyproject.toml"),
        *("README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
        *("requirements.in", "requirements-dev.in", "requirements-dev.txt", "requirements-overrides.txt"),
    )
)


class ReviewError(Exception):
    """Says why two trees cannot be compared, and what to type instead."""


@dataclass(frozen=True, order=True)
class StackFile:
    """A stack's file by its place in a tree, such as `examples/mig/Pulumi.example.yaml`."""

    path: str

    @property
    def stack(self) -> str:
        """The stack's name, as its containers carry it."""
        return Path(self.path).name.removeprefix("Pulumi.").removesuffix(".yaml")

    @property
    def title(self) -> str:
        """How a report calls it: an example by its folder, as all of those have one name."""
        folder = Path(self.path).parent
        return self.stack if folder == Path() else folder.as_posix()


@dataclass(frozen=True)
class Tree:
    """A folder with the program in it; `name` is what the report calls it."""

    folder: Path
    name: str

    def stacks(self) -> list[StackFile]:
        """Every committed stack, those in the root first."""
        files = (file for pattern in _STACK_FILES for file in sorted(self.folder.glob(pattern)))
        return [StackFile(file.relative_to(self.folder).as_posix()) for file in files]

    def is_on_kubernetes(self, file: StackFile) -> bool:
        """Whether a stack of it runs on a cluster."""
        return is_on_kubernetes(self.folder / file.path)


def is_on_kubernetes(stack_file: Path) -> bool:
    """Whether a line of a stack's file says so: nothing that could read all of it need be installed."""
    text = stack_file.read_text(encoding="utf-8", errors="replace") if stack_file.exists() else ""
    return _ON_KUBERNETES.search(text) is not None


def base_commit(checkout: Path, asked: str | None = None) -> str | None:
    """The commit to compare with: where `asked` (or the main branch) and this tree part.

    On the main branch with nothing changed it is the commit before. None where the history holds none, as
    in a shallow clone; raises ReviewError for one that was asked for and is not there.
    """
    if asked is not None:
        found = _git_line(checkout, "merge-base", asked, "HEAD") or _git_line(
            checkout, "rev-parse", "--verify", f"{asked}^{{commit}}"
        )
        if found is None:
            raise ReviewError(f"There is no commit {asked} here: `git fetch origin` may bring it.")
        return found
    head = _git_line(checkout, "rev-parse", "--verify", "HEAD")
    if head is None:
        return None
    bases = (_git_line(checkout, "merge-base", name, "HEAD") for name in _MAIN)
    base = next((found for found in bases if found), None)
    if base is not None and (base != head or _git_line(checkout, "status", "--porcelain")):
        return base
    return _git_line(checkout, "rev-parse", "--verify", "HEAD^")


def unpack(checkout: Path, commit: str, folder: Path) -> Tree:
    """The tree of a commit in an empty folder, with this checkout's interpreter environment."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=checkout, capture_output=True, check=False
    )
    if archive.returncode != 0:
        raise ReviewError(f"git archive {commit}: {archive.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    (folder / ".venv").symlink_to(checkout / ".venv")
    return Tree(folder, commit[:10])


def changed_paths(checkout: Path, commit: str) -> frozenset[str]:
    """Every file that is not what it was in a commit, with those that git does not know yet."""
    done = subprocess.run(
        ["git", "diff", "--no-renames", "--name-only", "-z", commit, "--"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    new = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(path for path in (done.stdout + new.stdout).split("\0") if path)


def concerns(file: StackFile, path: str) -> bool:
    """Whether a file of the tree may be read when this stack is planned."""
    other_stack = any(PurePosixPath(path).match(pattern) for pattern in _STACK_FILES) and path != file.path
    return not other_stack and PurePosixPath(path).parts[0] not in _NOT_READ


def _git_line(checkout: Path, *arguments: str) -> str | None:
    """The first line of what git says; None where it fails or says nothing."""
    done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, text=True, check=False)
    return next(iter(done.stdout.splitlines()), None) if done.returncode == 0 else None
