"""Envoy's files on Kubernetes: those of Docker, with the headless Services of the pools as endpoints."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from components.envoy_clusters import clusters
from components.envoy_config import Config, metrics_cluster, typed
from components.envoy_edge import edge_files
from components.envoy_files import response
from components.envoy_listeners import listeners, route_configurations
from components.envoy_routes import metrics_virtual_host
from components.front_end_plan import FrontEndPlan

_DNS_REFRESH = "5s"


def dynamic_files(front_end: FrontEndPlan) -> dict[str, str]:
    """Text by file name of what a running Envoy reads again: `cds.yaml`, `rds-<listener>.yaml`, `lds.yaml`.

    Endpoints are not among them: they come from DNS.
    """
    texts = {"cds.yaml": response(typed("config.cluster.v3.Cluster", each) for each in _clusters(front_end))}
    for routes in route_configurations(front_end):
        # Prometheus asks the pods themselves: a name in DNS does not lead to one of them.
        own = {"virtual_hosts": [metrics_virtual_host([])]} if routes["name"] == "metrics" else {}
        checked = {**routes, **own, "validate_clusters": True}
        texts[f"rds-{routes['name']}.yaml"] = response([typed("config.route.v3.RouteConfiguration", checked)])
    texts["lds.yaml"] = response(typed("config.listener.v3.Listener", each) for each in listeners(front_end))
    return {**texts, **edge_files(front_end)}


def clusters_hash(front_end: FrontEndPlan) -> str:
    """A hash of the clusters' names.

    The kubelet swaps all files at once, so a route may name a cluster that is not there yet, or no longer:
    with other clusters, Envoy's pods are replaced, which loses no request.
    """
    names = sorted(str(cluster["name"]) for cluster in _clusters(front_end))
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]


def _clusters(front_end: FrontEndPlan) -> Iterator[Config]:
    of_instances = {metrics_cluster(endpoint.name) for pool in front_end.pools for endpoint in pool.endpoints}
    for cluster in clusters(front_end):
        if cluster["name"] not in of_instances:
            yield _by_name(cluster) if "health_checks" in cluster else cluster


def _by_name(cluster: Config) -> Config:
    """A pool's cluster with endpoints from DNS: one name for all pods, or one each where they stick."""
    assignment = cast("Mapping[str, object]", cluster["load_assignment"])
    priorities = cast("Sequence[Mapping[str, object]]", assignment["endpoints"])
    once = [{**priority, "lb_endpoints": _each_once(priority)} for priority in priorities]
    return {
        **cluster,
        "type": "STRICT_DNS",
        "dns_lookup_family": "V4_PREFERRED",
        "dns_refresh_rate": _DNS_REFRESH,
        "load_assignment": {**assignment, "endpoints": once},
    }


def _each_once(priority: Mapping[str, object]) -> list[object]:
    kept: list[object] = []
    for endpoint in cast("Sequence[object]", priority["lb_endpoints"]):
        if endpoint not in kept:
            kept.append(endpoint)
    return kept
