"""Envoy's status pages: what it has taken of its files, and what its endpoints are at."""

from components.envoy_config import ADMIN_CLUSTER, Config, extension, http_connection_manager, socket_address
from components.settings import STATUS_PORT

STATUS_PATH = "/taken"
"""One `<statistic>: <value>` a line, on STATUS_PORT."""
HOSTS_PATH = "/hosts"
"""One `<cluster>::<address>:<port>::<name>::<value>` a line; but for these two nothing is answered there."""

# Of each file: the version in use, and how often a newer one was refused. And whether clusters still warm up,
# and how often listeners took a certificate.
_STATISTICS = r"(version_text|update_rejected|update_failure|warming_clusters|ssl_context_update_by_sds)$"
_TIMEOUT = "5s"


def status_listener() -> Config:
    """The listener of the status pages.

    It is not published, and part of the bootstrap: it answers whatever became of the other listeners.
    """
    pages = {STATUS_PATH: f"/stats?filter={_STATISTICS}", HOSTS_PATH: "/clusters"}
    routes = [_page(path, target) for path, target in pages.items()]
    manager: Config = {
        "stat_prefix": "status",
        "server_name": "tf-serving",
        "use_remote_address": True,
        "codec_type": "HTTP1",
        "http_protocol_options": {"accept_http_10": True},  # an answer in one piece, for a reader in bash
        "http_filters": [extension("filters.http.router", "filters.http.router.v3.Router", {})],
        "route_config": {
            "name": "status",
            "virtual_hosts": [{"name": "status", "domains": ["*"], "routes": routes}],
        },
    }
    return {
        "name": "status",
        # Who cannot read it takes Envoy for absent, and would overwrite what it serves.
        "ignore_global_conn_limit": True,
        "bypass_overload_manager": True,
        "address": socket_address("0.0.0.0", STATUS_PORT),  # noqa: S104 - inside the container
        "filter_chains": [{"filters": [http_connection_manager(manager)]}],
    }


def _page(path: str, target: str) -> Config:
    return {
        "name": path.removeprefix("/"),
        # The header holds the query too: nothing may be added to what is asked behind.
        "match": {
            "path": path,
            "headers": [
                {"name": ":method", "string_match": {"exact": "GET"}},
                {"name": ":path", "string_match": {"exact": path}},
            ],
        },
        "route": {"cluster": ADMIN_CLUSTER, "prefix_rewrite": target, "timeout": _TIMEOUT},
    }
