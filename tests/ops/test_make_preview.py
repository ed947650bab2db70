"""`make` with the real Pulumi CLI and without a Docker Engine: what a reviewer or a new user types first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.paths import PYTHON, ROOT
from tests.ops.checkout import Checkout

pytestmark = pytest.mark.preview


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Checkout]:
    """This checkout itself, seen by a user without a login: none of these commands leaves anything in it."""
    if not PYTHON.exists():
        pytest.fail("make test sets up .venv first")
    checkout = Checkout(ROOT, tmp_path / "home", 0)
    checkout.home.mkdir()
    before = [file.read_bytes() for file in sorted(ROOT.glob("Pulumi*.yaml"))]
    yield checkout
    assert [file.read_bytes() for file in sorted(ROOT.glob("Pulumi*.yaml"))] == before
    assert not (checkout.home / ".pulumi" / "credentials.json").exists()


def test_a_preview_of_prod_without_a_backend_is_a_plan_from_nothing_and_says_so_first_and_last(
    here: Checkout,
) -> None:
    done = here.make("preview", "STACK=prod", "ARGS=--non-interactive --color never")
    lines = done.stdout.strip().splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == lines[-1]
    assert lines[0].startswith("PLAN FROM NOTHING: stack prod")
    # A resource that a policy has something to say of is shown a second time.
    made = {line.strip() for line in lines if "docker:index:Container" in line and "create" in line}
    assert sum("-server " in line for line in made) == 4
    assert sum("-envoy-proxy " in line for line in made) == 1


def test_a_preview_of_prod_works_from_a_folder_that_is_not_the_checkout(
    here: Checkout, tmp_path: Path
) -> None:
    done = here.make("--directory", str(ROOT), "preview", "STACK=prod", "ARGS=--non-interactive")
    assert done.returncode == 0, done.stderr


def test_options_that_pulumi_refuses_fail_the_preview(here: Checkout) -> None:
    done = here.make("preview", "STACK=prod", "ARGS=--no-such-option")
    assert done.returncode != 0
    assert "unknown flag: --no-such-option" in done.stderr


@pytest.mark.parametrize("target", ["up", "down"])
def test_prod_is_not_touched_without_a_shared_backend_and_the_message_says_how_to_set_one(
    here: Checkout, target: str
) -> None:
    done = here.make(target, "STACK=prod")
    assert done.returncode != 0
    assert "Stack prod has no shared state backend, so nothing was changed." in done.stderr
    assert "s3://<bucket>" in done.stderr
    assert "stack init prod --secrets-provider" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_preflight_of_prod_names_the_host_that_it_cannot_reach(here: Checkout) -> None:
    done = here.make("preflight", "STACK=prod")
    assert done.returncode != 0
    assert "no Docker Engine answers at ssh://deploy@gpu-01.example.com" in done.stdout
    assert "Preflight found 1 problem; nothing was changed." in done.stdout


def test_help_lists_every_target_with_a_line_and_is_what_plain_make_says(here: Checkout) -> None:
    shown = here.make("help").stdout
    assert here.make().stdout == shown
    targets = [
        line.split(":")[0]
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line[:1].isalpha() and ":" in line and "=" not in line
    ]
    missing = [target for target in targets if f"make {target} " not in shown and target != "unit"]
    assert missing == []
