"""Envoy's listeners: REST, gRPC and the Prometheus pages."""

from components.envoy_config import (
    CONNECTION_BUFFER_BYTES,
    MIB,
    Config,
    extension,
    from_file,
    grpc_cluster,
    http_connection_manager,
    rest_cluster,
    seconds,
    set_header,
    socket_address,
)
from components.envoy_edge import edge_filters, log_fields, tracing, transport_socket
from components.envoy_routes import grpc_virtual_host, metrics_virtual_host, rest_virtual_host
from components.envoy_versions import model_spec_filter, rewrites_messages
from components.plan import FrontEndPlan
from components.settings import FrontEnd

HEALTH_PATH = "/healthz"
"""For a balancer in front of the node; answered by Envoy itself."""

_INSIDE = "0.0.0.0"  # noqa: S104 - inside the container; what is published, and where, is Docker's part
_HEALTHY_PERCENT = 25.0
# Nothing flows while an instance computes, so a stream may be silent for longer than a request may take.
_IDLE_MARGIN_S = 5


def listeners(front_end: FrontEndPlan) -> list[Config]:
    """Every listener of a node's Envoy; its routes are apart, in a file of their own."""
    spec, ports = front_end.spec, front_end.listens
    return [
        _listener("rest", ports.rest, _rest(front_end), transport_socket(spec, ["h2", "http/1.1"])),
        _listener("grpc", ports.grpc, _grpc(front_end), transport_socket(spec, ["h2"])),
        _listener("metrics", ports.metrics, _metrics(), {}),
    ]


def route_configurations(front_end: FrontEndPlan) -> list[Config]:
    """The routes of every listener, under its name."""
    instances = [endpoint.name for pool in front_end.pools for endpoint in pool.endpoints]
    return [
        {"name": "rest", "virtual_hosts": [rest_virtual_host(front_end)]},
        {"name": "grpc", "virtual_hosts": [grpc_virtual_host(front_end)]},
        {"name": "metrics", "virtual_hosts": [metrics_virtual_host(instances)]},
    ]


def _listener(name: str, port: int, manager: Config, transport: Config) -> Config:
    return {
        "name": name,
        "address": socket_address(_INSIDE, port),
        "per_connection_buffer_limit_bytes": CONNECTION_BUFFER_BYTES,
        "filter_chains": [
            {
                "filters": [http_connection_manager(manager)],
                **transport,
            }
        ],
    }


def _rest(front_end: FrontEndPlan) -> Config:
    spec = front_end.spec
    return {
        **_manager("rest", front_end.spec.request_timeout_s),
        **_requests(front_end),
        "codec_type": "AUTO",
        "access_log": [_access_log("rest", log_fields(spec), _logged(spec, _status_at_least(400)))],
        "local_reply_config": _errors_as_json(),
        "http_filters": [
            _health_check([rest_cluster(pool) for pool in front_end.leading]),
            *edge_filters(front_end.spec),
            _body_limit(front_end),
            _router(),
        ],
        "rds": _routes("rest"),
    }


def _grpc(front_end: FrontEndPlan) -> Config:
    spec = front_end.spec
    return {
        **_manager("grpc", front_end.spec.request_timeout_s),
        **_requests(front_end),
        "codec_type": "HTTP2",
        "access_log": [
            _access_log(
                "grpc",
                {"grpc_status": "%GRPC_STATUS%", **log_fields(spec)},
                _logged(spec, {"grpc_status_filter": {"statuses": ["OK"], "exclude": True}}),
            )
        ],
        "local_reply_config": {"mappers": [_too_large_for_grpc()]},
        "http_filters": [
            _health_check([grpc_cluster(pool) for pool in front_end.leading]),
            *edge_filters(front_end.spec),
            _body_limit(front_end),
            *([model_spec_filter()] if rewrites_messages(front_end) else []),
            _router(),
        ],
        "rds": _routes("grpc"),
    }


def _requests(front_end: FrontEndPlan) -> Config:
    ids = front_end.spec.request_ids
    return {
        **({"preserve_external_request_id": True} if ids.from_clients else {}),
        **({"always_set_request_id_in_response": True} if ids.in_answers else {}),
        **tracing(front_end.spec),
    }


def _metrics() -> Config:
    return {
        **_manager("metrics", 10),
        "codec_type": "HTTP1",
        "http_filters": [_router()],
        "rds": _routes("metrics"),
    }


def _routes(listener: str) -> Config:
    return {"route_config_name": listener, "config_source": from_file(f"rds-{listener}")}


def _manager(name: str, request_timeout_s: int) -> Config:
    return {
        "stat_prefix": name,
        "server_name": "tf-serving",
        # Peers are clients from outside whatever their address: none may set x-envoy-… headers. Leave
        # internal_address_config out: an empty list makes loopback peers internal.
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "REJECT_REQUEST",
        "strip_any_host_port": True,
        "max_request_headers_kb": 32,
        "request_headers_timeout": "10s",
        "request_timeout": seconds(request_timeout_s),
        "stream_idle_timeout": seconds(request_timeout_s + _IDLE_MARGIN_S),
        "delayed_close_timeout": "1s",
        "common_http_protocol_options": {
            "idle_timeout": "300s",
            "max_headers_count": 64,
            "headers_with_underscores_action": "REJECT_REQUEST",
        },
        "http2_protocol_options": {
            "max_concurrent_streams": 256,
            "initial_stream_window_size": MIB,
            "initial_connection_window_size": 4 * MIB,
        },
    }


def _health_check(clusters: list[str]) -> Config:
    config: Config = {
        "pass_through_mode": False,
        "cluster_min_healthy_percentages": {cluster: {"value": _HEALTHY_PERCENT} for cluster in clusters},
        "headers": [{"name": ":path", "string_match": {"exact": HEALTH_PATH}}],
    }
    return extension("filters.http.health_check", "filters.http.health_check.v3.HealthCheck", config)


def _body_limit(front_end: FrontEndPlan) -> Config:
    return extension(
        "filters.http.body_size_limit",
        "filters.http.body_size_limit.v3.BodySizeLimit",
        {"max_request_bytes": front_end.spec.max_request_mib * MIB},
    )


def _router() -> Config:
    return extension("filters.http.router", "filters.http.router.v3.Router", {})


def _errors_as_json() -> Config:
    # As the server writes its own: {"error": "…"}.
    return {
        "mappers": [
            {
                "filter": _status_at_least(400),
                "body_format_override": {
                    "json_format": {"error": "%LOCAL_REPLY_BODY%"},
                    "content_type": "application/json",
                },
            }
        ]
    }


def _too_large_for_grpc() -> Config:
    # Envoy's 413 would reach a gRPC client as UNKNOWN; 8 is RESOURCE_EXHAUSTED.
    equal = {"op": "EQ", "value": {"default_value": 413, "runtime_key": "unused"}}
    return {
        "filter": {"status_code_filter": {"comparison": equal}},
        "headers_to_add": [set_header("grpc-status", "8")],
    }


def _status_at_least(status: int) -> Config:
    comparison = {"op": "GE", "value": {"default_value": status, "runtime_key": "unused"}}
    return {"status_code_filter": {"comparison": comparison}}


def _logged(spec: FrontEnd, went_wrong: Config) -> Config:
    """Which requests are logged, but for those to the health check."""
    percent = spec.access_log.sample_percent
    asked: Config = {"not_health_check_filter": {}}
    if percent == 100:
        return asked
    # A client that went away was told no status; flags say so.
    chosen = {
        "runtime_key": "unused",
        "percent_sampled": {"numerator": round(100 * percent), "denominator": "TEN_THOUSAND"},
        "use_independent_randomness": True,
    }
    either = [went_wrong, {"response_flag_filter": {}}, {"runtime_filter": chosen}]
    return {"and_filter": {"filters": [asked, {"or_filter": {"filters": either}}]}}


def _access_log(listener: str, more: Config, logged: Config) -> Config:
    fields = {
        "time": "%START_TIME%",
        "listener": listener,
        "method": "%REQ(:METHOD)%",
        # As the client wrote it, and as the server got it where a version was put in.
        "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
        "upstream_path": "%REQ(:PATH)%",
        "protocol": "%PROTOCOL%",
        "status": "%RESPONSE_CODE%",
        **more,
        "flags": "%RESPONSE_FLAGS%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "bytes_in": "%BYTES_RECEIVED%",
        "bytes_out": "%BYTES_SENT%",
        "duration_ms": "%DURATION%",
        "upstream_ms": "%RESPONSE_DURATION%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "route": "%ROUTE_NAME%",
        "cluster": "%UPSTREAM_CLUSTER%",
        "instance": "%UPSTREAM_HOST_NAME%",
        "upstream": "%UPSTREAM_HOST%",
        "request_id": "%REQ(X-REQUEST-ID)%",
        "peer": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    }
    return {
        **extension(
            "access_loggers.file",
            "access_loggers.file.v3.FileAccessLog",
            {"path": "/dev/stdout", "log_format": {"json_format": fields}},
        ),
        "filter": logged,
    }
