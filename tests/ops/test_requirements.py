from pathlib import Path

import pytest

from ops import lock, paths, requirements


def test_the_locks_are_written_also_where_a_make_up_has_left_its_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def makes_a_venv(command: list[str], *, check: bool) -> None:
        assert check
        if "venv" in command:
            Path(command[-1]).mkdir()

    def compiles(command: list[str], *, cwd: Path, env: object) -> int:
        assert cwd == paths.ROOT
        ran.append(command[-1])
        return 0

    monkeypatch.setattr(paths, "LOCAL", tmp_path)
    monkeypatch.setattr("ops.requirements.python_env.ensure_venv", lambda **_: Path("python"))
    monkeypatch.setattr("ops.requirements.subprocess.run", makes_a_venv)
    monkeypatch.setattr("ops.requirements.run_through", compiles)
    with lock.alone(tmp_path / "lock", "`make up`"):
        assert requirements.write_locks() == 0
    assert ran == ["requirements.txt", "requirements-dev.txt", "policies/requirements.txt"]
