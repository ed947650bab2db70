"""Edits of the stack file: what operators change."""

import copy

from tests.integration.drill import Config


def batching(config: Config, timeout: int) -> None:
    """The pool's batch timeout in microseconds: its servers are rolled."""
    config["pools"][0]["batching"]["batch_timeout_micros"] = timeout


def server_image(config: Config, image: str) -> None:
    """The servers' image."""
    config["images"]["server"] = image


def envoy_image(config: Config, image: str) -> None:
    """Envoy's image."""
    config["images"]["envoy"] = image


def version(config: Config, number: int) -> None:
    """The only version of the first pool's model, and what its label `stable` names."""
    config["pools"][0]["models"][0] |= {"versions": {"specific": [number]}, "labels": {"stable": number}}


def versions_header(config: Config, name: str) -> None:
    """Which header names a version: routes alone change."""
    config["front_end"]["versions"] = {"header": name}


def second_pool(config: Config, name: str, gpu: int) -> Config:
    """A pool like the first one, of one instance."""
    [node] = config["nodes"]
    pool: Config = copy.deepcopy(config["pools"][0])
    pool |= {"name": name, "slots": [{"node": node["name"], "gpus": [gpu]}]}
    config["pools"].append(pool)
    return pool


def canary(config: Config, percent: float) -> None:
    """A pool with version 2 gets a share of the first pool's requests."""
    if len(config["pools"]) == 1:
        second_pool(config, "newer", 4)["models"][0] |= {"versions": {"specific": [2]}, "labels": {}}
    config["pools"][0]["traffic"] = {"canary": {"pool": "newer", "percent": percent}}


def standby(config: Config, name: str) -> None:
    """A pool that stands by for the first."""
    second_pool(config, name, 4)
    config["pools"][0]["traffic"] = {"standby": {"pool": name}}


def dedicated(config: Config, header: str | None) -> None:
    """A pool for requests with `<header>: hot`; None: no more."""
    if header is None:
        del config["pools"][1:]
        del config["pools"][0]["traffic"]
        return
    second_pool(config, "hot", 4)
    rule = {"pool": "hot", "header": {"name": header, "value": "hot"}}
    config["pools"][0]["traffic"] = {"dedicated": [rule]}


def slow_instances(config: Config, image: str) -> None:
    """Servers of an image that takes its time, with short queues."""
    server_image(config, image)
    config["pools"][0]["batching"] = {
        "max_batch_size": 4,
        "allowed_batch_sizes": [1, 2, 4],
        "batch_timeout_micros": 1000,
        "max_enqueued_batches": 2,
    }
