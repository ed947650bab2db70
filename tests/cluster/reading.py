"""What a cluster holds, read through its API."""

from typing import Any

from ops.cluster import Cluster

APPS = "/apis/apps/v1/namespaces/default"
CORE = "/api/v1/namespaces/default"
Object = dict[str, Any]


def pods(cluster: Cluster, app: str) -> list[Object]:
    """The pods of a Deployment that are not about to be deleted."""
    found: list[Object] = cluster.api.items(f"{CORE}/pods?labelSelector=app%3D{app}")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def placed(cluster: Cluster, app: str) -> list[str]:
    """The nodes of its pods that are placed."""
    return [pod["spec"]["nodeName"] for pod in pods(cluster, app) if "nodeName" in pod["spec"]]


def unplaced(cluster: Cluster, app: str) -> list[str]:
    """Why its other pods are not placed, in the scheduler's words."""
    waiting = [pod for pod in pods(cluster, app) if "nodeName" not in pod["spec"]]
    return [
        condition["message"]
        for pod in waiting
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "PodScheduled"
    ]


def replicas(cluster: Cluster, name: str) -> int:
    """How many pods a Deployment is to have now."""
    deployment: Object = cluster.api.get(f"{APPS}/deployments/{name}")
    return int(deployment["spec"]["replicas"])
