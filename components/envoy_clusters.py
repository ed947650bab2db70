"""Envoy's clusters: for each pool one over REST and one over gRPC, and those behind the metrics listener.

Values that look odd were measured against a real Envoy 1.40; each says what went wrong without it.
"""

from collections.abc import Iterator, Mapping

from components.envoy_balancing import policy, sticky_policy
from components.envoy_config import (
    ADMIN_CLUSTER,
    CONNECTION_BUFFER_BYTES,
    Config,
    grpc_cluster,
    load_assignment,
    metrics_cluster,
    rest_cluster,
    seconds,
    socket_address,
    sticky_cluster,
    try_timeout_s,
    typed,
)
from components.envoy_edge import tracing_clusters
from components.envoy_route_parts import header
from components.plan import Endpoint, FrontEndPlan, PoolPlan
from components.server_spec import GRPC_PORT, REST_PORT
from components.settings import ADMIN_PORT

ADMIN_ADDRESS = "127.0.0.1"

# More checks of one cluster are refused. A server opens no port before each of its models loaded or failed,
# so with more models it is only a later failure of a ninth that goes unseen here.
_MOST_CHECKS = 8
_AVAILABLE = '"state": "AVAILABLE"'
# The server's list holds every version, also those that ended; Envoy reads 1 KiB of it by default.
_STATUS_BYTES = 65536
# The server's HTTP library drops a connection that was silent for 50 s. A request that meets the closing
# connection fails: 93 of 2400 did, none with an idle time below the server's.
_IDLE_S = 30
# A gRPC server cuts a connection, "Too many pings", when more than a few come while a call is silent and less
# than five minutes apart (seen on a call of 12 s with one a second). So at most two within a try.
_PING_S = 30
# In the moment before a dead instance is ejected nearly every request meets it first: with 16, 298 of 4,400
# failed in a pool of two that was rolled.
_MIN_RETRIES = 128
_LEAST_RETRY_PERCENT = 20.0
# Over REST 500 counts and nothing else: what a GPU that went wrong answers.
_OVER_REST: Config = {"consecutive_5xx": 5, "enforcing_consecutive_5xx": 100}
# Over gRPC Envoy 1.40 asks no matcher, and UNAVAILABLE, a full queue, counts as INTERNAL does. But a full
# queue lets some through, where batches take less than a second, and a GPU that went wrong lets none: who
# refuses each of many within a second is ejected. Where there are fewer, to try them elsewhere is enough.
_OVER_GRPC: Config = {
    "enforcing_consecutive_5xx": 0,
    "failure_percentage_threshold": 100,
    "enforcing_failure_percentage": 100,
    "failure_percentage_request_volume": 50,
    "failure_percentage_minimum_hosts": 1,
}
_INTERNAL_ERROR = {"http_response_headers_match": {"headers": [header(":status", "500")]}}


def clusters(front_end: FrontEndPlan) -> list[Config]:
    """Every cluster of a node's Envoy but that of its own admin page."""
    return [
        *(
            cluster
            for pool in front_end.asked
            for each in (pool, *pool.parts)
            for cluster in _pool_clusters(front_end, each)
        ),
        *(
            _single(metrics_cluster(endpoint.name), socket_address(str(endpoint.address), REST_PORT))
            for pool in front_end.pools
            for endpoint in pool.endpoints
        ),
        *tracing_clusters(front_end.spec),
    ]


def admin_cluster() -> Config:
    """The cluster of Envoy's own admin page."""
    return _single(ADMIN_CLUSTER, socket_address(ADMIN_ADDRESS, ADMIN_PORT))


def _pool_clusters(front_end: FrontEndPlan, pool: PoolPlan) -> Iterator[Config]:
    pools = [pool, *([fallback] if (fallback := front_end.fallback(pool)) else [])]
    rest = [[_endpoint(endpoint, REST_PORT, {}) for endpoint in each.endpoints] for each in pools]
    yield from _balanced(front_end, pool, rest_cluster(pool), rest, {"http_protocol_options": {}})
    # Only REST shows a model's state: the server's gRPC health service says SERVING from start to end.
    check = {"health_check_config": {"port_value": REST_PORT}}
    grpc = [[_endpoint(endpoint, GRPC_PORT, check) for endpoint in each.endpoints] for each in pools]
    http2: Config = {
        "max_concurrent_streams": 1024,
        "connection_keepalive": {
            "interval": seconds(max(_PING_S, try_timeout_s(front_end))),
            "timeout": "5s",
        },
    }
    yield from _balanced(front_end, pool, grpc_cluster(pool), grpc, {"http2_protocol_options": http2})


def _balanced(
    front_end: FrontEndPlan, pool: PoolPlan, name: str, priorities: list[list[Config]], protocol: Config
) -> Iterator[Config]:
    """The pool's own cluster, and where users stick a second one over the same endpoints.

    One Maglev cluster for both gave requests without a user two thirds of the throughput, beside a slow GPU.
    """
    balancing = pool.balancing
    shared: Config = {"policy": {"overprovisioning_factor": _factor(pool)}} if len(priorities) > 1 else {}
    yield _pool_cluster(
        front_end, pool, {**load_assignment(name, *priorities), **shared}, protocol, policy(balancing)
    )
    if balancing.sticky:
        # Envoy's own factor: with another, 43 % of the users moved when one of four instances was down, and
        # 24 % with this one.
        sticky = load_assignment(sticky_cluster(name), *priorities)
        yield _pool_cluster(front_end, pool, sticky, protocol, sticky_policy(balancing))


def _factor(pool: PoolPlan) -> int:
    """The healthy share of the first priority, in percent, times this is what it takes; the rest goes on."""
    standby = pool.traffic.standby
    return round(10_000 / (standby.from_healthy_percent if standby else 100))


def _endpoint(endpoint: Endpoint, port: int, more: Mapping[str, object]) -> Config:
    return {"address": socket_address(str(endpoint.address), port), "hostname": endpoint.name, **more}


def _pool_cluster(
    front_end: FrontEndPlan,
    pool: PoolPlan,
    assignment: Config,
    protocol: Config,
    balancing_policy: Config,
) -> Config:
    return {
        "name": assignment["cluster_name"],
        "type": "STATIC",
        "connect_timeout": "0.5s",
        # Without it a removed endpoint is used for as long as its check passes, and Envoy 1.40.0 crashes when
        # an endpoint that keeps its address changes its name.
        "ignore_health_on_host_removal": True,
        "per_connection_buffer_limit_bytes": CONNECTION_BUFFER_BYTES,
        "load_balancing_policy": balancing_policy,
        "common_lb_config": _lb_config(),
        "load_assignment": assignment,
        "health_checks": [_health_check(*asked) for asked in _asked_for(pool)[:_MOST_CHECKS]],
        "outlier_detection": _outlier_detection(on_500="http_protocol_options" in protocol),
        "circuit_breakers": _circuit_breakers(front_end.spec.max_concurrent, len(pool.endpoints)),
        "typed_extension_protocol_options": _protocol_options(
            protocol, {"outlier_detection": {"error_matcher": _INTERNAL_ERROR}}
        ),
    }


def _panic_only_when_all_are_down() -> Config:
    # Default 50: with three of four down, requests go to the dead ones too. 0: with all down, 503 at once.
    return {"healthy_panic_threshold": {"value": 1}}


def _lb_config() -> Config:
    # By default a second change within a second reaches the workers only at its end: with one of two
    # instances just back and the other down, all went to the one that was down (300 failed of 2,600).
    return {**_panic_only_when_all_are_down(), "update_merge_window": "0s"}


def _asked_for(pool: PoolPlan) -> list[tuple[str, str]]:
    """Models, and the path of what is asked about each: of a part of a pool, first the version that it has.

    An instance that is moved away, or is not there yet, is then out by itself, whatever the endpoints say.
    """
    only = {} if pool.only is None else dict.fromkeys(pool.only.models, f"/versions/{pool.only.version}")
    return [
        (model, only.get(model, "")) for model in sorted(pool.model_names, key=lambda name: name not in only)
    ]


def _health_check(model: str, version: str) -> Config:
    # Several checks of a cluster must all pass, and each needs a name: an instance takes requests once all
    # its models are loaded. One loaded version is enough, so that a broken new one takes no instance out.
    return {
        "name": model,
        # The status page waits for one of the server's threads, behind the predictions. That it is slow must
        # not take an instance out; one that is gone or hangs is ejected long before.
        "timeout": "5s",
        "unhealthy_threshold": 3,
        # A rolled instance must be seen before the next one of its pool goes down.
        "interval": "1s",
        "no_traffic_interval": "1s",  # default 60 s
        "interval_jitter_percent": 10,
        "healthy_threshold": 1,
        "http_health_check": {
            "path": f"/v1/models/{model}{version}",
            "codec_client_type": "HTTP1",
            "response_buffer_size": _STATUS_BYTES,
            # The status page is 200 in every state, and AVAILABLE alone is also found in "UNAVAILABLE".
            "receive": [{"text": _AVAILABLE.encode().hex()}],
        },
    }


def _outlier_detection(*, on_500: bool) -> Config:
    return {
        # Connection failures, resets and timeouts eject. A 503 is a full batching queue: ejecting on it moves
        # the load onto the other GPUs (2927/7/2922/474 requests instead of a quarter each).
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 2,
        **(_OVER_REST if on_500 else _OVER_GRPC),
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_success_rate": 0,
        "enforcing_local_origin_success_rate": 0,
        # Short at first, so that a rolled instance is back before the next one goes; longer each time for one
        # that hangs, since the health check cannot tell: its status page still answers.
        "interval": "1s",
        "base_ejection_time": "5s",
        "max_ejection_time": "120s",
        "successful_active_health_check_uneject_host": False,
        # All of them: with nobody left, panic asks everybody. An instance that may not be ejected although it
        # is dead draws every request (50: 291 failed of 2,600 with two instances). Default 10: none of four.
        "max_ejection_percent": 100,
    }


def _circuit_breakers(max_concurrent: int, instances: int) -> Config:
    budget = {
        "budget_percent": {"value": _retry_percent(instances)},
        "min_retry_concurrency": _MIN_RETRIES,
    }
    return {
        "thresholds": [
            {
                "priority": "DEFAULT",
                "max_connections": max_concurrent,
                "max_pending_requests": max_concurrent,
                "max_requests": max_concurrent,
                "track_remaining": True,
                "retry_budget": budget,
            }
        ]
    }


def _retry_percent(instances: int) -> float:
    """Retries that may run at once, in percent of the requests in flight.

    When one of n instances dies, what it had in flight is tried again at once: 1/(n-1) of what the others
    have, and half as much again, because a dead instance looks idle until it is ejected. With Envoy's own
    20 %, 12 of 37 such requests failed with four instances, 48 of 75 with two.
    """
    if instances == 1:
        return _LEAST_RETRY_PERCENT
    return round(min(100.0, max(_LEAST_RETRY_PERCENT, 150 / (instances - 1))), 1)


def _protocol_options(protocol: Config, more: Mapping[str, object] | None = None) -> Config:
    options = {
        **(more or {}),
        "common_http_protocol_options": {"idle_timeout": seconds(_IDLE_S)},
        "explicit_http_config": protocol,
    }
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {name: typed("extensions.upstreams.http.v3.HttpProtocolOptions", options)}


def _single(name: str, address: Config) -> Config:
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "common_lb_config": _panic_only_when_all_are_down(),
        "load_assignment": load_assignment(name, [{"address": address}]),
        "typed_extension_protocol_options": _protocol_options({"http_protocol_options": {}}),
    }
