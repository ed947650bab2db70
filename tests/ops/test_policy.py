"""How `make` attaches the policy pack, and the copy of it for other programs."""

import subprocess
from pathlib import Path

import pytest

from ops import paths, policy
from toolchain import python_env

ROOT = paths.ROOT


@pytest.fixture(autouse=True)
def _made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_env, "ensure_policy_venv", lambda: Path("python"))
    for name in ("PACK", "PACK_CONFIG"):
        monkeypatch.delenv(f"PULUMI_OPTION_POLICY_{name}", raising=False)


@pytest.mark.parametrize("stack", ["prod", "local"])
def test_a_stack_meets_the_pack_at_the_levels_of_its_environment(stack: str) -> None:
    assert policy.options(stack) == [
        f"--policy-pack={ROOT}/policies",
        f"--policy-pack-config={ROOT}/policies/config/{stack}.json",
    ]


def test_packs_that_the_shell_names_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_OPTION_POLICY_PACK", "/theirs")
    assert policy.options("prod") == [
        "--policy-pack=/theirs",
        f"--policy-pack={ROOT}/policies",
        "--policy-pack-config=/dev/null",
        f"--policy-pack-config={ROOT}/policies/config/prod.json",
    ]


def test_a_shell_that_names_this_pack_chooses_its_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_OPTION_POLICY_PACK", f"{ROOT}/policies")
    monkeypatch.setenv("PULUMI_OPTION_POLICY_PACK_CONFIG", "/strict.json")
    assert policy.options("local") == [f"--policy-pack={ROOT}/policies", "--policy-pack-config=/strict.json"]


def test_the_copy_needs_nothing_else_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "pack"
    monkeypatch.setattr(policy, "_COPY", copy)
    assert policy.make_copy() == 0
    assert {"PulumiPolicy.yaml", "__main__.py", "requirements.txt", "config", "data"} <= {
        file.name for file in copy.iterdir()
    }
    assert not (copy / ".venv").exists()
    looks = (
        "from pack import facts, registry as r; r.all_rules(); print(facts.facts().release('2.14.1').cuda)"
    )
    # Isolated: the current folder and the checkout are not looked in.
    done = subprocess.run(
        [paths.PYTHON, "-I", "-c", f"import sys; sys.path.insert(0, '.'); {looks}"],
        cwd=copy, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "11.8\n"
