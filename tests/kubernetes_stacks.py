"""Good stack files for Kubernetes as plain values; `stacks.changed` and the like break them in one way."""

from components.kubernetes_plan import KubernetesPlan, make_kubernetes_plan
from components.kubernetes_settings import KubernetesSettings
from components.stack_file import load_settings
from tests.stacks import SOURCE, Config


def four_gpus() -> Config:
    """One pool of four pods on one node with four GPUs, on a cluster that is reached."""
    return {
        "target": "kubernetes",
        "owner": "ml-platform",
        "cluster": {"kubeconfig": "./kubeconfig", "context": "gpu-cluster", "namespace": "serving"},
        "node_pools": [
            {
                "name": "a100",
                "nodes": 1,
                "gpus_per_node": 4,
                "gpu_model": "a100-80g",
                "selector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
                "cpus_per_node": 120,
                "memory_mib_per_node": 480000,
                "driver": "535.129.03",
            }
        ],
        "images": {"server": "tensorflow/serving:2.14.1-gpu", "envoy": "envoyproxy/envoy:v1.40.0"},
        "pools": [
            {
                "name": "main",
                "models": [{"name": "resnet50", "path": "/resnet50"}],
                "nodes": {"pool": "a100", "replicas": 4, "cpus": 16},
                "model_volume": {"claim": "models"},
                "batching": {
                    "max_batch_size": 32,
                    "batch_timeout_micros": 2000,
                    "allowed_batch_sizes": [1, 8, 32],
                },
                "memory": {"container_mib": 98304, "shm_mib": 1024},
            }
        ],
    }


def rendered_to(folder: str = "rendered") -> Config:
    """The same for a folder of manifests."""
    return four_gpus() | {"cluster": {"render_to": f"./{folder}", "namespace": "serving"}}


def settings(config: Config) -> KubernetesSettings:
    """The settings of a good stack."""
    found = load_settings(config, SOURCE)
    assert isinstance(found, KubernetesSettings)
    return found


def plan(config: Config, *, stack: str = "test") -> KubernetesPlan:
    """The plan of a good stack."""
    return make_kubernetes_plan(settings(config), stack=stack)
