import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ops.errors import UserError
from ops.hosts import Host, Result
from ops.labelled import State
from ops.leftovers import clear
from ops.stack import Stack
from ops.state import Backend

CONTAINER = "docker:index/container:Container"
NETWORK = "docker:index/network:Network"
GPU0, SERVING = "local.here-gpu0", "local-serving"


def operation(kind: str, resource_type: str, name: str) -> dict[str, object]:
    return {"type": kind, "resource": {"type": resource_type, "inputs": {"name": name}}}


def test_only_what_was_being_created_is_half_made() -> None:
    operations = [
        operation("deleting", CONTAINER, "gpu0"),
        operation("updating", CONTAINER, "gpu1"),
        operation("creating", CONTAINER, "gpu2"),
        operation("creating", NETWORK, "serving"),
        operation("creating", "docker:index/volume:Volume", "files"),
        operation("creating", "pulumi:providers:docker", "provider"),
        {"type": "creating", "resource": {"type": CONTAINER, "inputs": {}}},
    ]
    half_made = State({"pending_operations": operations}).half_made
    assert half_made == {("container", "gpu2"), ("network", "serving"), ("volume", "files")}


@pytest.mark.parametrize("deployment", [{}, {"pending_operations": None, "resources": None}])
def test_of_a_state_without_anything_nothing_is_known_or_half_made(deployment: Mapping[str, object]) -> None:
    state = State(deployment)
    assert (state.known, state.whole, state.half_made) == (frozenset(), frozenset(), frozenset())


@dataclass(frozen=True, kw_only=True)
class Recorder(Stack):
    """Notes what Pulumi would be asked."""

    asked: list[tuple[str, ...]] = field(default_factory=list)

    def query(self, *arguments: str) -> str:
        self.asked.append(arguments)
        return ""


@dataclass(frozen=True)
class FakeEngine(Host):
    """Has container `gpu0` and network `serving` with the label of stack `labelled`; notes removals.

    The network is there when it is asked for the `network_after`th time.
    """

    stack: str = "local"
    network_after: int = 1
    removed: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def docker(self, *arguments: str) -> Result:
        if "rm" in arguments:
            self.removed.append(" ".join(arguments))
            return Result(0, "", "")
        self.asked.append(arguments[0])
        there = {"ps": f"c1 {GPU0} running instance\n"}
        if self.asked.count("network") >= self.network_after:
            there["network"] = f"n1 {SERVING}\n"
        ours = f"--filter=label=tf-serving.stack={self.stack}" in arguments
        return Result(0, there.get(arguments[0], "") if ours else "", "")


def killed(folder: Path, *known: str) -> Recorder:
    """A stack that was killed while it made both; it had written down the ids of `known`."""
    file = folder / "state" / ".pulumi" / "stacks" / "tf-serving" / "local.json"
    file.parent.mkdir(parents=True)
    operations = [operation("creating", NETWORK, SERVING), operation("creating", CONTAINER, GPU0)]
    resources = [{"type": CONTAINER, "id": one} for one in known]
    latest = {"pending_operations": operations, "resources": resources}
    file.write_text(json.dumps({"checkpoint": {"latest": latest}}))
    return Recorder(name="local", pulumi=Path("pulumi"), env={}, backend=Backend(folder))


def test_what_was_half_made_is_removed_containers_before_the_networks_that_they_are_on(
    tmp_path: Path,
) -> None:
    stack, engine = killed(tmp_path), FakeEngine("unix:///engine")
    clear(stack, lambda: {"here": engine})
    assert engine.removed == ["rm --force --volumes c1", "network rm n1"]
    assert stack.asked == [("refresh", "--yes", "--skip-preview", "--clear-pending-creates")]


def test_what_the_state_knows_all_the_same_stays(tmp_path: Path) -> None:
    engine = FakeEngine("unix:///engine")
    clear(killed(tmp_path, "c1"), lambda: {"here": engine})
    assert engine.removed == ["network rm n1"]


def test_what_the_engine_still_makes_for_a_run_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    engine = FakeEngine("unix:///engine", network_after=3)
    clear(killed(tmp_path), lambda: {"here": engine})
    assert engine.removed == ["rm --force --volumes c1", "network rm n1"]


def test_what_is_labelled_as_another_stacks_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.labelled._ENGINE_FINISHES_S", 0)
    engine = FakeEngine("unix:///engine", stack="prod")
    clear(killed(tmp_path), lambda: {"here": engine})
    assert engine.removed == []


def test_where_nothing_was_half_made_no_engine_is_asked(tmp_path: Path) -> None:
    stack = killed(tmp_path)
    (file,) = (tmp_path / "state").rglob("local.json")
    file.write_text(json.dumps({"checkpoint": {"latest": {"resources": []}}}))
    clear(stack, lambda: pytest.fail("asked"))
    assert stack.asked == []


def test_a_damaged_state_is_told(tmp_path: Path) -> None:
    stack = killed(tmp_path)
    (file,) = (tmp_path / "state").rglob("local.json")
    file.write_text("{")
    with pytest.raises(UserError, match="is no state that can be read"):
        clear(stack, dict)
