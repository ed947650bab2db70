"""Nodes that only the API server knows: kwok plays their kubelets, as cluster_stages.yaml tells it."""

from collections.abc import Mapping, Sequence

from ops.kube_api import Json

A100 = "NVIDIA-A100-SXM4-80GB"


def node(
    name: str,
    *,
    gpus: int,
    product: str = A100,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    resource: str = "nvidia.com/gpu",
) -> Json:
    """A node with 64 CPUs, 512 GiB and so many GPUs, labelled as NVIDIA's feature discovery labels one.

    A taint is `key=value:Effect` or `key:Effect`. `resource` is what the GPUs are asked for by, such as
    `nvidia.com/mig-1g.10gb`.
    """
    usual = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if gpus:
        usual |= {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.count": str(gpus),
        }
    offered = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"}
    if gpus:
        offered[resource] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**usual, **(labels or {})},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [_taint(text) for text in taints]},
        "status": {"allocatable": offered, "capacity": offered},
    }


def _taint(text: str) -> Json:
    what, _, effect = text.rpartition(":")
    key, _, value = what.partition("=")
    return {"key": key, "value": value, "effect": effect}


def is_ready(node: Json) -> bool:
    """Whether pods can be placed on a node: its kubelet is heard of, and the controllers have seen that."""
    conditions = node.get("status", {}).get("conditions", [])
    taints = node["spec"].get("taints", [])
    heard = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return heard and not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)
