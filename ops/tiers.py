"""`make test`: every tier of tests, each by itself, with what it needs made first."""

import os
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ops import paths, setup
from ops.errors import UserError
from ops.install_docker import install_docker
from ops.processes import run_through
from ops.samples import table
from toolchain import control_plane, golang, pulumi, python_env
from toolchain.actionlint import actionlint
from toolchain.errors import ToolchainError
from toolchain.progress import duration

_MARKED = ("simulator", "envoy", "preview", "integration")
_NO_TESTS = 5  # pytest's exit code where nothing was selected


@dataclass(frozen=True)
class Tier:
    """A group of tests; `prepare` makes what it needs, once, and is a no-op afterwards."""

    name: str
    selection: str
    prepare: Callable[[], None]


@dataclass
class Outcome:
    """What came of a tier."""

    name: str
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    ok: bool = True


def _nothing() -> None:
    """Needs nothing but the virtual environment."""


def _go() -> None:
    golang.go_binary()


def _preview() -> None:
    setup.ensure_tools()
    python_env.ensure_policy_venv()


def _engine() -> None:
    setup.ensure_tools()
    _go()
    if os.geteuid() == 0:
        install_docker()
    else:
        raise UserError(
            "The integration tier starts Docker Engines of its own, which needs root: sudo make test"
        )


def _control_plane() -> None:
    pulumi.ensure(plugins=["docker", "kubernetes"])
    control_plane.ensure()


TIERS = (
    Tier("unit", " and ".join(f"not {name}" for name in _MARKED), _nothing),
    Tier("simulator", "simulator", _go),
    Tier("envoy", "envoy", _nothing),
    Tier("preview", "preview and not integration", _preview),
    Tier("integration", "integration and not drill and not cluster", _engine),
)
# Run by its name alone: minutes of what the tiers above show in part.
DRILL = Tier("drill", "drill", _engine)
# So is this one: its control plane is minutes of compiling where the cache has none yet.
CLUSTER = Tier("cluster", "cluster", _control_plane)


def lint(*, fix: bool = False) -> int:
    """Run ruff, mypy and actionlint as the project configures them; with `fix`, rewrite files first."""
    python = str(_python())
    checks = [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy", "."]]
    if fix:
        checks[:2] = [["ruff", "check", "--fix", "."], ["ruff", "format", "."]]
    # Without programs that it would use where a machine happens to have them: the same verdict everywhere.
    workflows = [str(file) for file in sorted((paths.ROOT / ".github" / "workflows").glob("*.yml"))]
    commands = [[python, "-m", *check] for check in checks]
    commands.append([str(actionlint()), "-shellcheck=", "-pyflakes=", *workflows])
    codes = [run_through(command, cwd=paths.ROOT, env=os.environ) for command in commands]
    return 1 if any(codes) else 0  # below zero where a signal ended it


def test(names: list[str], arguments: list[str]) -> int:
    """Run the named tiers (all of them and lint, where none is named) and print a table."""
    known = {tier.name: tier for tier in (*TIERS, DRILL, CLUSTER)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(f"No tier {', '.join(unknown)}; there are: {', '.join(known)}.")
    _python()
    outcomes = [] if names else [_lint_outcome()]
    outcomes += [] if names else [_pull_request_outcome()]
    outcomes += [_run(known[name], arguments) for name in names or [tier.name for tier in TIERS]]
    _summary(outcomes)
    return 0 if all(outcome.ok for outcome in outcomes) else 1


def pull_request(arguments: list[str]) -> int:
    """`make pr-check`: what this checkout changes in every stack; 1 where one does not plan or is refused."""
    _preview()
    return run_through([str(paths.PYTHON), "-m", "review", *arguments], cwd=paths.ROOT, env=os.environ)


def _python() -> Path:
    return python_env.ensure_venv(dev=True)


def _lint_outcome() -> Outcome:
    return _outcome("lint", lint)


def _pull_request_outcome() -> Outcome:
    return _outcome("pr-check", lambda: pull_request([]))


def _outcome(name: str, check: Callable[[], int]) -> Outcome:
    """A check that is no group of tests."""
    started = time.monotonic()
    print(f"== {name}", flush=True)
    try:
        code = check()
    except (UserError, ToolchainError) as error:
        print(error, file=sys.stderr)
        code = 1
    return Outcome(name, time.monotonic() - started, ok=code == 0)


def _run(tier: Tier, arguments: list[str]) -> Outcome:
    started = time.monotonic()
    print(f"== {tier.name}", flush=True)
    try:
        tier.prepare()
    except (UserError, ToolchainError) as error:
        print(error, file=sys.stderr)
        return Outcome(tier.name, time.monotonic() - started, ok=False)
    with tempfile.TemporaryDirectory(prefix="tf-serving-test-") as folder:
        report = Path(folder) / "junit.xml"
        command = [
            str(paths.PYTHON),
            "-m",
            "pytest",
            "-m",
            tier.selection,
            f"--junitxml={report}",
            *arguments,
        ]
        code = run_through(command, cwd=paths.ROOT, env=_clean_env())
        outcome = Outcome(tier.name, time.monotonic() - started, ok=code in (0, _NO_TESTS))
        if report.exists():
            _count(report, outcome)
    return outcome


def _count(report: Path, outcome: Outcome) -> None:
    suite = ET.parse(report).getroot().find("testsuite")  # noqa: S314 - written by the run above
    if suite is not None:
        total, outcome.skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        outcome.failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        outcome.passed = total - outcome.failed - outcome.skipped


def _clean_env() -> Mapping[str, str]:
    """The environment without what would point a test at the user's own Docker or Pulumi."""
    ours = (
        "DOCKER_HOST",
        "DOCKER_CONTEXT",
        "KUBECONFIG",
        "PULUMI_BACKEND_URL",
        "PULUMI_ACCESS_TOKEN",
        "PULUMI_STACK",
    )
    return {name: value for name, value in os.environ.items() if name not in ours}


def _summary(outcomes: list[Outcome]) -> None:
    rows = [
        (
            o.name,
            duration(o.seconds),
            str(o.passed),
            str(o.failed),
            str(o.skipped),
            "ok" if o.ok else "FAILED",
        )
        for o in outcomes
    ]
    print()
    print("\n".join(table(("tier", "time", "passed", "failed", "skipped", ""), rows)))
    passed, failed, skipped = (
        sum(o.passed for o in outcomes),
        sum(o.failed for o in outcomes),
        sum(o.skipped for o in outcomes),
    )
    seconds = sum(o.seconds for o in outcomes)
    words = (
        [f"{failed} failed"] * bool(failed) + [f"{passed} passed"] + [f"{skipped} skipped"] * bool(skipped)
    )
    if not all(o.ok for o in outcomes) and not failed:
        words.insert(0, "a tier failed")
    print(f"===== {', '.join(words)} in {seconds:.2f}s =====")
