"""GPUs as a scheduler counts them: what the real provider does and says where there are too few."""

import pytest

from ops.cluster import Cluster
from tests.cluster.objects import deployment
from tests.cluster.program import Program, said
from tests.cluster.reading import APPS, CORE, placed, pods, unplaced
from tests.envoy.harness import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

Provider = dict[str, object]


def test_four_pods_fill_a_node_and_nothing_is_left_to_do_or_left_behind(
    cluster: Cluster, program: Program, provider: Provider
) -> None:
    cluster.add_nodes("fill", gpus=4, labels={"for": "fill"})
    program.write(provider, [deployment("fill", replicas=4, on="fill")])
    made = program.up()
    assert (made.code, made.changes()) == (0, {"created": 3}), made.output
    assert placed(cluster, "fill") == ["fill"] * 4
    assert program.up().changes() == {"unchanged": 3}
    assert program.preview("--refresh", "--expect-no-changes").code == 0
    assert program.destroy().changes() == {"deleted": 3}
    wait_for("its pods are gone", lambda: not pods(cluster, "fill"))
    assert "fill" not in names(cluster, f"{APPS}/deployments") + names(cluster, f"{CORE}/pods")


def test_a_fifth_pod_waits_for_a_gpu_and_the_provider_gives_up_in_its_own_time_without_the_reason(
    cluster: Cluster, program: Program, provider: Provider
) -> None:
    cluster.add_nodes("fifth", gpus=4, labels={"for": "fifth"})
    program.write(provider, [deployment("fifth", replicas=5, on="fifth", timeout="5s")])
    failed = program.up()
    assert failed.code != 0
    assert "'fifth' timed out waiting to be Ready" in said(failed)
    # The provider counts why a pod is not placed among its remarks, and shows only warnings: we must say it.
    assert "Insufficient" not in failed.output
    assert placed(cluster, "fifth") == ["fifth"] * 4
    [reason] = unplaced(cluster, "fifth")
    assert "Insufficient nvidia.com/gpu" in reason
    # What was made is in the state all the same: four pods are an update, not a second Deployment.
    program.write(provider, [deployment("fifth", replicas=4, on="fifth")])
    assert program.up().changes() == {"updated": 1, "unchanged": 2}
    program.destroy()


def test_a_full_node_is_rolled_with_surge_0(cluster: Cluster, program: Program, provider: Provider) -> None:
    cluster.add_nodes("roll", gpus=4, labels={"for": "roll"})
    program.write(provider, [deployment("roll", replicas=4, on="roll")])
    assert program.up().code == 0
    before = {pod["metadata"]["name"] for pod in pods(cluster, "roll")}
    program.write(provider, [deployment("roll", replicas=4, on="roll", annotations={"batching": "b"})])
    rolled = program.up()
    assert rolled.changes() == {"updated": 1, "unchanged": 2}, rolled.output
    after = {pod["metadata"]["name"] for pod in pods(cluster, "roll")}
    assert (len(after), after & before) == (4, set())
    assert placed(cluster, "roll") == ["roll"] * 4
    program.destroy()


def test_a_full_node_is_never_rolled_with_surge_1_and_a_roll_with_surge_0_heals_it(
    cluster: Cluster, program: Program, provider: Provider
) -> None:
    cluster.add_nodes("surge", gpus=4, labels={"for": "surge"})
    program.write(provider, [deployment("surge", replicas=4, on="surge")])
    assert program.up().code == 0
    before = {pod["metadata"]["name"] for pod in pods(cluster, "surge")}
    changed = {"batching": "b"}
    program.write(
        provider,
        [deployment("surge", replicas=4, on="surge", surge=1, timeout="5s", annotations=changed)],
    )
    failed = program.up()
    assert failed.code != 0
    assert "timed out waiting to be Ready" in said(failed)
    [reason] = unplaced(cluster, "surge")
    assert "Insufficient nvidia.com/gpu" in reason
    assert before < {pod["metadata"]["name"] for pod in pods(cluster, "surge")}
    program.write(provider, [deployment("surge", replicas=4, on="surge", annotations=changed)])
    assert program.up().code == 0
    assert len(placed(cluster, "surge")) == 4
    program.destroy()


def test_a_tainted_node_of_another_product_takes_no_pod_that_did_not_ask_for_it(
    cluster: Cluster, program: Program, provider: Provider
) -> None:
    cluster.add_nodes(
        "tainted",
        gpus=4,
        product="NVIDIA-L4",
        labels={"for": "tainted"},
        taints=["nvidia.com/gpu=p:NoSchedule"],
    )
    program.write(provider, [deployment("tainted", replicas=1, on="tainted", timeout="3s")])
    assert program.up().code != 0
    [reason] = unplaced(cluster, "tainted")
    assert "untolerated taint" in reason
    program.destroy()


@pytest.mark.parametrize(
    ("image", "shown"),
    [
        ("r/crashes:1", "[CrashLoopBackOff] back-off 40s restarting failed container"),
        ("r/pull-fails:1", '[ImagePullBackOff] Back-off pulling image "r/pull-fails:1"'),
        ("r/never-ready:1", "Minimum number of Pods to consider the application live was not attained"),
    ],
)
def test_a_server_that_does_not_start_fails_the_command_with_what_the_kubelet_says(
    cluster: Cluster, program: Program, provider: Provider, image: str, shown: str
) -> None:
    name = image.partition("/")[2].partition(":")[0]
    cluster.add_nodes(name, gpus=4, labels={"for": name})
    program.write(provider, [deployment(name, replicas=1, on=name, timeout="5s", image=image)])
    failed = program.up()
    assert failed.code != 0
    assert shown in said(failed)
    program.destroy()


def names(cluster: Cluster, path: str) -> list[str]:
    return [str(item["metadata"]["name"]) for item in cluster.api.items(path)]
