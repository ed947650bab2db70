"""A program that uses none of our components, and a container of it that keeps every rule."""

from typing import Any

from tests.pulumi_project import CHECKOUT

PACK = CHECKOUT / "policies"
GPU = "GPU-11111111-aaaa-4aaa-8aaa-00000000000{}"
RAW = """
import json, pulumi, pulumi_docker as docker
provider = docker.Provider("p", host="ssh://deploy@gpu-01.example.com")
opts = pulumi.ResourceOptions(provider=provider, delete_before_replace=True)
last = []
for name, inputs in json.loads(pulumi.Config().require("containers")).items():
    own = {"depends_on": last, **inputs.pop("options", {})}
    last = [docker.Container(name, opts=opts.merge(pulumi.ResourceOptions(**own)), **inputs)]
"""


def with_pack(environment: str) -> list[str]:
    return [f"--policy-pack={PACK}", f"--policy-pack-config={PACK}/config/{environment}.json"]


BATCHING = """max_batch_size { value: 32 }
batch_timeout_micros { value: 2000 }
num_batch_threads { value: 2 }
"""


def server(gpu: int) -> dict[str, Any]:
    """A container that keeps every rule of this step, as another program might write it."""
    return {
        "image": f"tensorflow/serving:2.14.1-gpu@sha256:{'0' * 64}",
        "entrypoints": ["/usr/bin/tensorflow_model_server"],
        "command": [
            "--port=8500",
            "--rest_api_port=8501",
            "--model_name=resnet50",
            "--model_base_path=/models/resnet50",
            "--enable_profiler=false",
            "--enable_batching=true",
            "--batching_parameters_file=/batching.config",
            "--grpc_max_threads=64",
            "--rest_api_num_threads=64",
        ],
        "uploads": [{"file": "/batching.config", "content": BATCHING}],
        "envs": ["TF_FORCE_GPU_ALLOW_GROWTH=true"],
        "device_requests": [{"driver": "nvidia", "device_ids": [GPU.format(gpu)], "capabilities": ["gpu"]}],
        "cpu_set": f"{16 * gpu}-{16 * gpu + 15}",
        "memory": 98304,
        "memory_swap": 98304,
        "healthcheck": {
            "tests": ["CMD", "bash", "-c", 'ask "$0"', "/v1/models/resnet50/metadata"],
            "interval": "5s",
            "timeout": "10s",
            "start_period": "10m0s",
            "retries": 3,
        },
        "wait": True,
        "wait_timeout": 600,
        "restart": "unless-stopped",
        "init": True,
        "stop_timeout": 10,
        "destroy_grace_seconds": 10,
        "security_opts": ["no-new-privileges:true"],
        "labels": [
            {"label": "tf-serving.stack", "value": "raw"},
            {"label": "tf-serving.owner", "value": "ml-platform"},
            {"label": "tf-serving.pool", "value": "main"},
            {"label": "tf-serving.slot", "value": f"gpu{gpu}"},
            {"label": "tf-serving.models", "value": "resnet50"},
            {"label": "tf-serving.load-timeout-s", "value": "600"},
        ],
    }
