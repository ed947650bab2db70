"""`make cluster` and `make cluster-down`: a Kubernetes cluster of this checkout, to try things on."""

from ops import paths
from ops.cluster import CONTEXT, Cluster
from toolchain.control_plane import kubernetes_version
from toolchain.progress import step

GPU_TAINT = "nvidia.com/gpu=present:NoSchedule"


def cluster() -> Cluster:
    """The cluster of this checkout, whether it runs or not."""
    return Cluster(paths.CLUSTER)


def start() -> int:
    """Start it, with two nodes of four GPUs and two without, and say how to reach it."""
    ours = cluster()
    with step(f"Start Kubernetes {kubernetes_version()} on the loopback", "10 s once it is built"):
        ours.start()
        if not ours.api.items("/api/v1/nodes"):
            ours.add_nodes("gpu-01", "gpu-02", gpus=4, taints=[GPU_TAINT])
            ours.add_nodes("cpu-01", "cpu-02", gpus=0)
    print(f"kubeconfig: {ours.kubeconfig}\ncontext:    {CONTEXT}\nlogs:       {ours.folder}/*.log")
    print(f"  kubectl --kubeconfig {ours.kubeconfig} get nodes")
    print(
        "No container runs on its nodes: kwok plays their kubelets. `make cluster-down` stops and deletes it."
    )
    return 0


def stop() -> int:
    """Stop it and delete all that is in it; fine where there is none."""
    cluster().remove()
    print("The cluster is stopped and deleted; what was built for it stays in the cache.")
    return 0
