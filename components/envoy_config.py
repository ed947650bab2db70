"""Small parts that every piece of Envoy's configuration is made of."""

from collections.abc import Mapping, Sequence

from components.plan import FrontEndPlan, PoolPlan

Config = dict[str, object]
"""An Envoy message as plain data."""

ADMIN_CLUSTER = "admin"
ENVOY_BINARY = "/usr/local/bin/envoy"
"""Where Envoy's own image has it."""
CONFIG_FOLDER = "/config"
"""Where Envoy finds its files, in its container."""
MIB = 1024 * 1024
CONNECTION_BUFFER_BYTES = MIB
"""Envoy's own default, written out. Requests that may be tried again are held beyond it, per virtual host."""
INTERNAL_ERRORS = "13|2|15"
"""gRPC's INTERNAL, UNKNOWN and DATA_LOSS: 500 over REST, what a GPU that went wrong answers."""

# A try may take this share of the whole, so that a server that hangs leaves time for a second, full try.
_TRY_SHARE = 0.4


def typed(message: str, config: Mapping[str, object]) -> Config:
    """`config` as an Any of the message below `type.googleapis.com/envoy.`."""
    return {"@type": f"type.googleapis.com/envoy.{message}", **config}


def extension(name: str, message: str, config: Mapping[str, object]) -> Config:
    """An extension by its name, configured by a message below `envoy.extensions.`."""
    return {"name": f"envoy.{name}", "typed_config": typed(f"extensions.{message}", config)}


def http_connection_manager(manager: Config) -> Config:
    """The network filter that speaks HTTP, with this configuration."""
    name = "filters.network.http_connection_manager"
    return extension(name, f"{name}.v3.HttpConnectionManager", manager)


def seconds(value: float) -> str:
    """A duration as Envoy writes it, to the millisecond."""
    return f"{round(value, 3):.10g}s"


def socket_address(address: str, port: int) -> Config:
    """A TCP address."""
    return {"socket_address": {"address": address, "port_value": port}}


def set_header(name: str, value: str) -> Config:
    """A header that replaces one of the same name, and is left out when its value comes to nothing."""
    return {"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def matches(name: str, regex: str) -> Config:
    """Matches a header whose whole value matches."""
    return {"name": name, "string_match": {"safe_regex": {"regex": regex}}}


def from_file(name: str) -> Config:
    """A source of resources: the file of this name, read again whenever a file is renamed into the folder."""
    return {
        "resource_api_version": "V3",
        "path_config_source": {
            "path": f"{CONFIG_FOLDER}/{name}.yaml",
            "watched_directory": {"path": CONFIG_FOLDER},
        },
    }


def request_timeout(front_end: FrontEndPlan) -> str:
    """How long a request may take, every try included."""
    return seconds(front_end.spec.request_timeout_s)


def try_timeout_s(front_end: FrontEndPlan) -> float:
    """How long one instance may take over a request, in seconds."""
    return front_end.spec.request_timeout_s * _TRY_SHARE


def rest_cluster(pool: PoolPlan) -> str:
    """The cluster that speaks HTTP/1.1 to the instances of a pool."""
    return f"rest-{pool.name}"


def grpc_cluster(pool: PoolPlan) -> str:
    """The cluster that speaks HTTP/2 to the instances of a pool."""
    return f"grpc-{pool.name}"


def sticky_cluster(cluster: str) -> str:
    """The cluster beside `cluster` that keeps a user on one instance. No pool's name holds an underscore."""
    return f"{cluster}_sticky"


def metrics_cluster(instance: str) -> str:
    """The cluster of one instance alone, for its metrics page."""
    return f"metrics-{instance}"


def load_assignment(cluster: str, *priorities: Sequence[Config]) -> Config:
    """The endpoints of a cluster: the first priority's, and those that each further one falls back to."""
    return {
        "cluster_name": cluster,
        "endpoints": [
            {"priority": priority, "lb_endpoints": [{"endpoint": endpoint} for endpoint in endpoints]}
            for priority, endpoints in enumerate(priorities)
        ],
    }
