"""Envoy's configuration as data: its text, its clusters, its limits and the way in."""

import re

import pytest

from components.bootstrap import bootstrap_yaml, envoy_bootstrap
from components.envoy_files import envoy_files
from components.plan import FrontEndPlan
from tests import stacks
from tests.envoy.pools import TWO_POOLS, SmallPool, front_end
from tests.envoy.reading import (
    SHAPES,
    bootstrap,
    clusters,
    files,
    listener,
    manager,
    pool_clusters,
    protocol,
    routes,
    values,
    virtual_host,
)

LONG_NAME = "a." * 31 + "b"

every_shape = pytest.mark.parametrize("plan", SHAPES.values(), ids=SHAPES)


# The text


def all_lines(plan: FrontEndPlan) -> list[str]:
    return "".join([bootstrap_yaml(plan), *envoy_files(plan).values()]).splitlines()


@every_shape
def test_the_text_means_exactly_the_data(plan: FrontEndPlan) -> None:
    assert bootstrap(plan) == envoy_bootstrap(plan)


def test_names_that_yaml_takes_for_booleans_or_numbers_stay_names() -> None:
    plan = front_end([SmallPool(name="n", instances=1, models=["on", "1.5"]), TWO_POOLS[1]])
    checks = clusters(plan)["rest-n"]["health_checks"]
    assert [check["name"] for check in checks] == ["on", "1.5"]
    for line in all_lines(plan):
        _, _, value = line.lstrip(" -").partition(": ")
        assert not value or value[0] in '"[{' or re.fullmatch(r"[0-9.]+|true|false", value), line


def test_a_long_regular_expression_stays_on_one_line() -> None:
    [line] = [
        line
        for line in all_lines(front_end([SmallPool(instances=1, models=[LONG_NAME])]))
        if "predict|classify" in line and "a\\\\." in line and ")?:" in line
    ]
    assert len(line) > 160


# Clusters


@every_shape
def test_a_grpc_cluster_speaks_http2_and_a_rest_cluster_does_not(plan: FrontEndPlan) -> None:
    for name, cluster in pool_clusters(plan).items():
        wanted = "http2_protocol_options" if name.startswith("grpc-") else "http_protocol_options"
        assert list(protocol(cluster)) == [wanted]


@every_shape
def test_every_cluster_sets_its_panic_threshold(plan: FrontEndPlan) -> None:
    for cluster in clusters(plan).values():
        assert cluster["common_lb_config"]["healthy_panic_threshold"] == {"value": 1}


@every_shape
def test_every_cluster_has_literal_addresses(plan: FrontEndPlan) -> None:
    for name, cluster in clusters(plan).items():
        assert cluster["type"] in ("STATIC", "EDS")
        for key, value in values(cluster["load_assignment"]):
            if key == "address" and isinstance(value, str):
                assert re.fullmatch(r"[0-9.]+", value), name


@every_shape
def test_an_endpoint_that_goes_away_is_let_go(plan: FrontEndPlan) -> None:
    assert all(cluster["ignore_health_on_host_removal"] for cluster in pool_clusters(plan).values())


@every_shape
def test_each_pool_has_its_own_instances_by_name_on_both_protocols(plan: FrontEndPlan) -> None:
    found = pool_clusters(plan)
    for pool in plan.pools:
        for prefix, port in (("rest", 8501), ("grpc", 8500)):
            found.pop(f"{prefix}-{pool.name}_sticky", None)
            [locality] = found.pop(f"{prefix}-{pool.name}")["load_assignment"]["endpoints"]
            endpoints = [entry["endpoint"] for entry in locality["lb_endpoints"]]
            assert [endpoint["hostname"] for endpoint in endpoints] == [e.name for e in pool.endpoints]
            assert [endpoint["address"]["socket_address"] for endpoint in endpoints] == [
                {"address": str(endpoint.address), "port_value": port} for endpoint in pool.endpoints
            ]
    assert not found


@every_shape
def test_an_instance_is_healthy_when_rest_says_that_every_model_is_available(plan: FrontEndPlan) -> None:
    for pool in plan.pools:
        for cluster in (f"rest-{pool.name}", f"grpc-{pool.name}"):
            checks = clusters(plan)[cluster]["health_checks"]
            assert [check["name"] for check in checks] == list(pool.model_names[:8])  # more are refused
            for check, model in zip(checks, pool.model_names[:8], strict=True):
                http = check["http_health_check"]
                assert http["path"] == f"/v1/models/{model}"
                assert bytes.fromhex(http["receive"][0]["text"]) == b'"state": "AVAILABLE"'
        for endpoint in clusters(plan)[f"grpc-{pool.name}"]["load_assignment"]["endpoints"][0][
            "lb_endpoints"
        ]:
            assert endpoint["endpoint"]["health_check_config"] == {"port_value": 8501}


def test_max_concurrent_is_the_limit_of_every_pool() -> None:
    plan = front_end(TWO_POOLS, settings={"max_concurrent": 5000})
    for cluster in pool_clusters(plan).values():
        [thresholds] = cluster["circuit_breakers"]["thresholds"]
        assert {thresholds[key] for key in ("max_connections", "max_pending_requests", "max_requests")} == {
            5000
        }


@pytest.mark.parametrize(("instances", "percent"), [(1, 20), (2, 100), (3, 75), (4, 50), (8, 21.4), (16, 20)])
def test_the_retry_budget_covers_what_one_instance_had_in_flight(instances: int, percent: float) -> None:
    plan = front_end([SmallPool(instances=instances, models=["resnet"])])
    for cluster in pool_clusters(plan).values():
        [thresholds] = cluster["circuit_breakers"]["thresholds"]
        assert thresholds["retry_budget"]["budget_percent"] == {"value": percent}


@every_shape
def test_every_instance_may_be_ejected_and_of_answers_a_500_ejects_or_over_grpc_refusals_alone(
    plan: FrontEndPlan,
) -> None:
    for name, cluster in pool_clusters(plan).items():
        outliers = cluster["outlier_detection"]
        assert outliers["max_ejection_percent"] == 100
        assert outliers["split_external_local_origin_errors"]
        enforced = {key for key in outliers if key.startswith("enforcing_")}
        assert enforced
        rest = name.startswith("rest-")
        wanted = {"enforcing_consecutive_5xx" if rest else "enforcing_failure_percentage"}
        assert {key for key in enforced if outliers[key] != 0} == wanted
        assert rest or outliers["failure_percentage_threshold"] == 100
        [options] = cluster["typed_extension_protocol_options"].values()
        [matched] = options["outlier_detection"]["error_matcher"].values()
        assert matched == {"headers": [{"name": ":status", "string_match": {"exact": "500"}}]}


@every_shape
def test_a_change_of_health_reaches_the_workers_at_once(plan: FrontEndPlan) -> None:
    for cluster in pool_clusters(plan).values():
        assert cluster["common_lb_config"]["update_merge_window"] == "0s"


def test_pings_stay_rare_enough_for_a_server_that_counts_them() -> None:
    for timeout, interval in ((30, "30s"), (3600, "1440s")):
        plan = front_end(settings={"request_timeout_s": timeout})
        http2 = protocol(clusters(plan)["grpc-main"])["http2_protocol_options"]
        assert http2["connection_keepalive"]["interval"] == interval


# Limits and the way in


def test_max_request_mib_is_both_the_limit_and_what_can_be_sent_again() -> None:
    plan = front_end(settings={"max_request_mib": 64})
    for name in ("rest", "grpc"):
        host = virtual_host(plan, name)
        assert host["request_body_buffer_limit"] == 64 * 1024 * 1024
        limits = [value for key, value in values(manager(plan, name)) if key == "max_request_bytes"]
        assert limits == [64 * 1024 * 1024]


@every_shape
def test_the_router_is_the_last_filter_and_there_is_one(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc", "metrics"):
        filters = [entry["name"] for entry in manager(plan, name)["http_filters"]]
        assert [i for i, n in enumerate(filters) if n.endswith(".router")] == [len(filters) - 1]


@every_shape
def test_internal_addresses_are_left_to_envoy(plan: FrontEndPlan) -> None:
    # An empty list would let loopback peers set x-envoy-… headers.
    assert "internal_address_config" not in dict(values([bootstrap(plan), files(plan)]))


def test_listeners_stay_at_their_ports_whatever_is_published() -> None:
    ports = {"rest_port": 18080, "grpc_port": 18500, "metrics_port": 19902}
    plan = front_end(settings=ports)
    for name, port in {"rest": 8080, "grpc": 8500, "metrics": 9902}.items():
        address = listener(plan, name)["address"]["socket_address"]
        assert address == {"address": "0.0.0.0", "port_value": port}  # noqa: S104


@every_shape
def test_admin_is_on_loopback_and_changes_nothing(plan: FrontEndPlan) -> None:
    admin = bootstrap(plan)["admin"]
    assert admin["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 9901}
    allowed = [next(iter(path.values())) for path in admin["allow_paths"]]
    for path in ("/config_dump", "/quitquitquit", "/drain_listeners", "/logging", "/runtime_modify"):
        assert not any(path.startswith(prefix) for prefix in allowed)


@every_shape
def test_only_the_metrics_listener_leads_to_admin_and_only_to_its_prometheus_page(plan: FrontEndPlan) -> None:
    found = [
        (name, route["route"]["prefix_rewrite"])
        for name in ("rest", "grpc", "metrics")
        for route in routes(plan, name)
        if route.get("route", {}).get("cluster") == "admin"
    ]
    assert found == [("metrics", "/stats/prometheus?usedonly")]


@every_shape
def test_the_metrics_listener_has_envoys_page_and_one_for_each_instance(plan: FrontEndPlan) -> None:
    names = [endpoint.name for pool in plan.pools for endpoint in pool.endpoints]
    paths = [route["match"]["path"] for route in routes(plan, "metrics") if "route" in route]
    assert paths == ["/metrics", *(f"/instances/{name}/metrics" for name in names)]


@every_shape
def test_healthz_looks_at_every_pool(plan: FrontEndPlan) -> None:
    for protocol_name in ("rest", "grpc"):
        [percentages] = [
            value
            for key, value in values(manager(plan, protocol_name)["http_filters"])
            if key == "cluster_min_healthy_percentages"
        ]
        assert percentages == {f"{protocol_name}-{pool.name}": {"value": 25} for pool in plan.pools}


def test_load_is_shed_below_the_memory_limit() -> None:
    plan = front_end(settings={"memory_mib": 2000})
    [limit] = [v for k, v in values(bootstrap(plan)["overload_manager"]) if k == "max_heap_size_bytes"]
    assert limit == 1800 * 1024 * 1024


def test_a_node_has_only_the_pools_that_have_instances_on_it() -> None:
    first, second = stacks.plan(stacks.two_nodes()).nodes
    assert list(pool_clusters(first.front_end)) == ["rest-main", "grpc-main"]
    assert list(pool_clusters(second.front_end)) == ["rest-main", "grpc-main", "rest-text", "grpc-text"]
