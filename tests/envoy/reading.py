"""Finds things in Envoy's configuration, read from its text as Envoy reads it."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from components.bootstrap import bootstrap_yaml
from components.plan import FrontEndPlan
from tests.envoy.pools import STICKY, TWO_POOLS, SmallPool, front_end

MANY = (SmallPool(instances=2, models=[f"model-{i}" for i in range(40)]),)
SHAPES = {
    "one pool": front_end(),
    "two pools": front_end(TWO_POOLS),
    "many models": front_end(MANY),
    "sticky": front_end(STICKY),
}


@cache
def written(plan: FrontEndPlan) -> Any:
    """The whole configuration."""
    return yaml.safe_load(bootstrap_yaml(plan))


def listener(plan: FrontEndPlan, name: str) -> Any:
    [found] = [entry for entry in written(plan)["static_resources"]["listeners"] if entry["name"] == name]
    return found


def manager(plan: FrontEndPlan, name: str) -> Any:
    return listener(plan, name)["filter_chains"][0]["filters"][0]["typed_config"]


def routes(plan: FrontEndPlan, name: str) -> list[Any]:
    [host] = manager(plan, name)["route_config"]["virtual_hosts"]
    return list(host["routes"])


def clusters(plan: FrontEndPlan) -> dict[str, Any]:
    return {cluster["name"]: cluster for cluster in written(plan)["static_resources"]["clusters"]}


def pool_clusters(plan: FrontEndPlan) -> dict[str, Any]:
    return {name: c for name, c in clusters(plan).items() if name.startswith(("rest-", "grpc-"))}


def protocol(cluster: Any) -> Any:
    [options] = cluster["typed_extension_protocol_options"].values()
    return options["explicit_http_config"]


def values(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value, however deep."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, item
            yield from values(item)
    elif isinstance(value, list):
        for item in value:
            yield from values(item)
