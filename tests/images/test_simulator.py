"""How the simulator's binary is kept."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from images import simulator
from toolchain.cache import cache_root
from toolchain.errors import ToolchainError


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source folder that stands in for the real one, an empty cache, and a compiler that is not needed."""
    folder = tmp_path / "simulator"
    folder.mkdir()
    for name in ("main.go", "main_test.go", "go.mod", "go.sum"):
        (folder / name).write_text(name)
    monkeypatch.setattr(simulator, "SOURCE", folder)
    monkeypatch.setattr("images.inputs.REPOSITORY", tmp_path)
    monkeypatch.setenv("TF_SERVING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(simulator, "go_binary", lambda: Path("go"))
    monkeypatch.setattr(simulator, "go_env", dict[str, str])
    return folder


def compiles(monkeypatch: pytest.MonkeyPatch, source: Path, meanwhile: str = "") -> list[str]:
    """Let `run` copy main.go in place of compiling it; what it copied is listed."""
    built: list[str] = []

    def run(command: Sequence[str | Path], *, what: str, env: object, cwd: Path) -> str:
        built.append((cwd / "main.go").read_text())
        Path(command[list(command).index("-o") + 1]).write_text(built[-1])
        if meanwhile:
            (cwd / "main.go").write_text(meanwhile)
        return ""

    monkeypatch.setattr(simulator, "run", run)
    return built


def test_a_source_is_built_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = compiles(monkeypatch, source)
    assert simulator.simulator_binary() == simulator.simulator_binary()
    assert built == ["main.go"]


def test_an_edit_is_built_and_a_test_is_not(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = compiles(monkeypatch, source)
    simulator.simulator_binary()
    (source / "main_test.go").write_text("changed")
    simulator.simulator_binary()
    (source / "main.go").write_text("changed")
    assert simulator.simulator_binary().read_text() == "changed"
    assert built == ["main.go", "changed"]


def test_a_source_that_changes_while_it_is_built_is_not_kept(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles(monkeypatch, source, meanwhile="edited")
    with pytest.raises(ToolchainError, match="changed while it was built"):
        simulator.simulator_binary()
    assert not list((cache_root() / "simulator").glob("[!.]*"))
    assert simulator.simulator_binary().read_text() == "edited"
