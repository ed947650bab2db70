"""A release under way: which instance serves what, what Envoy is told, and what is refused."""

from typing import Any

import pytest

from components import server_files
from components.front_end_plan import FrontEndPlan
from components.plan import InstancePlan
from tests import kubernetes_stacks, stacks
from tests.envoy.reading import clusters, route_for, routes
from tests.stacks import Config, changed, one_node, plan, refusal, without

POOL = "pools[0]"
HEADER = "x-tf-model-version"


def served(version: int = 1, **more: object) -> Config:
    """A pool of four instances with one version of one model, which its label names."""
    config = one_node()
    config["pools"][0]["models"][0] |= {"versions": {"specific": [version]}, "labels": {"stable": version}}
    config["pools"][0] |= more
    return config


def released(moved: int, **more: object) -> Config:
    return served(1, release={"model": "resnet50", "version": 2, "moved": moved}, **more)


def versions(config: Config) -> list[tuple[int, ...] | None]:
    return [instance.models[0].versions.specific for instance in plan(config).instances]


def front_end(config: Config) -> FrontEndPlan:
    return plan(config).nodes[0].front_end


def hosts(config: Config, cluster: str) -> set[str]:
    [priority] = clusters(front_end(config))[cluster]["load_assignment"]["endpoints"]
    return {one["endpoint"]["hostname"].removeprefix("gpu-01-") for one in priority["lb_endpoints"]}


def test_the_first_instances_in_the_order_of_slots_have_the_new_version_and_its_labels() -> None:
    config = changed(released(2), f"{POOL}.slots[0].gpus", [3, 1, 0, 2])
    assert versions(config) == [(1,), (2,), (1,), (2,)]  # GPU by GPU
    assert [instance.models[0].labels for instance in plan(config).instances] == [
        (("stable", version),) for version in (1, 2, 1, 2)
    ]


@pytest.mark.parametrize("moved", [0, 1, 4])
def test_what_is_not_moved_is_told_what_it_was_told_before(moved: int) -> None:
    before, now = plan(served()).instances, plan(released(moved)).instances
    assert list(now[moved:]) == list(before[moved:])
    assert all(left != right for left, right in zip(now[:moved], before, strict=False))


@pytest.mark.parametrize("before", ["reload", "replace"])
def test_the_end_of_a_release_changes_no_instance(before: str) -> None:
    done = served(2, new_versions="replace")
    assert plan(released(4, new_versions=before)).instances == plan(done).instances


def test_a_pool_that_replaces_names_its_list_for_its_versions_and_one_that_reloads_does_not() -> None:
    def lists(*configs: Config) -> set[str]:
        return {server_files.models_file(plan(config).instances[0]) for config in configs}

    assert len(lists(served(1), served(2))) == 1
    assert len(lists(served(1, new_versions="replace"), served(2, new_versions="replace"))) == 2
    relabelled = changed(served(1, new_versions="replace"), f"{POOL}.models[0].labels", {"canary": 1})
    assert len(lists(served(1, new_versions="replace"), relabelled)) == 1


def label(instance: InstancePlan) -> str | None:
    return dict(instance.labels).get("tf-serving.versions")


def test_labels_say_which_version_an_instance_was_started_for() -> None:
    assert [label(one) for one in plan(released(1)).instances] == ["resnet50=2", None, None, None]
    assert {label(one) for one in plan(served(1, new_versions="replace")).instances} == {"resnet50=1"}


def test_the_publisher_is_told_both_lists_each_with_its_readers() -> None:
    instances = plan(released(1)).instances
    new, old = (server_files.models_file(instances[position]) for position in (0, 1))
    assert server_files.models_settings(instances).splitlines() == [
        "wait 600",
        f"file {new}",
        "by-version",
        f"instance gpu-01-gpu0 {instances[0].address}/8501",
        f"file {old}",
        *(f"instance {one.name} {one.address}/8501" for one in instances[1:]),
    ]


def test_requests_without_a_version_go_to_every_instance() -> None:
    assert hosts(released(1), "rest-main") == hosts(released(1), "grpc-main") == {f"gpu{n}" for n in range(4)}


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_each_version_has_a_cluster_of_those_that_have_it_checked_by_that_version(protocol: str) -> None:
    assert hosts(released(1), f"{protocol}-main_v1") == {"gpu1", "gpu2", "gpu3"}
    assert hosts(released(1), f"{protocol}-main_v2") == {"gpu0"}
    for version in (1, 2):
        [check] = clusters(front_end(released(1)))[f"{protocol}-main_v{version}"]["health_checks"]
        assert check["http_health_check"]["path"] == f"/v1/models/resnet50/versions/{version}"
    [check] = clusters(front_end(released(1)))[f"{protocol}-main"]["health_checks"]
    assert check["http_health_check"]["path"] == "/v1/models/resnet50"


def test_users_who_stay_with_an_instance_do_so_among_those_of_a_version() -> None:
    sticky = clusters(front_end(released(1, balancing={"sticky": True})))
    assert {name for name in sticky if name.startswith("rest-main_v2")} == {
        "rest-main_v2",
        "rest-main_v2_sticky",
    }


def asked(config: Config, path: str, **headers: str) -> Any:
    named = {":method": "POST", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return route_for(routes(front_end(config), "rest"), path, named)


PREDICT = "/v1/models/resnet50:predict"


@pytest.mark.parametrize(
    ("path", "headers", "cluster"),
    [
        (PREDICT, {}, "rest-main"),
        (PREDICT, {HEADER: "1"}, "rest-main_v1"),
        (PREDICT, {HEADER: "2"}, "rest-main_v2"),
        (PREDICT, {HEADER: "stable"}, "rest-main"),
        ("/v1/models/resnet50/versions/1:predict", {}, "rest-main_v1"),
        ("/v1/models/resnet50/versions/2:classify", {HEADER: "stable"}, "rest-main_v2"),
        ("/v1/models/resnet50/labels/stable:predict", {}, "rest-main"),
    ],
)
def test_a_version_in_header_or_path_leads_to_those_that_have_it(
    path: str, headers: dict[str, str], cluster: str
) -> None:
    route = asked(released(1), path, **headers)["route"]
    assert route["cluster"] == cluster
    # One that is moved just now has lost it before Envoy knows.
    assert (404 in route.get("retry_policy", {}).get("retriable_status_codes", [])) == ("_v" in cluster)


@pytest.mark.parametrize(
    ("path", "cluster"),
    [
        ("/v1/models/resnet50", "rest-main"),
        ("/v1/models/resnet50/metadata", "rest-main"),
        ("/v1/models/resnet50/versions/2", "rest-main_v2"),
        ("/v1/models/resnet50/versions/1/metadata", "rest-main_v1"),
    ],
)
def test_the_state_of_a_version_is_asked_of_those_that_have_it(path: str, cluster: str) -> None:
    found = route_for(routes(front_end(released(1)), "rest"), path, {":method": "GET"})
    assert found["route"]["cluster"] == cluster


@pytest.mark.parametrize(("moved", "refused"), [(0, "2"), (4, "1")])
def test_a_version_that_no_instance_has_is_refused_with_those_that_are_there(
    moved: int, refused: str
) -> None:
    answer = asked(released(moved), PREDICT, **{HEADER: refused})["direct_response"]
    assert answer["status"] == 400
    there = "1" if moved == 0 else "2"
    assert answer["body"]["inline_string"].endswith(f"accepted: stable, {there}")


def over_grpc(config: Config, **headers: str) -> Any:
    path = "/tensorflow.serving.PredictionService/Predict"
    return route_for(routes(front_end(config), "grpc"), path, {":method": "POST", **headers})["route"]


def test_over_grpc_a_version_in_the_header_leads_there_and_one_in_the_message_is_looked_for() -> None:
    assert over_grpc(released(1), **{HEADER: "2"})["cluster"] == "grpc-main_v2"
    route = over_grpc(released(1))
    assert route["cluster"] == "grpc-main"
    assert route["retry_policy"]["num_retries"] == 3  # every other instance
    [status] = route["retry_policy"]["retriable_headers"]
    assert "5" in status["string_match"]["safe_regex"]["regex"].split("|")
    assert "retry_policy" not in over_grpc(served())


def test_other_models_of_the_pool_are_served_by_all() -> None:
    config = released(1)
    config["pools"][0]["models"].append(
        {"name": "bert", "path": "/srv/models/bert", "versions": {"specific": [2]}}
    )
    assert asked(config, "/v1/models/bert:predict", **{HEADER: "2"})["route"]["cluster"] == "rest-main"
    assert versions(config) == [(2,), (1,), (1,), (1,)]
    assert {instance.models[1].versions.specific for instance in plan(config).instances} == {(2,)}


def test_a_node_offers_the_versions_that_its_own_instances_have() -> None:
    config = stacks.two_nodes()
    config["pools"][0]["models"][0]["versions"] = {"specific": [1]}
    config["pools"][0]["release"] = {"model": "resnet50", "version": 2, "moved": 1}
    ends = {node.name: node.front_end for node in plan(config).nodes}
    assert [part.name for part in ends["gpu-02"].pool("main").parts] == ["main_v1", "main_v2"]
    assert [part.name for part in ends["gpu-01"].pool("main").parts] == ["main_v1"]
    assert ends["gpu-01"].pool("main").models[0].versions.specific == (1,)


REFUSED = [
    (
        without(released(1), f"{POOL}.models[0].versions"),
        f"{POOL}.models[0].versions.specific: []: must be the one version that is served beside a release",
    ),
    (
        changed(released(1), f"{POOL}.release.version", 1),
        f"{POOL}.release.version: 1: is what the pool serves already",
    ),
    (
        changed(released(1), f"{POOL}.release.model", "bert"),
        f"{POOL}.release.model: 'bert': no model of main; accepted: resnet50",
    ),
    (released(5), f"{POOL}.release.moved: 5: main has 4 instances"),
    (
        released(1, traffic={"canary": {"percent": 0, "label": "stable", "stable": "old"}}),
        f"{POOL}.release: not while requests are shared out by traffic.canary; take that out first",
    ),
    (
        without(served(new_versions="replace"), f"{POOL}.models[0].versions"),
        f"{POOL}.models[0].versions: must be specific: [<version>] beside new_versions: replace",
    ),
]


@pytest.mark.parametrize(("config", "message"), REFUSED)
def test_what_cannot_be_released_is_refused_with_the_reason(config: Config, message: str) -> None:
    assert message in refusal(config)


def test_a_pool_and_one_that_helps_it_are_not_released() -> None:
    config = released(1)
    config["pools"][0]["slots"][0]["gpus"] = [0, 1, 2]
    spare = {**config["pools"][0], "name": "spare", "slots": [{"node": "gpu-01", "gpus": [3]}]}
    del spare["release"]
    config["pools"] = [{**config["pools"][0], "traffic": {"standby": {"pool": "spare"}}}, spare]
    message = (
        "pools[0].release: not while requests are shared out by traffic.standby.pool; take that out first"
    )
    assert refusal(config) == [message]
    config["pools"][1]["release"] = config["pools"][0].pop("release")
    assert refusal(config) == [
        "pools[1].release: not while it helps pool main (traffic); take that out first"
    ]


def test_on_kubernetes_versions_change_in_place() -> None:
    config = kubernetes_stacks.four_gpus()
    config["pools"][0]["models"][0]["versions"] = {"specific": [1]}
    name = config["pools"][0]["models"][0]["name"]
    said = {"new_versions": "replace", "release": {"model": name, "version": 2, "moved": 0}}
    lines = refusal(changed(config, POOL, {**config["pools"][0], **said}))
    assert {line.partition(": ")[0] for line in lines} >= {f"{POOL}.release", f"{POOL}.new_versions"}
    assert all("(traffic.canary)" in line for line in lines if line.startswith((f"{POOL}.r", f"{POOL}.n")))
