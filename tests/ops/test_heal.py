import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ops.errors import UserError
from ops.heal import heal, reconcile
from ops.hosts import Host, Result
from ops.stack import Stack
from ops.state import Backend

CONTAINER, NETWORK, HALF_MADE, VOLUME = "c" * 64, "n" * 64, "h" * 64, "prod.gpu-01-main-config"
RESOURCES = [
    {"urn": "a component"},
    {"id": CONTAINER},
    {"id": NETWORK},
    {"id": VOLUME},
    {"id": HALF_MADE, "initErrors": ["container failed to be in healthy state"]},
]
STATE = {"deployment": {"resources": RESOURCES}}


@dataclass(frozen=True, kw_only=True)
class FakeStack(Stack):
    """Notes what Pulumi would be asked."""

    ran: list[tuple[str, ...]] = field(default_factory=list)
    state: Mapping[str, object] = field(default_factory=lambda: STATE)

    def query(self, *arguments: str) -> str:
        assert arguments == ("stack", "export")
        return json.dumps(self.state)

    def run(self, *arguments: str) -> int:
        self.ran.append(arguments)
        return 0


@dataclass(frozen=True)
class FakeEngine(Host):
    """Lists, for the labels of stack `prod` and the node alone, what `there` says; notes removals."""

    there: Mapping[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    node: str = "gpu-01"

    def docker(self, *arguments: str) -> Result:
        if "rm" in arguments:
            self.removed.append(" ".join(arguments))
            return Result(0, "", "")
        chosen = {word for word in arguments if word.startswith("--filter")}
        # As the plan labels them: a network has no node's label.
        labels = {"stack": "prod"} | ({} if arguments[0] == "network" else {"node": self.node})
        assert chosen == {f"--filter=label=tf-serving.{key}={value}" for key, value in labels.items()}
        return Result(0, self.there.get(arguments[0], ""), "")


def stack(backend: Backend | None = None) -> FakeStack:
    return FakeStack(name="prod", pulumi=Path("pulumi"), env={}, backend=backend)


def engine(there: Mapping[str, str]) -> FakeEngine:
    return FakeEngine("ssh://gpu-01", there=there)


def ids(*lines: tuple[str, ...]) -> str:
    return "".join(f"{' '.join(line)}\n" for line in lines)


STRAYS = {
    "network": ids((NETWORK, "prod.gpu-01-front"), ("1" * 64, "prod.gpu-01-serving")),
    "ps": ids((CONTAINER, "prod.gpu-01-gpu0", "running"), ("2" * 64, "prod.gpu-01-gpu1", "exited")),
    "volume": ids((VOLUME, VOLUME), ("prod.gpu-01-old-config", "prod.gpu-01-old-config")),
}


def test_what_the_state_does_not_know_is_removed_containers_first_and_the_rest_stays() -> None:
    healed, node = stack(), engine(STRAYS)
    assert reconcile(healed, {"gpu-01": node}, ask=False) == 0
    assert node.removed == [
        f"rm --force --volumes {'2' * 64}",
        f"network rm {'1' * 64}",
        "volume rm prod.gpu-01-old-config",
    ]
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
    node = engine({"ps": ids((container, "prod.gpu-01-gpu0", state))})
    reconcile(stack(), {"gpu-01": node}, ask=False)
    assert node.removed == [f"rm --force --volumes {container}"] * removed


@pytest.mark.parametrize(
    ("container", "role", "state", "removed"),
    [
        (CONTAINER, "publisher", "exited", False),
        (CONTAINER, "instance", "exited", True),
        (CONTAINER, "publisher", "created", True),
        (HALF_MADE, "publisher", "exited", True),
        ("2" * 64, "publisher", "exited", True),
    ],
)
def test_a_publisher_that_ended_stays_where_the_state_has_it_whole(
    container: str, role: str, state: str, removed: bool
) -> None:
    known = ("3" * 64, "prod.gpu-01-gpu0", "running", "instance")
    there = ids((container, "prod.gpu-01-main-publisher", state, role), known)
    healed = replace(stack(), state={"deployment": {"resources": [*RESOURCES, {"id": "3" * 64}]}})
    node = engine({"ps": there})
    reconcile(healed, {"gpu-01": node}, ask=False)
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


OTHER = {"resources": [{"type": "docker:index/container:Container", "id": "o" * 64}]}
PROVIDER = {"type": "pulumi:providers:docker", "id": "p"}


@pytest.mark.parametrize(
    "state",
    [
        {"version": 3},
        {"deployment": {}},
        {"deployment": OTHER},
        {"deployment": {"resources": [{"urn": "the stack", "type": "pulumi:pulumi:Stack"}, PROVIDER]}},
    ],
)
@pytest.mark.parametrize("ask", [True, False])
def test_a_deployment_that_an_empty_state_does_not_know_is_left_running(
    state: Mapping[str, object], ask: bool
) -> None:
    healed, node = replace(stack(), state=state), engine(STRAYS)
    with pytest.raises(UserError) as refusal:
        reconcile(healed, {"gpu-01": node}, ask=ask)
    assert (node.removed, healed.ran) == ([], [])
    said = str(refusal.value)
    known = "knows none of them" if OTHER in state.values() else "is empty"
    assert f"Stack prod has 2 containers on node gpu-01, 1 running, and its state {known}:" in said
    assert "make pulumi STACK=prod ARGS='whoami -v'" in said


def test_for_the_local_stack_the_refusal_says_how_to_take_the_containers_away_by_hand(tmp_path: Path) -> None:
    healed, node = replace(stack(Backend(tmp_path)), state={}), engine(STRAYS)
    with pytest.raises(UserError) as refusal:
        reconcile(healed, {"gpu-01": node}, ask=False)
    assert (node.removed, healed.ran) == ([], [])
    by_hand = [f"  docker --host ssh://gpu-01 rm --force prod.gpu-01-gpu{gpu}" for gpu in range(2)]
    assert str(tmp_path / "state") in str(refusal.value)
    assert str(refusal.value).splitlines()[-2:] == by_hand


def test_networks_without_a_container_are_removed_also_where_the_state_is_empty() -> None:
    healed, node = replace(stack(), state={}), engine({"network": STRAYS["network"]})
    assert reconcile(healed, {"gpu-01": node}, ask=False) == 0
    assert len(node.removed) == 2


def test_a_network_that_two_nodes_of_one_engine_list_is_removed_once() -> None:
    node = engine({"network": STRAYS["network"]})
    assert reconcile(stack(), {"gpu-01": node, "gpu-02": replace(node, node="gpu-02")}, ask=False) == 0
    assert node.removed == [f"network rm {'1' * 64}"]


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
