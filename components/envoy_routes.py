"""Envoy's routes: which requests reach which pool, and what is said to all the others."""

from collections.abc import Sequence

from components.envoy_config import (
    ADMIN_CLUSTER,
    MIB,
    Config,
    metrics_cluster,
    set_header,
)
from components.envoy_edge import API_KEY_HEADER
from components.envoy_grpc_routes import grpc_routes
from components.envoy_rest_routes import rest_routes
from components.envoy_retries import grpc_retries, rest_retries
from components.envoy_route_parts import header, refusal
from components.front_end_plan import FrontEndPlan
from components.monitoring import ENVOY_METRICS_PATH, METRICS_PATH, front_end_path

SERVED_BY_HEADER = "x-served-by"
"""Names the instance that answered."""

_SCRAPE_TIMEOUT = "10s"


def rest_virtual_host(front_end: FrontEndPlan) -> Config:
    """What may be asked over REST: the model in the path decides the pool, upper and lower case apart.

    The server itself matches its paths in any case, so anything that is not on this list is refused.
    """
    return {
        **_virtual_host("rest", front_end),
        "retry_policy": rest_retries(front_end),
        **rest_routes(front_end),
    }


def grpc_virtual_host(front_end: FrontEndPlan) -> Config:
    """What may be asked over gRPC."""
    return {
        **_virtual_host("grpc", front_end),
        "retry_policy": grpc_retries(front_end),
        **grpc_routes(front_end),
    }


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
                    "match": {"path": path, "headers": [header(":method", "GET"), header(":path", path)]},
                    "route": {"cluster": cluster, "prefix_rewrite": target, "timeout": _SCRAPE_TIMEOUT},
                }
                for path, cluster, target in pages
            ),
            refusal("not-found", {"prefix": "/"}, 404, "not found"),
        ],
    }


def _virtual_host(name: str, front_end: FrontEndPlan) -> Config:
    return {
        "name": name,
        "domains": ["*"],
        # A request up to this size can be sent again; default is the connection's 1 MiB (10 of 40 requests of
        # 2 MB failed when an instance died).
        "request_body_buffer_limit": front_end.spec.max_request_mib * MIB,
        # No instance sees a client's key.
        "request_headers_to_remove": [SERVED_BY_HEADER, *([API_KEY_HEADER] if front_end.spec.auth else [])],
        "response_headers_to_add": [set_header(SERVED_BY_HEADER, "%UPSTREAM_HOST_NAME%")],
    }
