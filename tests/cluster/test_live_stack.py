"""The program itself on a control plane: a stack that is applied to a cluster."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ops.cluster import CONTEXT, Cluster
from ops.kube_api import ApiError
from ops.kubeconfig import api_of
from ops.pods import Place, report, watch
from tests.cluster.program import said
from tests.cluster.reading import Object
from tests.envoy.harness import wait_for
from tests.kubernetes_stacks import four_gpus
from tests.pulumi_project import Project
from tests.stacks import Config, changed
from toolchain.tools import Toolchain

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

NAMESPACE = "live"


def on(product: str) -> Config:
    config = four_gpus()
    config["cluster"] = {
        "kubeconfig": "./kubeconfig",
        "context": CONTEXT,
        "namespace": NAMESPACE,
        "create_namespace": True,
    }
    config["node_pools"][0] |= {"selector": {"nvidia.com/gpu.product": product}}
    config["pools"][0] |= {"model_volume": {"host_path": True}, "load_timeout_s": 60}
    config["pools"][0]["nodes"]["cpus"] = 4
    config["pools"][0]["memory"] = {"container_mib": 4096}
    return config


APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
CORE = f"/api/v1/namespaces/{NAMESPACE}"


def pods(cluster: Cluster, role: str) -> list[Object]:
    found: list[Object] = cluster.api.items(f"{CORE}/pods?labelSelector=tf-serving.role%3D{role}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def servers(cluster: Cluster) -> list[Object]:
    return pods(cluster, "instance")


def jobs(cluster: Cluster) -> dict[str, int]:
    """How often each Job has succeeded, by its name."""
    found = cluster.api.items(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")
    return {job["metadata"]["name"]: job["status"].get("succeeded", 0) for job in found}


def budget(cluster: Cluster, name: str) -> int:
    """How many pods a budget lets go now."""
    status = cluster.api.get(f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/{name}")["status"]
    return int(status.get("disruptionsAllowed", 0))


def evict(cluster: Cluster, pod: str) -> None:
    eviction: dict[str, object] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }
    cluster.api.create(f"{CORE}/pods/{pod}/eviction", eviction)


def project_on(cluster: Cluster, folder: Path, toolchain: Toolchain) -> Project:
    # A kubeconfig of the environment, which nobody reads.
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": "none"}
    project = Project(folder, toolchain, env)
    (project.folder / "kubeconfig").symlink_to(cluster.kubeconfig)
    return project


def test_a_stack_is_placed_rolls_without_a_fifth_gpu_drains_by_its_budgets_and_leaves_nothing(
    cluster: Cluster, tmp_path: Path, kubernetes_toolchain: Toolchain
) -> None:
    cluster.add_nodes("live-gpu", gpus=4, product="LIVE")
    cluster.add_nodes("live-cpu", gpus=0)
    project = project_on(cluster, tmp_path, kubernetes_toolchain)
    config = on("LIVE")
    project.write_stack("live", config)
    made = project.up("live")
    assert made.code == 0, made.output
    assert [pod["spec"]["nodeName"] for pod in servers(cluster)] == ["live-gpu"] * 4
    assert list(jobs(cluster).values()) == [1]
    # The autoscaler owns how many Envoys there are, and nobody undoes what it does.
    wait_for("Envoy's autoscaler has seen to its minimum", lambda: len(pods(cluster, "front-end")) == 2)
    assert set(project.up("live").changes()) == {"unchanged"}
    assert project.preview("live", "--refresh", "--expect-no-changes").code == 0

    before = {pod["metadata"]["uid"] for pod in servers(cluster)}
    asked = jobs(cluster)
    config = changed(config, "pools[0].batching.batch_timeout_micros", 5000)
    project.write_stack("live", config)
    rolled = project.up("live")
    assert rolled.code == 0, rolled.output
    after = {pod["metadata"]["uid"] for pod in servers(cluster)}
    assert len(after) == 4
    assert not after & before
    assert jobs(cluster) == asked, "no file that is read again is another one"

    # Envoy rolls beside the autoscaler that owns its number: nobody conflicts, nobody undoes it.
    config = changed(config, "front_end", {"memory_mib": 2048})
    project.write_stack("live", config)
    envoys = {pod["metadata"]["uid"] for pod in pods(cluster, "front-end")}
    rolled = project.up("live")
    assert rolled.code == 0, rolled.output
    assert not envoys & {pod["metadata"]["uid"] for pod in pods(cluster, "front-end")}
    assert cluster.api.get(f"{APPS}/deployments/live-envoy")["spec"]["replicas"] == 2

    config = changed(config, "pools[0].models[0].versions", {"specific": [1, 2]})
    project.write_stack("live", config)
    assert project.up("live").code == 0
    assert {pod["metadata"]["uid"] for pod in servers(cluster)} == after, "versions reach pods that run"
    assert list(jobs(cluster).values()) == [1]
    assert jobs(cluster).keys() != asked.keys(), "other versions are asked for by another Job"

    drain_respects_the_budgets(cluster)
    assert project.preview("live", "--refresh", "--expect-no-changes").code == 0
    gone = project.destroy("live")
    assert gone.code == 0, gone.output
    assert NAMESPACE not in {each["metadata"]["name"] for each in cluster.api.items("/api/v1/namespaces")}


def test_a_fifth_pod_is_said_to_find_no_gpu_while_up_still_waits_for_it(
    cluster: Cluster, tmp_path: Path, kubernetes_toolchain: Toolchain
) -> None:
    cluster.add_nodes("fifth-gpu", gpus=4, product="FIFTH")
    cluster.add_nodes("fifth-cpu", gpus=0)
    project = project_on(cluster, tmp_path, kubernetes_toolchain)
    # The stack file claims a GPU that is not there.
    config = changed(changed(on("FIFTH"), "node_pools[0].gpus_per_node", 5), "pools[0].nodes.replicas", 5)
    config["cluster"] |= {"namespace": "fifth"}
    project.write_stack("fifth", config)
    place = Place(api_of(cluster.kubeconfig, CONTEXT), "fifth", "fifth")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(project.up, "fifth")
        shown = next(watch(place))
        reported = report(place)
        assert not waits.done()
        # Now it is.
        cluster.add_nodes("fifth-more", gpus=1, product="FIFTH")
        done = waits.result()
    assert done.code == 0, done.output
    assert "no node takes it: 0/" in shown
    assert "Insufficient nvidia.com/gpu" in shown
    assert shown in reported
    assert reported.startswith("Not well in namespace fifth:")
    wait_for("all are well", lambda: report(place) == "")
    assert project.destroy("fifth").code == 0


def drain_respects_the_budgets(cluster: Cluster) -> None:
    wait_for("the budgets are counted", lambda: budget(cluster, "live-main") == 1)
    first, second, *_ = (str(pod["metadata"]["name"]) for pod in servers(cluster))
    cluster.api.merge("/api/v1/nodes/live-gpu", {"spec": {"unschedulable": True}})
    evict(cluster, first)
    # Its successor is Pending: no node may take it.
    with pytest.raises(ApiError, match="429: Cannot evict pod as it would violate"):
        evict(cluster, second)
    cluster.api.merge("/api/v1/nodes/live-gpu", {"spec": {"unschedulable": False}})
    wait_for("another is ready", lambda: budget(cluster, "live-main") == 1)
    evict(cluster, second)
    wait_for("all four are ready", lambda: budget(cluster, "live-main") == 1)
    # Of two Envoys one may go.
    one, other = (str(pod["metadata"]["name"]) for pod in pods(cluster, "front-end"))
    wait_for("both Envoys are counted", lambda: budget(cluster, "live-envoy") == 1)
    cluster.api.merge("/api/v1/nodes/live-cpu", {"spec": {"unschedulable": True}})
    evict(cluster, one)
    with pytest.raises(ApiError, match="429: Cannot evict pod as it would violate"):
        evict(cluster, other)
    cluster.api.merge("/api/v1/nodes/live-cpu", {"spec": {"unschedulable": False}})
    wait_for("two Envoys are back", lambda: budget(cluster, "live-envoy") == 1)


def test_what_a_job_found_wrong_fails_up_with_its_words_and_the_next_up_asks_again(
    cluster: Cluster, tmp_path: Path, kubernetes_toolchain: Toolchain
) -> None:
    cluster.add_nodes("words-gpu", gpus=4, product="WORDS")
    cluster.add_nodes("words-jobs-fail", gpus=0, labels={"for": "words"})
    project = project_on(cluster, tmp_path, kubernetes_toolchain)
    config = on("WORDS") | {"front_end": {"node_selector": {"for": "words"}}}
    config["cluster"] |= {"namespace": "words"}
    project.write_stack("words", config)
    failed = project.up("words")
    assert failed.code != 0
    assert "[Error] FAILED: it says why" in said(failed)
    cluster.api.merge("/api/v1/nodes/words-jobs-fail", {"spec": {"unschedulable": True}})
    cluster.add_nodes("words-cpu", gpus=0, labels={"for": "words"})
    again = project.up("words")
    assert again.code == 0, again.output
    assert again.changes()["replaced"] == 1, again.output
    assert project.preview("words", "--refresh", "--expect-no-changes").code == 0
    assert project.destroy("words").code == 0
