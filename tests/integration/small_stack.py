"""A stack that is quick to deploy and to change, on addresses and ports that nothing else uses."""

import copy
import random
from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path

from images.samples import write_sample_models
from ops.networks import routed_networks
from tests.envoy.harness import free_ports
from tests.stacks import Config

# Private engines take their own blocks from 172.16.0.0/12 and 10.128.0.0/9.
_SUBNETS = tuple(IPv4Network("10.0.0.0/9").subnets(new_prefix=24))


def free_subnets(count: int) -> list[IPv4Network]:
    """Different /24 networks that this machine has no route to, at random: other runs look for some too."""
    routed = routed_networks()
    free: list[IPv4Network] = []
    for subnet in random.sample(_SUBNETS, k=len(_SUBNETS)):
        if not any(subnet.overlaps(network) for network in routed):
            free.append(subnet)
        if len(free) == count:
            return free
    raise AssertionError(f"no {count} free /24 networks in 10.0.0.0/9")


def uuid(gpu: int) -> str:
    """A made-up GPU UUID."""
    return f"GPU-{gpu:08d}-bbbb-4bbb-8bbb-{gpu:012d}"


def small_stack(models: Path, *, subnet: IPv4Network, gpus: Sequence[int] = (0, 1)) -> Config:
    """One node of four GPUs; pool `main` with the sample model of `models` on some of them."""
    write_sample_models(models)
    rest_port, grpc_port, metrics_port = free_ports(3)
    return copy.deepcopy(
        {
            "environment": "local",
            "nodes": [
                {
                    "name": "here",
                    "address": "127.0.0.1",
                    "docker": {"endpoint": "default"},
                    "memory_mib": 4096,
                    "subnet": str(subnet),
                    "share_cpus": True,
                    "gpus": [{"index": gpu, "uuid": uuid(gpu), "cpus": "0"} for gpu in range(4)],
                }
            ],
            "images": {"server": "tf-serving-simulator:2.14.1-gpu", "envoy": "tf-serving-envoy:1.40.0"},
            "pools": [
                {
                    "name": "main",
                    "models": [{"name": "half_plus_two", "path": str(models / "half_plus_two")}],
                    "slots": [{"node": "here", "gpus": list(gpus)}],
                    "batching": {"max_batch_size": 32, "batch_timeout_micros": 2000},
                    "memory": {"container_mib": 128},
                    "load_timeout_s": 60,
                }
            ],
            "front_end": {
                "bind": "127.0.0.1",
                "rest_port": rest_port,
                "grpc_port": grpc_port,
                "metrics_port": metrics_port,
                "workers": 1,
                "memory_mib": 512,
            },
            # Servers know no SIGTERM: each stop takes all of it.
            "rollout": {"stop_timeout_s": 1, "health_interval_s": 1},
        }
    )


def pools_of_one_gpu(config: Config, names: Sequence[str]) -> Config:
    """The stack with pools of one GPU each, in the order of GPUs, in place of its one."""
    [pool] = config["pools"]
    config["pools"] = [
        {
            **copy.deepcopy(pool),
            "name": name,
            "slots": [{"node": "here", "gpus": [gpu]}],
            "models": [{**pool["models"][0], "name": name}],
            **{key: {} for key in ("gpu_memory", "threads", "server")},
        }
        for gpu, name in enumerate(names)
    ]
    return config
