import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ops.errors import UserError
from ops.heal import heal, reconcile
from ops.hosts import Host, Result
from ops.stack import Stack
from ops.state import Backend

CONTAINER, NETWORK, HALF_MADE = "c" * 64, "n" * 64, "h" * 64
RESOURCES = [
    {"urn": "a component"},
    {"id": CONTAINER},
    {"id": NETWORK},
    {"id": HALF_MADE, "initErrors": ["container failed to be in healthy state"]},
]
STATE = {"deployment": {"resources": RESOURCES}}


@dataclass(frozen=True, kw_only=True)
class FakeStack(Stack):
    """Notes what Pulumi would be asked."""

    ran: list[tuple[str, ...]] = field(default_factory=list)

    def query(self, *arguments: str) -> str:
        assert arguments == ("stack", "export")
        return json.dumps(STATE)

    def run(self, *arguments: str) -> int:
        self.ran.append(arguments)
        return 0


@dataclass(frozen=True)
class FakeEngine(Host):
    """Lists, for the labels of stack `prod` and node `gpu-01` alone, what `there` says; notes removals."""

    there: Mapping[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)

    def docker(self, *arguments: str) -> Result:
        if "rm" in arguments:
            self.removed.append(" ".join(arguments))
            return Result(0, "", "")
        chosen = {word for word in arguments if word.startswith("--filter")}
        assert chosen == {"--filter=label=tf-serving.stack=prod", "--filter=label=tf-serving.node=gpu-01"}
        return Result(0, self.there.get(arguments[0], ""), "")


def stack(backend: Backend | None = None) -> FakeStack:
    return FakeStack(name="prod", pulumi=Path("pulumi"), env={}, backend=backend)


def engine(there: Mapping[str, str]) -> FakeEngine:
    return FakeEngine("ssh://gpu-01", there=there)


def ids(*lines: tuple[str, str], state: str = "running") -> str:
    return "".join(f"{id_} {name} {state}\n" for id_, name in lines)


STRAYS = {
    "network": ids((NETWORK, "prod.gpu-01-front"), ("1" * 64, "prod.gpu-01-serving")),
    "ps": ids((CONTAINER, "prod.gpu-01-gpu0"), ("2" * 64, "prod.gpu-01-gpu1")),
}


def test_what_the_state_does_not_know_is_removed_containers_first_and_the_rest_stays() -> None:
    healed, node = stack(), engine(STRAYS)
    assert reconcile(healed, {"gpu-01": node}, ask=False) == 0
    assert node.removed == [f"rm --force --volumes {'2' * 64}", f"network rm {'1' * 64}"]
    assert healed.ran == [("refresh", "--yes", "--skip-preview", "--clear-pending-creates")]


@pytest.mark.parametrize(
    ("container", "state", "removed"),
    [
        (HALF_MADE, "running", True),
        (CONTAINER, "created", True),
        (CONTAINER, "exited", True),
        (CONTAINER, "restarting", False),
        (CONTAINER, "running", False),
    ],
)
def test_what_was_left_half_made_or_does_not_run_is_removed_though_the_state_knows_it(
    container: str, state: str, removed: bool
) -> None:
    node = engine({"ps": ids((container, "prod.gpu-01-gpu0"), state=state)})
    reconcile(stack(), {"gpu-01": node}, ask=False)
    assert node.removed == [f"rm --force --volumes {container}"] * removed


def test_nothing_is_removed_where_the_state_knows_all_and_it_is_refreshed_all_the_same() -> None:
    healed, node = stack(), engine({"ps": ids((CONTAINER, "prod.gpu-01-gpu0"))})
    assert reconcile(healed, {"gpu-01": node}, ask=True) == 0
    assert node.removed == []
    # Pulumi itself shows what a refresh would change, and asks.
    assert healed.ran == [("refresh", "--clear-pending-creates")]


@pytest.mark.parametrize("answer", ["n", "", None])
def test_a_teams_stack_is_left_alone_unless_somebody_agrees(
    answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(_prompt: str) -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", asked)
    healed, node = stack(), engine(STRAYS)
    with pytest.raises(UserError, match="nothing was changed"):
        reconcile(healed, {"gpu-01": node}, ask=True)
    assert (node.removed, healed.ran) == ([], [])


def test_an_engine_that_does_not_answer_stops_it_before_anything_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = Host("unix:///nowhere.sock")
    monkeypatch.setattr(Host, "docker", lambda _self, *_arguments: Result(1, "", "no route to host"))
    healed = stack()
    with pytest.raises(UserError, match=r"node gpu-02 \(unix:///nowhere.sock\): no route to host"):
        reconcile(healed, {"gpu-02": silent}, ask=False)
    assert healed.ran == []


def test_locks_of_a_backend_of_ours_are_freed(tmp_path: Path) -> None:
    lock = tmp_path / "state" / ".pulumi" / "locks" / "organization" / "lock.json"
    lock.parent.mkdir(parents=True)
    lock.touch()
    reconcile(stack(Backend(tmp_path)), {"gpu-01": engine({})}, ask=False)
    assert not lock.exists()


@pytest.mark.parametrize("arguments", [["--force"], ["--yes", "now"]])
def test_other_arguments_than_yes_are_refused(arguments: Sequence[str]) -> None:
    with pytest.raises(UserError, match="accepts ARGS=--yes"):
        heal("prod", arguments)
