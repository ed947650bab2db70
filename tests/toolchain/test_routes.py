"""Which Pulumi is used: the one on PATH, the official download, or the rebuilt one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from toolchain import official, pulumi, rebuilt
from toolchain.errors import ToolchainError
from toolchain.tools import Toolchain
from toolchain.versions import versions

Install = Callable[..., Path]
SDK = versions().pulumi


def tools(origin: str) -> Toolchain:
    return Toolchain(pulumi=Path("/nowhere/pulumi"), version="3.999.0", origin=origin)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with an empty PATH, an empty cache, no way out, and a working `go build`."""

    def unreachable() -> Toolchain:
        raise official.UnreachableError("no way out")

    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TF_SERVING_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TOOLCHAIN", raising=False)
    monkeypatch.setattr(official, "get", unreachable)
    monkeypatch.setattr(rebuilt, "get", lambda _plugins: tools("rebuilt"))
    monkeypatch.setattr(rebuilt, "find", lambda _plugins: None)


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Puts a `pulumi` on PATH that prints a version."""

    def put(version: str, *, language_host: bool = True) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        executable = folder / "pulumi"
        executable.write_text(f"#!/bin/sh\necho v{version}\n")
        executable.chmod(0o755)
        if language_host:
            host = folder / "pulumi-language-python"
            host.touch()
            host.chmod(0o755)
        return executable

    return put


@pytest.mark.parametrize("version", [SDK, "3.999.1", f"{SDK}+dirty"])
def test_a_supported_pulumi_on_path_is_used_as_it_is(install: Install, version: str) -> None:
    executable = install(version)
    assert pulumi.ensure(plugins=["docker"]) == Toolchain(
        pulumi=executable, version=version, origin="path", env={}
    )


@pytest.mark.parametrize("version", ["3.1.0", "4.0.0", "garbage"])
def test_an_unsupported_pulumi_on_path_is_passed_over_with_a_word(
    install: Install, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    executable = install(version)
    assert pulumi.ensure(plugins=["docker"]).origin == "rebuilt"
    assert f"{executable} is Pulumi" in capsys.readouterr().err


def test_a_pulumi_that_can_not_run_python_is_passed_over_with_a_word(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(SDK, language_host=False)
    assert pulumi.ensure(plugins=["docker"]).origin == "rebuilt"
    assert "has no pulumi-language-python" in capsys.readouterr().err


def test_our_own_rebuilt_pulumi_on_path_does_not_pass_for_an_official_one(install: Install) -> None:
    install("3.999.0+rebuilt")
    assert pulumi.ensure(plugins=["docker"]).origin == "rebuilt"


def test_the_official_download_comes_before_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official, "get", lambda: tools("official"))
    assert pulumi.ensure(plugins=["docker"]).origin == "official"


def test_what_was_built_before_comes_before_a_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official, "get", lambda: tools("official"))
    monkeypatch.setattr(rebuilt, "find", lambda _plugins: tools("rebuilt"))
    assert pulumi.ensure(plugins=["docker"]).origin == "rebuilt"


def test_what_was_built_before_does_not_change_a_teams_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilt, "find", lambda _plugins: tools("rebuilt"))
    with pytest.raises(ToolchainError, match="TOOLCHAIN=registries") as refused:
        pulumi.ensure(plugins=["docker"], changes_stack="prod")
    assert "the stack prod" in str(refused.value)


def test_a_teams_stack_is_changed_by_a_rebuilt_pulumi_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCHAIN", "registries")
    assert pulumi.ensure(plugins=["docker"], changes_stack="prod").origin == "rebuilt"


def test_a_teams_stack_is_changed_by_the_pulumi_on_path_without_a_question(install: Install) -> None:
    install(SDK)
    assert pulumi.ensure(plugins=["docker"], changes_stack="prod").origin == "path"


def test_toolchain_registries_passes_over_the_pulumi_on_path(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(SDK)
    monkeypatch.setenv("TOOLCHAIN", "registries")
    assert pulumi.ensure(plugins=["docker"]).origin == "rebuilt"


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("path", "no official `pulumi` on PATH; supported: v"),
        ("official", "no way out.* names a mirror"),
        ("brew", "TOOLCHAIN=brew: accepted are auto, path, official, registries"),
    ],
)
def test_a_route_that_was_asked_for_and_fails_ends_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, mode: str, message: str
) -> None:
    monkeypatch.setenv("TOOLCHAIN", mode)
    with pytest.raises(ToolchainError, match=message):
        pulumi.ensure(plugins=["docker"])


def test_an_old_pulumi_is_refused_with_the_supported_range_when_path_was_asked_for(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("3.1.0")
    monkeypatch.setenv("TOOLCHAIN", "path")
    with pytest.raises(ToolchainError, match=rf"is Pulumi 3\.1\.0; supported: v{SDK} .* before v4"):
        pulumi.ensure(plugins=["docker"])
