"""actionlint, which reads the workflows: built from its Go module by name, once, into the shared cache."""

import hashlib
import shutil
from pathlib import Path

from toolchain.cache import build_once, published
from toolchain.golang import go_binary, go_env
from toolchain.process import run
from toolchain.progress import step
from toolchain.versions import GO_MODULES

_COMMAND = "github.com/rhysd/actionlint/cmd/actionlint"


def actionlint() -> Path:
    """The executable; what its module and its dependencies are is pinned in `toolchain/go/actionlint`."""
    source = GO_MODULES / "actionlint"
    content = b"".join((source / name).read_bytes() for name in ("go.mod", "go.sum"))
    key = hashlib.sha256(content).hexdigest()[:16]
    folder = published("actionlint", key)
    if folder is None:
        go = go_binary()
        with step("Build actionlint from Go modules", "20 s"):
            folder = build_once("actionlint", key, lambda target: _build(go, source, target))
    return folder / "actionlint"


def _build(go: Path, source: Path, target: Path) -> None:
    copy = target / "source"
    shutil.copytree(source, copy)
    run(
        [go, "build", "-ldflags", "-s -w", "-o", f"{target}/", _COMMAND],
        what="build actionlint",
        env=go_env(),
        cwd=copy,
    )
    shutil.rmtree(copy)
