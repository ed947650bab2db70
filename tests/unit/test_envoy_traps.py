"""Mistakes that Envoy takes without a word: none is in what we write, whatever the stack looks like."""

import re
from typing import Any

import pytest

from components.front_end_plan import FrontEndPlan
from tests.envoy.pools import STICKY, TWO_POOLS, SmallPool, front_end
from tests.envoy.reading import clusters, files, manager, pool_clusters, routes, values, virtual_host

LABELLED = {
    "name": "resnet",
    "path": "/srv/models/resnet",
    "versions": {"specific": [3, 4]},
    "labels": {"stable": 3, "canary": 4},
}
JWK = {
    "kty": "EC",
    "crv": "P-256",
    "x": "8sDAN2tqp_9DvJZjuncqGbxOxTORVB3S6dNXHnfGLOk",
    "y": "NOObckpLkHBZZaf_Kf-Y5mH102URmU35Eb4TehX0Ty8",
}


def pool(traffic: dict[str, Any], name: str = "main", **more: Any) -> SmallPool:
    models = {"models": [LABELLED], "traffic": traffic, **more}
    return SmallPool(name=name, instances=2, models=["resnet"], more=models)


HELPER = pool({}, "other")
SHAPES: dict[str, FrontEndPlan] = {
    "two pools": front_end(TWO_POOLS),
    "sticky": front_end(STICKY),
    "canary by label": front_end([pool({"canary": {"percent": 5, "label": "canary", "sticky": True}})]),
    "canary by chance": front_end([pool({"canary": {"percent": 5, "label": "canary"}}), TWO_POOLS[1]]),
    "canary pool": front_end([pool({"canary": {"percent": 5, "pool": "other", "sticky": True}}), HELPER]),
    "standby": front_end([pool({"standby": {"pool": "other"}}, balancing={"sticky": True}), HELPER]),
    "dedicated": front_end(
        [pool({"dedicated": [{"pool": "other", "header": {"name": "x-class", "value": "hot"}}]}), HELPER]
    ),
    "mirror": front_end([pool({"mirror": {"pool": "other"}}), HELPER]),
    "api keys": front_end(
        settings={
            "tls": {},
            "auth": {"api_keys": [{"client": "a", "key": "key_a"}]},
            "rate_limit": {"per_second": 5},
        }
    ),
    "tokens": front_end(
        settings={
            "auth": {"jwt": {"issuer": "i", "audiences": ["a"], "keys": [JWK]}},
            "rate_limit": {"per_second": 5, "total_per_second": 9},
            "tracing": {"collector": "10.0.0.5"},
        }
    ),
}
every_shape = pytest.mark.parametrize("plan", SHAPES.values(), ids=SHAPES)
RETRY_WORDS = {
    *("connect-failure", "refused-stream", "reset", "reset-before-request", "retriable-status-codes"),
    *("unavailable", "retriable-headers"),
}


@every_shape
def test_every_word_of_retry_on_is_one_that_envoy_knows(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc"):
        words = virtual_host(plan, name)["retry_policy"]["retry_on"].split(",")
        assert set(words) <= RETRY_WORDS


@every_shape
def test_a_cluster_has_one_way_of_balancing(plan: FrontEndPlan) -> None:
    for cluster in clusters(plan).values():
        assert not [
            key
            for key in cluster
            if key == "lb_policy" or (key.endswith("_lb_config") and key != "common_lb_config")
        ]
        [entry] = cluster.get("load_balancing_policy", {"policies": [None]})["policies"]
        if entry is None:
            continue
        kind = entry["typed_extension_config"]
        message = kind["typed_config"]["@type"].rpartition(".")[2].lower()
        assert kind["name"].rpartition(".")[2].replace("_", "") == message


@every_shape
def test_no_bounded_load_is_below_the_mean(plan: FrontEndPlan) -> None:
    assert all(value >= 100 for key, value in values(clusters(plan)) if key == "hash_balance_factor")


@every_shape
def test_priorities_have_no_gap(plan: FrontEndPlan) -> None:
    for cluster in pool_clusters(plan).values():
        found = [group["priority"] for group in cluster["load_assignment"]["endpoints"]]
        assert found == list(range(len(found)))


@every_shape
def test_a_substitution_names_only_groups_that_its_pattern_has(plan: FrontEndPlan) -> None:
    for key, rewrite in values(files(plan)):
        if key == "regex_rewrite":
            groups = re.compile(rewrite["pattern"]["regex"]).groups
            assert all(int(number) <= groups for number in re.findall(r"\\(\d)", rewrite["substitution"]))


@every_shape
def test_a_new_path_is_whole_by_the_routes_own_match(plan: FrontEndPlan) -> None:
    """What a formatter leaves empty, Envoy passes on with the old path; and CEL compiles at every request."""
    for name in ("rest", "grpc"):
        for route in routes(plan, name):
            assert "%CEL(" not in str(route)
            path = route.get("route", {}).get("path_rewrite")
            if path is None:
                continue
            [named] = re.findall(r"%REQ\(([a-z-]+)\)%", path)
            [digits] = [
                header["string_match"]["safe_regex"]["regex"]
                for header in route["match"]["headers"]
                if header["name"] == named
            ]
            assert re.fullmatch(digits, "7")
            assert not any(re.fullmatch(digits, text) for text in ("", "x", "7/", "../7", "7 "))


@every_shape
def test_a_hash_stands_on_every_route_to_a_sticky_cluster_and_on_no_other(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc"):
        for route in routes(plan, name):
            if "route" in route:
                sticky = route["route"]["cluster"].endswith("_sticky")
                assert sticky == ("hash_policy" in route["route"])
                present = {"name": "x-user-id", "present_match": True}
                assert sticky == (present in route["match"].get("headers", []))


@every_shape
def test_every_limit_of_rates_limits(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc"):
        for entry in manager(plan, name)["http_filters"]:
            if "local_ratelimit" in str(entry):
                config = entry["typed_config"]
                for switch in ("filter_enabled", "filter_enforced"):
                    assert config[switch]["default_value"]["numerator"] == 100


@every_shape
def test_nothing_that_envoy_calls_unfinished_guards_the_way_in(plan: FrontEndPlan) -> None:
    assert "api_key_auth" not in str(files(plan))


@every_shape
def test_a_virtual_host_has_routes_or_a_matcher_and_every_list_ends_in_a_refusal(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc"):
        host = virtual_host(plan, name)
        assert ("routes" in host) != ("matcher" in host)
        found = [host["routes"]] if "routes" in host else []
        if "matcher" in host:
            lists = [entry["on_match"] for entry in host["matcher"]["matcher_list"]["matchers"]]
            lists.append(host["matcher"]["on_no_match"])
            found = [entry["action"]["typed_config"]["routes"] for entry in lists]
        for listed in found:
            names = [route["name"] for route in listed]
            assert len(set(names)) == len(names)
            assert listed[-1]["match"] == {"prefix": "/"}
            assert "direct_response" in listed[-1]


@every_shape
def test_every_route_leads_to_a_cluster_that_is_there(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc"):
        for key, value in values(virtual_host(plan, name)):
            if key == "cluster":
                assert value in clusters(plan)


@every_shape
def test_a_filter_that_a_route_switches_on_is_in_the_chain(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc"):
        filters = {entry["name"] for entry in manager(plan, name)["http_filters"]}
        for route in routes(plan, name):
            assert set(route.get("typed_per_filter_config", {})) <= filters
