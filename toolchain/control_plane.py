"""A Kubernetes control plane for tests, built from Go modules by name: API server to fake nodes."""

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from toolchain.cache import build_once, content_key, folder_content, published
from toolchain.golang import COMPILE, compile_packages, go_binary
from toolchain.progress import step
from toolchain.versions import GO_MODULES, go_module_version

CACHE_NAME = "control-plane"


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Executables of one Go module, each compiled from the package of the same name unless `names` says else.

    `folder` lies below toolchain/go. `version_variable` is what the linker writes the version to, where a
    program would otherwise not know it.
    """

    folder: str
    module: str
    title: str
    usual: str
    packages: dict[str, str]
    version_variable: str | None = None

    @property
    def version(self) -> str:
        return "v" + go_module_version(GO_MODULES / self.folder / "go.mod", self.module)

    @property
    def key(self) -> str:
        variable = self.version_variable or ""
        content = folder_content(GO_MODULES / self.folder)
        return content_key(f"{self.folder}-{self.version}", content, variable, *self.packages, *COMPILE)


_PARTS = (
    _Part(
        folder="etcd",
        module="go.etcd.io/etcd/server/v3",
        title="Build etcd",
        usual="30 s on 2 cores",
        packages={"etcd": "go.etcd.io/etcd/server/v3"},
    ),
    _Part(
        folder="kwok",
        module="sigs.k8s.io/kwok",
        title="Build kwok, which plays nodes and their kubelets",
        usual="3 min on 2 cores",
        packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    ),
    _Part(
        folder="kubernetes-control-plane",
        module="k8s.io/kubernetes",
        title="Build a Kubernetes control plane",
        usual="10 min on 2 cores",
        packages={
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-scheduler", "kube-controller-manager")
        },
        # Without it the API server calls itself v0.0.0-master, which clients can't compare.
        version_variable="k8s.io/component-base/version.gitVersion",
    ),
)


@cache
def kubernetes_version() -> str:
    """The version that the control plane says it has, such as `v1.34.4`."""
    return _PARTS[-1].version


def ensure() -> dict[str, Path]:
    """Every program by its name, built first where it is not in the cache; raises ToolchainError."""
    return {name: _built(part) / name for part in _PARTS for name in part.packages}


def _built(part: _Part) -> Path:
    if folder := published(CACHE_NAME, part.key):
        return folder
    go = go_binary()
    with step(f"{part.title} {part.version} from Go modules", part.usual):
        return build_once(CACHE_NAME, part.key, lambda target: _build(go, part, target))


def _build(go: Path, part: _Part, target: Path) -> None:
    source = target / "source"
    shutil.copytree(GO_MODULES / part.folder, source)
    variables = [f"{part.version_variable}={part.version}"] if part.version_variable else []
    compile_packages(go, source, target, variables, list(part.packages.values()))
    for name, package in part.packages.items():
        compiled = target / executable_name(package)
        if compiled.name != name:
            compiled.rename(target / name)
    shutil.rmtree(source)


def executable_name(package: str) -> str:
    """What `go build` calls a package's executable: its last part that is not a major version."""
    *_, before, last = package.split("/")
    return before if last.startswith("v") and last[1:].isdigit() else last
