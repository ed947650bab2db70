"""The program itself on a control plane: a stack that is applied to a cluster."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ops.cluster import CONTEXT, Cluster
from ops.kube_api import ApiError
from ops.kubeconfig import api_of
from ops.pods import Place, report
from tests.cluster.program import said
from tests.cluster.reading import Object
from tests.envoy.harness import wait_for
from tests.kubernetes_stacks import four_gpus
from tests.pulumi_project import CHECKOUT, Project
from tests.stacks import Config, changed
from toolchain.cache import cache_root
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


def test_make_up_says_that_a_fifth_pod_finds_no_gpu_while_it_still_waits_for_it(
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
    said: list[str] = []
    with make_up(project, "fifth") as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if "no node takes it: 0/" in line:
                break
        assert process.poll() is None, "".join(said)
        assert "Insufficient nvidia.com/gpu" in said[-1]
        assert "timed out" not in "".join(said)
        reported = report(place)
        assert reported.startswith("Not well in namespace fifth:")
        assert said[-1].strip() in reported
        # Now it is.
        cluster.add_nodes("fifth-more", gpus=1, product="FIFTH")
        said += process.stdout
        assert process.wait() == 0, "".join(said)
    assert "".join(said).count("no node takes it") == 1
    wait_for("all are well", lambda: report(place) == "")
    assert project.destroy("fifth").code == 0


@contextmanager
def make_up(project: Project, stack: str) -> Iterator[subprocess.Popen[str]]:
    """What `make up STACK=…` runs, in the project's folder: with our `ops`, which looks beside itself."""
    shutil.copytree(CHECKOUT / "ops", project.folder / "ops")
    for name in ("toolchain", "images", "policies", "review"):
        (project.folder / name).symlink_to(CHECKOUT / name)
    # The tools of this user's, and consent to those that were built here.
    env = {**project.env, "XDG_CACHE_HOME": str(cache_root().parent), "TOOLCHAIN": "registries"}
    words = "--yes --skip-preview --non-interactive --color never"
    with subprocess.Popen(
        [project.folder / ".venv/bin/python", "-m", "ops", "up", "--stack", stack, f"--arguments={words}"],
        cwd=project.folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_an_autoscaled_pool_keeps_what_its_autoscaler_did_through_rolls_and_further_ups(
    cluster: Cluster, tmp_path: Path, kubernetes_toolchain: Toolchain
) -> None:
    cluster.add_nodes("scaled-gpu", gpus=4, product="SCALED")
    cluster.add_nodes("scaled-cpu", gpus=0)
    project = project_on(cluster, tmp_path, kubernetes_toolchain)
    config = on("SCALED")
    config["cluster"] |= {"namespace": "autoscaled"}
    del config["pools"][0]["nodes"]["replicas"]
    config["pools"][0]["nodes"]["autoscale"] = {"least": 2, "most": 4}
    project.write_stack("scaled", config)
    made = project.up("scaled")
    assert made.code == 0, made.output
    pool = "/apis/apps/v1/namespaces/autoscaled/deployments/scaled-main"

    def replicas() -> int:
        return int(cluster.api.get(pool)["spec"]["replicas"])

    wait_for("the autoscaler has seen to its minimum", lambda: replicas() == 2)
    assert set(project.up("scaled").changes()) == {"unchanged"}
    # No load is measured here: what the autoscaler does under load is done in its place, by the same way.
    cluster.api.merge(f"{pool}/scale", {"spec": {"replicas": 4}})
    assert replicas() == 4
    config = changed(config, "pools[0].batching.batch_timeout_micros", 5000)
    project.write_stack("scaled", config)
    rolled = project.up("scaled")
    assert rolled.code == 0, rolled.output
    assert "onflict" not in rolled.output
    assert replicas() == 4
    config = changed(config, "pools[0].nodes.autoscale", {"least": 3, "most": 4})
    project.write_stack("scaled", config)
    bounded = project.up("scaled")
    assert bounded.code == 0, bounded.output
    assert bounded.changes()["updated"] == 1, bounded.output
    assert replicas() == 4
    assert project.preview("scaled", "--refresh", "--expect-no-changes").code == 0
    assert project.destroy("scaled").code == 0


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
