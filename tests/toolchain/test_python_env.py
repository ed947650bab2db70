"""When the virtual environment counts as up to date, and what is said when it can't be made."""

import importlib.util
import json
import os
from pathlib import Path

import pytest

from toolchain import python_env
from toolchain.errors import ToolchainError


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lock files of our own; returns the runtime one."""
    runtime, development = tmp_path / "requirements.txt", tmp_path / "requirements-dev.txt"
    runtime.write_text("a==1\n")
    development.write_text("a==1\nb==1\n")
    monkeypatch.setattr(python_env, "LOCK", runtime)
    monkeypatch.setattr(python_env, "DEV_LOCK", development)
    return runtime


def made(venv: Path, *, dev: bool) -> Path:
    """What `make_venv` leaves, without the packages."""
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    (venv / python_env.STAMP).write_text(json.dumps(python_env._stamp(venv, python_env._locks(dev=dev))))
    return venv


def test_an_environment_is_up_to_date_until_the_lock_file_changes(tmp_path: Path, locks: Path) -> None:
    venv = made(tmp_path / "venv", dev=False)
    assert python_env.up_to_date(venv, dev=False)
    locks.write_text("a==2\n")
    assert not python_env.up_to_date(venv, dev=False)


def test_the_environment_for_development_serves_the_program_too_but_not_the_other_way_round(
    tmp_path: Path, locks: Path
) -> None:
    assert python_env.up_to_date(made(tmp_path / "full", dev=True), dev=False)
    assert not python_env.up_to_date(made(tmp_path / "small", dev=False), dev=True)


def test_a_moved_environment_is_not_up_to_date(tmp_path: Path, locks: Path) -> None:
    moved = made(tmp_path / "venv", dev=False).rename(tmp_path / "elsewhere")
    assert not python_env.up_to_date(moved, dev=False)


def test_an_environment_whose_python_is_gone_is_not_up_to_date(tmp_path: Path, locks: Path) -> None:
    venv = made(tmp_path / "venv", dev=False)
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to(tmp_path / "python3.9")
    assert not python_env.up_to_date(venv, dev=False)


def test_an_interrupted_install_is_not_up_to_date(tmp_path: Path, locks: Path) -> None:
    venv = made(tmp_path / "venv", dev=False)
    (venv / python_env.STAMP).unlink()
    assert not python_env.up_to_date(venv, dev=False)


def test_a_link_to_an_up_to_date_environment_is_used_as_it_is(tmp_path: Path, locks: Path) -> None:
    (tmp_path / "link").symlink_to(made(tmp_path / "venv", dev=False))
    assert python_env.up_to_date(tmp_path / "link", dev=False)


def test_a_link_to_an_outdated_environment_is_replaced_and_what_it_points_to_stays(
    tmp_path: Path, locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = made(tmp_path / "venv", dev=False)
    (tmp_path / "link").symlink_to(theirs)
    locks.write_text("a==2\n")
    created: list[list[object]] = []
    monkeypatch.setattr(python_env, "run", lambda command, **_options: _create(created, command))

    python_env.make_venv(tmp_path / "link", dev=False)

    assert created[0][1:] == ["-m", "venv", "--clear", tmp_path / "link"]
    assert not (tmp_path / "link").is_symlink()
    assert (theirs / "bin" / "python").exists()


def _create(created: list[list[object]], command: list[object]) -> str:
    created.append(command)
    if "venv" in command:
        Path(str(command[-1])).mkdir()
    return ""


def test_a_debian_without_ensurepip_is_told_what_to_install(
    tmp_path: Path, locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ToolchainError, match=r"sudo apt-get install python3\.\d+-venv"):
        python_env.make_venv(tmp_path / "venv", dev=False)
