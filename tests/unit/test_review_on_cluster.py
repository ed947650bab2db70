"""What a pull request does to a stack on Kubernetes, by the manifests of both sides."""

import pytest

from components.kubernetes_manifests import objects
from review import on_cluster
from review.events import Step
from review.meaning import Traffic, meaning
from review.report import Outcome, report
from tests.kubernetes_stacks import four_gpus, plan
from tests.stacks import Config, changed, in_staging

ASKS = {"acceptance", "acceptance-files"}


def manifests(config: Config) -> on_cluster.Manifests:
    return {each.key: each.manifest for each in objects(plan(config))}


def done(old: Config, new: Config) -> dict[str, Step]:
    return {step.name: step for step in on_cluster.steps(manifests(old), manifests(new))}


def told(old: Config, new: Config) -> dict[str, str]:
    return {name: f"{step.operation}: {meaning(step, Traffic({}))}" for name, step in done(old, new).items()}


def with_replicas(count: int, **more: object) -> Config:
    return changed(in_staging(four_gpus()), "pools[0].nodes.replicas", count) | more


def test_the_same_stack_twice_has_no_steps() -> None:
    assert done(four_gpus(), four_gpus()) == {}


@pytest.mark.parametrize(
    ("count", "means"),
    [
        (4, "rolls one pod at a time: pool main serves with 3 of 4"),
        (1, "rolls: pool main has no other pod, and answers nothing until the new one has loaded its models"),
    ],
)
def test_another_image_rolls_the_pods_of_a_pool_and_says_what_is_left(count: int, means: str) -> None:
    newer = changed(with_replicas(count), "images.server", "tensorflow/serving:2.14.0-gpu")
    said = told(with_replicas(count), newer)
    assert said["main"] == f"update: {means}"
    assert "envoy" not in said


def test_with_a_spare_gpu_a_new_pod_comes_first() -> None:
    config = changed(with_replicas(3), "node_pools[0].spare_gpus", 1)
    newer = changed(config, "images.server", "tensorflow/serving:2.14.0-gpu")
    assert (
        told(config, newer)["main"] == "update: rolls: a new pod of pool main is ready before an old one goes"
    )


def test_more_pods_are_no_roll() -> None:
    said = told(with_replicas(3), with_replicas(4))
    assert said["main"] == "update: pool main grows from 3 to 4"
    assert told(with_replicas(4), with_replicas(2))["main"] == "update: pool main shrinks from 4 to 2"


def test_what_servers_read_as_they_start_is_a_new_config_map_and_rolls_them() -> None:
    said = told(four_gpus(), changed(four_gpus(), "pools[0].batching.batch_timeout_micros", 5000))
    assert said["main-files"].startswith("replace: under a new name: the pods that read it are replaced")
    assert said["main"] == "update: rolls one pod at a time: pool main serves with 3 of 4"
    assert said.keys() - ASKS == {"main-files", "main"}


def test_what_servers_read_again_changes_in_place_and_nothing_rolls() -> None:
    said = told(four_gpus(), changed(four_gpus(), "pools[0].models[0].versions", {"latest": 2}))
    assert said.pop("main-models") == "update: in place: pods that run read it again"
    asks = "replace: asks until pods have what they were told, and serves no request"
    assert said == dict.fromkeys(ASKS, asks)


def test_pods_of_another_kind_are_all_gone_first() -> None:
    said = told(four_gpus(), changed(four_gpus(), "pools[0].balancing", {"sticky": True}))
    assert said["main"] == "replace: all pods go first: pool main answers nothing until new ones are ready"


def test_an_autoscaler_that_takes_over_is_said() -> None:
    nodes = {"pool": "a100", "cpus": 16, "autoscale": {"least": 2, "most": 4}}
    said = told(four_gpus(), changed(four_gpus(), "pools[0].nodes", nodes))
    assert said["main"] == "update: pool main: an autoscaler owns the number of pods now"
    assert said["main-autoscaler"].startswith("create")
    assert told(changed(four_gpus(), "pools[0].nodes", nodes), four_gpus())["main"] == (
        "update: pool main: no autoscaler owns the number of pods now"
    )


def test_a_pool_that_comes_and_goes_is_told_with_its_pods() -> None:
    second = {**four_gpus()["pools"][0], "name": "text", "models": [{"name": "bert", "path": "/bert"}]}
    both = changed(
        with_replicas(2), "pools[1]", changed({"second": second}, "second.nodes.replicas", 2)["second"]
    )
    assert told(with_replicas(2), both)["text"] == "create: pool text gets 2 pods"
    assert told(both, with_replicas(2))["text"] == "delete: pool text answers nothing any more"


def test_another_namespace_replaces_everything() -> None:
    steps = done(four_gpus(), changed(four_gpus(), "cluster.namespace", "other"))
    assert {step.operation for step in steps.values()} == {"replace"}
    assert all("metadata.namespace" in step.because for step in steps.values())


def test_another_owner_is_labels_alone_where_no_pod_carries_them() -> None:
    said = told(four_gpus(), changed(four_gpus(), "owner", "others"))
    assert said["main-service"] == "update: in place: labels alone"
    assert said["main"].startswith("update: rolls")


def test_the_report_groups_objects_and_shows_what_differs() -> None:
    newer = changed(four_gpus(), "images.server", "tensorflow/serving:2.14.0-gpu")
    steps = on_cluster.steps(manifests(four_gpus()), manifests(newer))
    text = report([Outcome(title="staging", path="Pulumi.staging.yaml", steps=steps, rules=3)], base="base")
    changed_in_place = sum(step.operation == "update" for step in steps)
    replaced = len(steps) - changed_in_place
    assert f"| staging | - | {changed_in_place} | {replaced or '-'} | - | 3 rules: ok |" in text
    assert "**changed in place** main (Deployment): rolls one pod at a time" in text
    assert (
        "containers[server].image`: `tensorflow/serving:2.14.1-gpu` → `tensorflow/serving:2.14.0-gpu`" in text
    )
