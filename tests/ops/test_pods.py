"""What `make up` says of pods, of answers as an API server gives them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from ops import paths, pods, policy, setup, up
from ops.kube_api import KubeApi
from ops.pods import Place, report, watch

Json = dict[str, Any]


class FakeApi:
    """Has these pods."""

    def __init__(self, *items: Json) -> None:
        self.pods = list(items)
        self.asked: list[str] = []

    def items(self, path: str) -> list[Json]:
        self.asked.append(path)
        return self.pods


def place(*items: Json) -> Place:
    return Place(cast("KubeApi", FakeApi(*items)), "serving", "prod")


def pod(name: str, *conditions: tuple[str, str, str], **status: object) -> Json:
    listed = [{"type": kind, "status": value, "message": text} for kind, value, text in conditions]
    return {"metadata": {"name": name}, "status": {"conditions": listed, **status}}


READY = pod("ready", ("Ready", "True", ""), phase="Running")
DONE = pod("done", ("Ready", "False", ""), phase="Succeeded")
NOWHERE = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def unplaced(name: str) -> Json:
    return pod(name, ("PodScheduled", "False", NOWHERE), phase="Pending")


def crashing(**state: Json) -> Json:
    ready = ("Ready", "False", "containers with unready status: [server]")
    return pod("a", ready, phase="Running", containerStatuses=[{"name": "server", **state}])


def test_nothing_is_said_where_all_are_ready_or_have_done_their_work() -> None:
    assert report(place(READY, DONE)) == ""
    assert report(place()) == ""


def test_pods_that_no_node_takes_are_named_together_with_the_schedulers_words() -> None:
    assert report(place(READY, unplaced("b"), unplaced("a"))).splitlines() == [
        "Not well in namespace serving:",
        f"a, b: no node takes it: {NOWHERE}",
    ]


def test_only_pods_of_the_stack_are_asked_for_and_those_that_go_are_no_news() -> None:
    going = unplaced("going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    asked = place(going)
    assert report(asked) == ""
    assert cast("FakeApi", asked.api).asked == [
        "/api/v1/namespaces/serving/pods?labelSelector=tf-serving.stack%3Dprod"
    ]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "message": "no model\n"}},
            },
            "server: CrashLoopBackOff: back-off 40s; server: before that, Error, exit code 1: no model",
        ),
        ({"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}, "OOMKilled, exit code 137"),
        ({"state": {"waiting": {"reason": "ImagePullBackOff"}}}, "server: ImagePullBackOff"),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, "a: Running, and not ready"),
        ({"state": {"running": {}}}, "a: Running, and not ready"),
    ],
)
def test_what_the_kubelet_says_of_a_container_is_said(state: Json, said: str) -> None:
    assert report(place(crashing(**state))).splitlines()[1].endswith(said)


def never(_: float) -> None:
    """No time to lose."""


def test_one_that_no_node_takes_is_told_once_and_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 5.0, 14.9, 15.0, 40.0])

    def monotonic() -> float:
        for each in now:
            return each
        raise TimeoutError  # nobody looks any more

    monkeypatch.setattr(time, "monotonic", monotonic)
    monkeypatch.setattr(time, "sleep", never)
    told: list[str] = []
    with pytest.raises(TimeoutError):
        told += watch(place(unplaced("b"), READY, unplaced("a")))
    assert told == [f"a, b: no node takes it: {NOWHERE}"]


def test_make_up_of_a_stack_on_kubernetes_watches_its_pods_and_says_why_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []

    class FakeStack:
        name = "staging"

        def explain(self, *arguments: str) -> int:
            happened.append(arguments[0])
            return 3

    @contextmanager
    def watched(stack: str) -> Iterator[None]:
        happened.append(f"watch {stack}")
        yield
        happened.append("end")

    def nothing(*_: object, **__: object) -> int:
        return 0

    def team_stack(*_: object, **__: object) -> FakeStack:
        return FakeStack()

    def options(_: str) -> list[str]:
        return []

    def show(stack: str) -> None:
        happened.append(f"show {stack}")

    for module, name, value in (
        (setup, "check_stack_file", nothing),
        (setup, "team_stack", team_stack),
        (setup, "preflight", nothing),
        (policy, "options", options),
        (pods, "watched", watched),
        (pods, "show", show),
    ):
        monkeypatch.setattr(module, name, value)
    assert up.up("staging", []) == 3
    assert happened == ["watch staging", "up", "end", "show staging"]


def test_a_stack_that_is_rendered_to_a_folder_has_no_pods_to_ask() -> None:
    assert paths.stack_file("staging").exists()
    assert pods.place_of("staging") is None
    assert pods.main("staging") == 0
