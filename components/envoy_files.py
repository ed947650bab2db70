"""The files that a running Envoy reads again, from the Plan alone: endpoints, clusters, routes, listeners."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from components import block_yaml
from components.bootstrap import bootstrap_yaml
from components.envoy_clusters import clusters
from components.envoy_config import Config, from_file, typed
from components.envoy_listeners import listeners, route_configurations
from components.plan import FrontEndPlan

_VERSION_LENGTH = 12


def bootstrap_file(front_end: FrontEndPlan) -> tuple[str, str]:
    """Name and text of the bootstrap. Another text has another name: Envoy reads it only as it starts."""
    text = bootstrap_yaml(front_end)
    return f"bootstrap-{_version(text)}.yaml", text


def envoy_files(front_end: FrontEndPlan) -> dict[str, str]:
    """Text by file name, in the order in which Envoy can take it: nothing names what comes later.

    `eds-<cluster>.yaml`, `cds.yaml`, `rds-<listener>.yaml`, `lds.yaml`. Each begins with its `version_info`,
    a hash of what follows. Files that listeners name, those with secrets among them, are in `envoy_edge.py`.
    """
    return {f"{name}.yaml": response(resources) for name, resources in _resources(front_end)}


def _resources(front_end: FrontEndPlan) -> Iterator[tuple[str, list[Config]]]:
    every = list(clusters(front_end))
    for cluster in every:
        if _reads_endpoints(cluster):
            # One resource a file: Envoy refuses a second one here and among routes.
            endpoints = cast("Mapping[str, object]", cluster["load_assignment"])
            yield (
                _endpoints_file(cluster),
                [typed("config.endpoint.v3.ClusterLoadAssignment", endpoints)],
            )
    yield "cds", [typed("config.cluster.v3.Cluster", _from_its_file(cluster)) for cluster in every]
    for routes in route_configurations(front_end):
        # Unless it is told to look, Envoy takes a route to a cluster that is not there, and answers 503.
        checked = {**routes, "validate_clusters": True}
        yield f"rds-{routes['name']}", [typed("config.route.v3.RouteConfiguration", checked)]
    yield "lds", [typed("config.listener.v3.Listener", listener) for listener in listeners(front_end)]


def _reads_endpoints(cluster: Config) -> bool:
    """Whether its endpoints come and go: those of a pool, which are watched, not that of one instance."""
    return "health_checks" in cluster


def _endpoints_file(cluster: Config) -> str:
    return f"eds-{cluster['name']}"


def _from_its_file(cluster: Config) -> Config:
    if not _reads_endpoints(cluster):
        return cluster
    source = {"eds_config": from_file(_endpoints_file(cluster))}
    kept = {key: value for key, value in cluster.items() if key != "load_assignment"}
    return {**kept, "type": "EDS", "eds_cluster_config": source}


def response(resources: Iterable[Config]) -> str:
    """The text of a file with these resources; it begins with their version."""
    text = block_yaml.render({"resources": list(resources)})
    return block_yaml.render({"version_info": _version(text)}) + text


def _version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_VERSION_LENGTH]
