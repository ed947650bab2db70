"""Good stack files as plain values, which a test then breaks in one way.

A place in one is written as settings write it in their messages: `pools[0].slots[1].gpus`.
"""

import copy
import re
from typing import Any

from components.errors import Problem, SettingsError
from components.flags import server_arguments
from components.plan import Plan, make_plan
from components.settings import Settings
from components.stack_file import load_settings

Config = dict[str, Any]
SOURCE = "Pulumi.test.yaml"
PROJECT_FOLDER = "/home/user/tf-serving"
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def uuid(gpu: int, node: int = 1) -> str:
    """A made-up GPU UUID."""
    return f"GPU-{node:08d}-aaaa-4aaa-8aaa-{gpu:012d}"


def one_node() -> Config:
    """One host with four GPUs, over ssh; one pool with one batched model."""
    return {
        "owner": "ml-platform",
        "nodes": [
            {
                "name": "gpu-01",
                "address": "gpu-01.example.com",
                "bind": "10.20.0.11",
                "docker": {"endpoint": "ssh://deploy@gpu-01.example.com"},
                "driver": "535.129.03",
                "memory_mib": 515000,
                "subnet": "172.29.80.0/24",
                "gpus": [
                    {"index": 0, "uuid": uuid(0), "numa_node": 0, "cpus": "0-15,64-79"},
                    {"index": 1, "uuid": uuid(1), "numa_node": 0, "cpus": "16-31,80-95"},
                    {"index": 2, "uuid": uuid(2), "numa_node": 1, "cpus": "32-47,96-111"},
                    {"index": 3, "uuid": uuid(3), "numa_node": 1, "cpus": "48-63,112-127"},
                ],
            }
        ],
        "images": {"server": "tensorflow/serving:2.14.1-gpu", "envoy": "envoyproxy/envoy:v1.40.0"},
        "pools": [
            {
                "name": "main",
                "models": [{"name": "resnet50", "path": "/srv/models/resnet50"}],
                "slots": [{"node": "gpu-01", "gpus": [0, 1, 2, 3]}],
                "batching": {
                    "max_batch_size": 32,
                    "batch_timeout_micros": 2000,
                    "allowed_batch_sizes": [1, 8, 32],
                },
                "memory": {"container_mib": 98304},
            }
        ],
    }


def two_nodes() -> Config:
    """Two hosts of three GPUs: `main` on both, its slots not in the order of the nodes; `text` on one."""
    config = one_node()
    first = config["nodes"][0]
    first["gpus"] = first["gpus"][:3]
    second = copy.deepcopy(first)
    second |= {"name": "gpu-02", "address": "10.0.0.2", "bind": "10.20.0.12"}
    second["docker"] = {"endpoint": "unix:///run/docker.sock"}
    for gpu in second["gpus"]:
        gpu["uuid"] = uuid(gpu["index"], node=2)
    config["nodes"] = [first, second]
    main = config["pools"][0]
    main["slots"] = [{"node": "gpu-02", "gpus": [1, 0]}, {"node": "gpu-01", "gpus": [2, 0]}]
    text = {
        "name": "text",
        "models": [
            {
                "name": "bert",
                "path": "/srv/models/bert",
                "versions": {"specific": [3, 4]},
                "labels": {"stable": 3, "canary": 4},
            },
            {"name": "tagger", "path": "/srv/models/tagger", "versions": {"all": True}},
        ],
        "slots": [{"node": "gpu-02", "gpus": [2]}],
        "single": True,
        "unbatched": True,
        "memory": {"container_mib": 4096, "shm_mib": 256},
        "gpu_memory": {"allow_growth": False, "fraction": 0.9},
        "threads": {"grpc_max": 8, "rest": 4, "intra_op": 2, "inter_op": 1},
        "load_timeout_s": 90,
    }
    config["pools"] = [main, text]
    config["rollout"] = {"stop_timeout_s": 20, "health_interval_s": 3}
    return config


def with_mig() -> Config:
    """GPU 0 cut into two halves, a slot each for `small`; `main` has the other three whole."""
    config = one_node()
    first = config["nodes"][0]["gpus"][0]
    del first["cpus"]
    first |= {
        "model": "a100-80g",
        "mig": [
            {"uuid": mig_uuid(0), "profile": "3g.40gb", "cpus": "0-7"},
            {"uuid": mig_uuid(1), "profile": "3g.40gb", "cpus": "8-15"},
        ],
    }
    main = config["pools"][0]
    main["slots"] = [{"node": "gpu-01", "gpus": [1, 2, 3]}]
    small = {
        "name": "small",
        "models": [{"name": "tagger", "path": "/srv/models/tagger"}],
        "slots": [{"node": "gpu-01", "gpus": ["0:0", "0:1"]}],
        "single": True,
        "unbatched": True,
        "memory": {"container_mib": 8192},
    }
    config["pools"].append(small)
    return config


def mig_uuid(part: int) -> str:
    """A made-up MIG UUID."""
    return f"MIG-00000001-bbbb-4bbb-8bbb-{part:012d}"


def sharing() -> Config:
    """`main` and `text` on the same two GPUs, each with less than half of them."""
    config = in_staging(one_node())
    main = config["pools"][0] | {
        "sharing": True,
        "gpu_memory": {"fraction": 0.45},
        "slots": [{"node": "gpu-01", "gpus": [0, 1]}],
    }
    text = copy.deepcopy(main) | {"name": "text", "models": [{"name": "bert", "path": "/srv/models/bert"}]}
    return config | {"pools": [main, text]}


def with_all_gpus() -> Config:
    """One instance that has all four GPUs."""
    return changed(in_staging(one_node()), "pools[0].all_gpus", True)


def with_hardware() -> Config:
    """The same machine as `one_node`, by the name of its hardware."""
    config = without(one_node(), "nodes[0].gpus")
    config["nodes"][0] |= {"hardware": "a100-80g-x4", "gpu_uuids": [uuid(gpu) for gpu in range(4)]}
    return config


def optimized(kind: str, image: str = "tensorflow/serving:2.17.1-gpu") -> Config:
    """One model with a faster form beside the original."""
    form = {"kind": kind, "path": f"/srv/models/resnet50_{kind}"}
    return changed(changed(one_node(), "images.server", image), "pools[0].models[0].optimized", form)


def in_staging(config: Config) -> Config:
    """The same stack where what prod asks for on top is not asked for."""
    return config | {"environment": "staging"}


def changed(config: Config, path: str, value: object) -> Config:
    """A copy in which `path` holds `value`; a last index one past the end appends."""
    copied, parent, last = _opened(config, path)
    if isinstance(parent, list) and last == len(parent):
        parent.append(value)
    else:
        parent[last] = value
    return copied


def without(config: Config, path: str) -> Config:
    """A copy that lacks `path`."""
    copied, parent, last = _opened(config, path)
    del parent[last]
    return copied


def value_at(config: Config, path: str) -> Any:
    """What stands at `path`."""
    _, parent, last = _opened(config, path)
    return parent[last]


def _opened(config: Config, path: str) -> tuple[Config, Any, Any]:
    steps: list[str | int] = [name or int(index) for name, index in _STEP.findall(path)]
    copied = copy.deepcopy(config)
    parent: Any = copied
    for step in steps[:-1]:
        parent = parent[step]
    return copied, parent, steps[-1]


def settings(config: Config) -> Settings:
    """The settings of a good stack."""
    return load_settings(config, SOURCE)


def plan(config: Config, *, stack: str = "test") -> Plan:
    """The plan of a good stack."""
    return make_plan(settings(config), stack=stack, project_folder=PROJECT_FOLDER)


def arguments(config: Config, instance: int = 0) -> dict[str, str]:
    """What an instance's server is told, by flag."""
    pairs = [argument.split("=", 1) for argument in server_arguments(plan(config).instances[instance])]
    assert all(argument.startswith("--") for argument, _ in pairs)
    assert len(dict(pairs)) == len(pairs), "a flag is given twice: the last one would win"
    return {argument.removeprefix("--"): value for argument, value in pairs}


def problems(config: Config) -> tuple[Problem, ...]:
    """What is wrong with a stack; nothing, when it is accepted. Any other exception is the test's failure."""
    try:
        settings(config)
    except SettingsError as error:
        return error.problems
    return ()


def refusal(config: Config) -> list[str]:
    """What is said about a stack that must be refused: a line for each problem."""
    lines = [str(problem) for problem in problems(config)]
    assert lines, "the stack was accepted"
    return lines
