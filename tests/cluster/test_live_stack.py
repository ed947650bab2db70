"""The program itself on a control plane: a stack that is applied to a cluster."""

import os
from pathlib import Path

import pytest

from ops.cluster import CONTEXT, Cluster
from tests.cluster.reading import Object
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


def servers(cluster: Cluster) -> list[Object]:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=tf-serving.role%3Dinstance"
    found: list[Object] = cluster.api.items(path)
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def test_a_stack_is_placed_rolls_without_a_fifth_gpu_and_leaves_nothing(
    cluster: Cluster, tmp_path: Path, kubernetes_toolchain: Toolchain
) -> None:
    cluster.add_nodes("live-gpu", gpus=4, product="LIVE")
    cluster.add_nodes("live-cpu", gpus=0)
    project = Project(
        tmp_path,
        kubernetes_toolchain,
        {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": "none"},
    )
    (project.folder / "kubeconfig").symlink_to(cluster.kubeconfig)
    config = on("LIVE")
    project.write_stack("live", config)
    made = project.up("live")
    assert made.code == 0, made.output
    assert [pod["spec"]["nodeName"] for pod in servers(cluster)] == ["live-gpu"] * 4
    assert set(project.up("live").changes()) == {"unchanged"}
    assert project.preview("live", "--refresh", "--expect-no-changes").code == 0
    before = {pod["metadata"]["uid"] for pod in servers(cluster)}
    project.write_stack("live", changed(config, "pools[0].batching.batch_timeout_micros", 5000))
    rolled = project.up("live")
    assert rolled.code == 0, rolled.output
    after = {pod["metadata"]["uid"] for pod in servers(cluster)}
    assert len(after) == 4
    assert not after & before
    project.write_stack(
        "live",
        changed(
            changed(config, "pools[0].batching.batch_timeout_micros", 5000),
            "pools[0].models[0].versions",
            {"specific": [1, 2]},
        ),
    )
    assert project.up("live").code == 0
    assert {pod["metadata"]["uid"] for pod in servers(cluster)} == after, "versions reach pods that run"
    gone = project.destroy("live")
    assert gone.code == 0, gone.output
    assert NAMESPACE not in {each["metadata"]["name"] for each in cluster.api.items("/api/v1/namespaces")}
