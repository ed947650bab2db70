"""Envoy's routes: which requests reach which pool, and what is said to all the others."""

import re
from collections.abc import Iterator, Sequence

from components.envoy_balancing import choices
from components.envoy_config import (
    ADMIN_CLUSTER,
    MIB,
    Config,
    extension,
    grpc_cluster,
    metrics_cluster,
    request_timeout,
    rest_cluster,
    seconds,
    set_header,
    try_timeout_s,
)
from components.monitoring import ENVOY_METRICS_PATH, METRICS_PATH, front_end_path
from components.plan import FrontEndPlan, PoolPlan

MODEL_HEADER = "x-tf-model"
"""Names the model of a gRPC request where a node has several pools."""
SERVED_BY_HEADER = "x-served-by"
"""Names the instance that answered."""

_SCRAPE_TIMEOUT = "10s"
# Not ReloadConfig (it replaces the models of a server) and no session service.
_GRPC_METHODS = (
    r"/tensorflow\.serving\.(PredictionService/(Predict|Classify|Regress|MultiInference|GetModelMetadata)"
    r"|ModelService/GetModelStatus)"
)
_PREDICTION = "(predict|classify|regress)"
_VERSION = "(/versions/[0-9]+|/labels/[A-Za-z0-9_]+)?"

_INVALID_ARGUMENT = "3"
_NOT_FOUND = "5"
_PERMISSION_DENIED = "7"


def rest_virtual_host(front_end: FrontEndPlan) -> Config:
    """What may be asked over REST: the model in the path decides the pool, upper and lower case apart.

    The server itself matches its paths in any case, so anything that is not on this list is refused.
    """
    return {
        **_virtual_host("rest", front_end),
        "retry_policy": {
            **_retry_policy(front_end, "retriable-status-codes"),
            "retriable_status_codes": [503],  # a full batching queue: another GPU may have room
        },
        "routes": [
            *(
                route
                for pool in front_end.pools
                for model in pool.models
                for route in _rest_routes(front_end, pool, model)
            ),
            _refusal("unknown-model", {"safe_regex": {"regex": "/v1/models/[^/:]+.*"}}, 404, _NO_MODEL),
            _refusal("not-found", {"prefix": "/"}, 404, _NO_PATH),
        ],
    }


_NO_MODEL = "no such model here, or not a way to ask it"
_NO_PATH = (
    "not found; POST /v1/models/<model>[/versions/<n>|/labels/<label>]:predict, :classify or :regress, "
    "GET /v1/models/<model>[/versions/<n>|/labels/<label>][/metadata]"
)


def _rest_routes(front_end: FrontEndPlan, pool: PoolPlan, model: str) -> Iterator[Config]:
    path = f"/v1/models/{re.escape(model)}{_VERSION}"
    cluster, timeout = rest_cluster(pool), request_timeout(front_end)
    for choice in choices(front_end, pool, cluster):
        headers = [_header(":method", "POST"), *choice.headers]
        yield {
            "name": f"predict:{model}{choice.suffix}",
            "match": {"safe_regex": {"regex": f"{path}:{_PREDICTION}"}, "headers": headers},
            "route": {**choice.action, "timeout": timeout},
        }
    yield {
        "name": f"status:{model}",
        "match": {
            "safe_regex": {"regex": f"{path}(/metadata)?"},
            "headers": [_header(":method", "GET")],
        },
        "route": {"cluster": cluster, "timeout": timeout},
    }


def grpc_virtual_host(front_end: FrontEndPlan) -> Config:
    """What may be asked over gRPC.

    The model's name is inside the message, which Envoy does not read. With one pool on the node every request
    goes there. With several, the request header `x-tf-model` names the model: without it a client gets
    INVALID_ARGUMENT, with a model that no pool serves NOT_FOUND. Other methods get PERMISSION_DENIED.
    """
    return {
        **_virtual_host("grpc", front_end),
        "retry_policy": _retry_policy(front_end, "unavailable"),
        "routes": [
            *_grpc_routes(front_end),
            _grpc_refusal("denied", {"prefix": "/"}, 403, _PERMISSION_DENIED, "not served here"),
        ],
    }


def _grpc_routes(front_end: FrontEndPlan) -> Iterator[Config]:
    match: Config = {"safe_regex": {"regex": _GRPC_METHODS}, "grpc": {}}
    timeout = request_timeout(front_end)

    def routes(name: str, pool: PoolPlan, named: list[Config]) -> Iterator[Config]:
        for choice in choices(front_end, pool, grpc_cluster(pool)):
            headers = [*named, *choice.headers]
            yield {
                "name": f"{name}{choice.suffix}",
                "match": {**match, "headers": headers} if headers else match,
                "route": {
                    **choice.action,
                    "timeout": timeout,
                    "max_stream_duration": {"grpc_timeout_header_max": timeout},  # a client's may be shorter
                },
            }

    if len(front_end.pools) == 1:
        yield from routes("grpc", front_end.pools[0], [])
        return
    for pool in front_end.pools:
        for model in pool.models:
            yield from routes(f"grpc:{model}", pool, [_header(MODEL_HEADER, model)])
    present = {**match, "headers": [{"name": MODEL_HEADER, "present_match": True}]}
    yield _grpc_refusal("unknown-model", present, 404, _NOT_FOUND, f"{MODEL_HEADER}: no such model here")
    yield _grpc_refusal(
        "no-model",
        match,
        400,
        _INVALID_ARGUMENT,
        f"several pools are served here: name the model in the request header {MODEL_HEADER}",
    )


def metrics_virtual_host(instances: Sequence[str]) -> Config:
    """Prometheus pages: `/metrics` is Envoy's own, `/instances/<name>/metrics` that of an instance."""
    pages = [
        (ENVOY_METRICS_PATH, ADMIN_CLUSTER, "/stats/prometheus?usedonly"),  # all of them: ten times the size
        *((front_end_path(name), metrics_cluster(name), METRICS_PATH) for name in instances),
    ]
    return {
        "name": "metrics",
        "domains": ["*"],
        "routes": [
            *(
                {
                    "name": path,
                    # The header holds the query too: nothing may be added to what is asked behind.
                    "match": {"path": path, "headers": [_header(":method", "GET"), _header(":path", path)]},
                    "route": {"cluster": cluster, "prefix_rewrite": target, "timeout": _SCRAPE_TIMEOUT},
                }
                for path, cluster, target in pages
            ),
            _refusal("not-found", {"prefix": "/"}, 404, "not found"),
        ],
    }


def _virtual_host(name: str, front_end: FrontEndPlan) -> Config:
    return {
        "name": name,
        "domains": ["*"],
        # A request up to this size can be sent again; default is the connection's 1 MiB (10 of 40 requests of
        # 2 MB failed when an instance died).
        "request_body_buffer_limit": front_end.spec.max_request_mib * MIB,
        "request_headers_to_remove": [SERVED_BY_HEADER],
        "response_headers_to_add": [set_header(SERVED_BY_HEADER, "%UPSTREAM_HOST_NAME%")],
    }


def _retry_policy(front_end: FrontEndPlan, answer: str) -> Config:
    # `reset` also covers the timeout of a try: 71 requests failed without it when an instance hung.
    return {
        "retry_on": f"connect-failure,refused-stream,reset-before-request,reset,{answer}",
        "num_retries": 2,
        "per_try_timeout": seconds(try_timeout_s(front_end)),
        # Of two instances the dead one is chosen three times in four, for the fewest requests: five attempts
        # miss the other one now and then (4 to 13 requests failed of 2,500), a hundred do not.
        "host_selection_retry_max_attempts": 100,
        "retry_host_predicate": [
            extension(
                "retry_host_predicates.previous_hosts",
                "retry.host.previous_hosts.v3.PreviousHostsPredicate",
                {},
            )
        ],
        "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
    }


def _header(name: str, value: str) -> Config:
    return {"name": name, "string_match": {"exact": value}}


def _refusal(name: str, match: Config, status: int, text: str) -> Config:
    return {
        "name": name,
        "match": match,
        "direct_response": {"status": status, "body": {"inline_string": text}},
    }


def _grpc_refusal(name: str, match: Config, http_status: int, status: str, text: str) -> Config:
    # Envoy derives a gRPC status from the HTTP status unless the header is already there.
    return {
        **_refusal(name, match, http_status, text),
        "response_headers_to_add": [set_header("grpc-status", status)],
    }
