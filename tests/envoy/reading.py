"""Finds things in Envoy's configuration, read from its text as Envoy reads it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from components.envoy_files import bootstrap_file, envoy_files
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
def bootstrap(plan: FrontEndPlan) -> Any:
    """What Envoy reads as it starts."""
    return yaml.safe_load(bootstrap_file(plan)[1])


@cache
def files(plan: FrontEndPlan) -> dict[str, Any]:
    """What it reads again."""
    return {name: yaml.safe_load(text) for name, text in envoy_files(plan).items()}


def listener(plan: FrontEndPlan, name: str) -> Any:
    [found] = [entry for entry in files(plan)["lds.yaml"]["resources"] if entry["name"] == name]
    return found


def manager(plan: FrontEndPlan, name: str) -> Any:
    return listener(plan, name)["filter_chains"][0]["filters"][0]["typed_config"]


def routes(plan: FrontEndPlan, name: str) -> list[Any]:
    """Every route, those of users who were chosen for a canary among them."""
    host = virtual_host(plan, name)
    if "routes" in host:
        return list(host["routes"])
    lists = [matcher["on_match"] for matcher in host["matcher"]["matcher_list"]["matchers"]]
    return [
        route
        for found in [*lists, host["matcher"]["on_no_match"]]
        for route in found["action"]["typed_config"]["routes"]
    ]


def virtual_host(plan: FrontEndPlan, name: str) -> Any:
    [routing] = files(plan)[f"rds-{name}.yaml"]["resources"]
    [host] = routing["virtual_hosts"]
    return host


def clusters(plan: FrontEndPlan) -> dict[str, Any]:
    """Every cluster, with its endpoints as if they stood there."""
    found = {cluster["name"]: dict(cluster) for cluster in files(plan)["cds.yaml"]["resources"]}
    for name, file in files(plan).items():
        if name.startswith("eds-"):
            [endpoints] = file["resources"]
            found[endpoints["cluster_name"]]["load_assignment"] = endpoints
    return found


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


def route_for(listed: Sequence[Any], path: str, headers: Mapping[str, str]) -> Any:
    """The first route that takes a request, by chance aside: it takes each share of the requests."""
    for route in listed:
        match = route["match"]
        if _leads(match, path) and all(_has(headers, wanted) for wanted in match.get("headers", [])):
            return route
    raise AssertionError(f"no route for {path}")


def _leads(match: Mapping[str, Any], path: str) -> bool:
    if "path" in match:
        return bool(path == match["path"])
    regex = re.escape(match["prefix"]) + ".*" if "prefix" in match else match["safe_regex"]["regex"]
    return re.fullmatch(regex, path) is not None


def _has(headers: Mapping[str, str], wanted: Mapping[str, Any]) -> bool:
    value = headers.get(wanted["name"])
    if "present_match" in wanted:
        return bool((value is not None) == wanted["present_match"])
    text: dict[str, Any] = wanted["string_match"]
    if value is None:
        return False
    if "exact" in text:
        return bool(value == text["exact"])
    if "prefix" in text:
        return value.startswith(str(text["prefix"]))
    return re.fullmatch(text["safe_regex"]["regex"], value) is not None
