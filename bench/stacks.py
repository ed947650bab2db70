"""Stack files to measure with."""

import copy
from typing import Any

import yaml

from components.stack_file import own_values
from tests.pulumi_project import CHECKOUT

Config = dict[str, Any]


def prod() -> Config:
    """The committed prod stack: one node with four GPUs."""
    document = yaml.safe_load((CHECKOUT / "Pulumi.prod.yaml").read_text())
    return own_values(document["config"])


def on_cluster() -> Config:
    """The committed Kubernetes stack: manifests in a folder."""
    document = yaml.safe_load((CHECKOUT / "Pulumi.staging.yaml").read_text())
    return own_values(document["config"])


def fleet(nodes: int) -> Config:
    """As many nodes like prod's."""
    config = prod()
    [first] = config["nodes"]
    [pool] = config["pools"]
    config["nodes"] = [_node(first, number) for number in range(nodes)]
    pool["slots"] = [{"node": node["name"], "gpus": [0, 1, 2, 3]} for node in config["nodes"]]
    return config


def _node(first: Config, number: int) -> Config:
    node = copy.deepcopy(first)
    host = f"gpu-{number:04d}.example.com"
    node |= {"name": f"gpu-{number:04d}", "address": host}
    node["docker"]["endpoint"] = f"ssh://deploy@{host}"
    for gpu in node["gpus"]:
        gpu["uuid"] = f"GPU-{number:08d}-aaaa-4aaa-8aaa-{gpu['index']:012d}"
    return node
