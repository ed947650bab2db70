import json
from pathlib import Path

import pytest

from ops import leftovers
from ops.leftovers import Leftover, clear, interrupted_creations
from ops.stack import Stack
from ops.state import Backend

CONTAINER = "docker:index/container:Container"
NETWORK = "docker:index/network:Network"


def operation(kind: str, resource_type: str, name: str) -> dict[str, object]:
    return {"type": kind, "resource": {"type": resource_type, "inputs": {"name": name}}}


def checkpoint(folder: Path, operations: list[dict[str, object]] | None) -> Path:
    file = folder / "state" / ".pulumi" / "stacks" / "tf-serving" / "local.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"checkpoint": {"latest": {"pending_operations": operations}}}))
    return file


def test_containers_come_before_the_networks_that_they_are_on(tmp_path: Path) -> None:
    file = checkpoint(
        tmp_path, [operation("creating", NETWORK, "serving"), operation("creating", CONTAINER, "gpu0")]
    )
    assert interrupted_creations(file) == [Leftover(CONTAINER, "gpu0"), Leftover(NETWORK, "serving")]


def test_only_what_was_being_created_is_left_over(tmp_path: Path) -> None:
    file = checkpoint(
        tmp_path,
        [
            operation("deleting", CONTAINER, "gpu0"),
            operation("updating", CONTAINER, "gpu1"),
            operation("creating", "pulumi:providers:docker", "provider"),
            {"type": "creating", "resource": {"type": CONTAINER, "inputs": {}}},
        ],
    )
    assert interrupted_creations(file) == []


def test_a_state_without_operations_or_without_a_file_has_no_leftovers(tmp_path: Path) -> None:
    assert interrupted_creations(checkpoint(tmp_path, None)) == []
    assert interrupted_creations(tmp_path / "none.json") == []


class Recorder(Stack):
    """Notes what Pulumi would be asked."""

    asked: list[tuple[str, ...]]

    def query(self, *arguments: str) -> str:
        self.asked.append(arguments)
        return ""


@pytest.mark.parametrize(("label", "removed"), [("local", True), ("prod", False), (None, False)])
def test_a_container_is_removed_only_where_its_label_says_that_it_is_this_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str | None, removed: bool
) -> None:
    checkpoint(tmp_path, [operation("creating", CONTAINER, "gpu0")])
    calls: list[tuple[str, ...]] = []

    def docker(host: str, *arguments: str) -> str:
        assert host == "unix:///engine"
        calls.append(arguments)
        if arguments[:2] == ("container", "inspect"):
            return json.dumps({"tf-serving.stack": label} if label else None)
        assert arguments == ("rm", "--force", "--volumes", "gpu0")
        return ""

    monkeypatch.setattr(leftovers, "_docker", docker)
    stack = Recorder(name="local", pulumi=Path("pulumi"), env={}, backend=Backend(tmp_path))
    object.__setattr__(stack, "asked", [])
    clear(stack, "unix:///engine")
    assert (len(calls) == 2) is removed
    assert stack.asked == [("refresh", "--yes", "--skip-preview", "--clear-pending-creates")]
