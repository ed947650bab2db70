"""What a node's Envoy reads as it starts, from the Plan alone; all else is in files, see `envoy_files.py`."""

from components import block_yaml
from components.envoy_clusters import ADMIN_ADDRESS, admin_cluster
from components.envoy_config import MIB, Config, extension, from_file, socket_address
from components.envoy_status import status_listener
from components.plan import FrontEndPlan
from components.settings import ADMIN_PORT

_CONNECTIONS = 20_000
# Load is shed as a share of the heap: that share must be reached before the kernel ends the container.
_HEAP_SHARE = 0.9
# Envoy refuses a regular expression above 100; a model name of 63 characters comes to 131.
_REGEX_SIZE = 1000


def envoy_bootstrap(front_end: FrontEndPlan) -> Config:
    """The bootstrap of a node's Envoy as plain, ordered data."""
    return {
        "node": {"id": front_end.name, "cluster": "tf-serving"},
        "admin": _admin(),
        "layered_runtime": {
            "layers": [
                {
                    "name": "static",
                    "static_layer": {"re2.max_program_size.error_level": _REGEX_SIZE},
                }
            ]
        },
        "overload_manager": _overload_manager(front_end),
        "static_resources": {"listeners": [status_listener()], "clusters": [admin_cluster()]},
        "dynamic_resources": {"cds_config": from_file("cds"), "lds_config": from_file("lds")},
    }


def bootstrap_yaml(front_end: FrontEndPlan) -> str:
    """The text of the bootstrap, as YAML."""
    return block_yaml.render(envoy_bootstrap(front_end))


def _admin() -> Config:
    # Loopback of the container, and of that only what reads: no /quitquitquit, no /config_dump, no changes.
    return {
        "address": socket_address(ADMIN_ADDRESS, ADMIN_PORT),
        "allow_paths": [
            {"exact": "/ready"},
            {"exact": "/server_info"},
            {"prefix": "/clusters"},
            {"exact": "/stats"},
            {"prefix": "/stats?"},
            {"prefix": "/stats/prometheus"},
        ],
    }


def _overload_manager(front_end: FrontEndPlan) -> Config:
    spec = front_end.spec
    heap = round(spec.memory_mib * _HEAP_SHARE) * MIB
    connections = max(_CONNECTIONS, 2 * spec.max_concurrent)
    heap_monitor = "envoy.resource_monitors.fixed_heap"

    def action(name: str, trigger: Config) -> Config:
        return {"name": f"envoy.overload_actions.{name}", "triggers": [{"name": heap_monitor, **trigger}]}

    return {
        "refresh_interval": "0.25s",
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": 20},
        "resource_monitors": [
            extension(
                "resource_monitors.global_downstream_max_connections",
                "resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                {"max_active_downstream_connections": connections},
            ),
            extension(
                "resource_monitors.fixed_heap",
                "resource_monitors.fixed_heap.v3.FixedHeapConfig",
                {"max_heap_size_bytes": heap},
            ),
        ],
        "actions": [
            action("shrink_heap", {"threshold": {"value": 0.9}}),
            action(
                "reset_high_memory_stream",
                {"scaled": {"scaling_threshold": 0.92, "saturation_threshold": 0.98}},
            ),
            action("stop_accepting_requests", {"threshold": {"value": 0.95}}),
        ],
    }
