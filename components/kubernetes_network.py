"""Who may talk to whom: clients to Envoy, Envoy to servers, Prometheus to metrics, nobody to more."""

from collections.abc import Iterator

from components.kubernetes_object import Json, Object, manifest, match_labels, metadata
from components.kubernetes_plan import KubernetesPlan
from components.labels import labels
from components.server_spec import GRPC_PORT, REST_PORT
from components.settings import STATUS_PORT

_NAMESPACE = "kubernetes.io/metadata.name"


def network_policies(plan: KubernetesPlan) -> Iterator[Object]:
    """One policy for the servers of every pool, one for Envoy, one for the Job that asks both.

    Probes come from the node and always pass.
    """
    servers = labels(plan.stack, {"role": "instance"})
    asker: list[Json] = [{"podSelector": match_labels(plan.acceptance.selector)}]
    front_end = plan.front_end
    spec = front_end.spec
    prometheus = _namespaces([spec.prometheus_namespace])
    yield _policy(
        plan,
        "servers",
        servers,
        ingress=[
            {
                "from": [{"podSelector": match_labels(front_end.selector)}],
                "ports": _tcp(GRPC_PORT, REST_PORT),
            },
            # The server's metrics, and what it has loaded, are on the port of its REST interface.
            {"from": prometheus, "ports": _tcp(REST_PORT)},
            {"from": asker, "ports": _tcp(REST_PORT)},
        ],
        egress=[],
    )
    clients = {"from": _namespaces(spec.client_namespaces)} if spec.client_namespaces else {}
    dns: Json = {"ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]}
    tracing: list[Json] = [{"ports": _tcp(spec.tracing.collector_port)}] if spec.tracing else []
    yield _policy(
        plan,
        "envoy",
        front_end.selector,
        ingress=[
            {**clients, "ports": _tcp(spec.rest_port, spec.grpc_port)},
            {"from": prometheus, "ports": _tcp(spec.metrics_port)},
            {"from": asker, "ports": _tcp(STATUS_PORT)},
        ],
        egress=[
            {"to": [{"podSelector": match_labels(servers)}], "ports": _tcp(GRPC_PORT, REST_PORT)},
            dns,
            *tracing,
        ],
    )
    yield _policy(
        plan,
        "acceptance",
        plan.acceptance.selector,
        ingress=[],
        egress=[
            {"to": [{"podSelector": match_labels(front_end.selector)}], "ports": _tcp(STATUS_PORT)},
            {"to": [{"podSelector": match_labels(servers)}], "ports": _tcp(REST_PORT)},
            dns,
        ],
    )


def _policy(
    plan: KubernetesPlan,
    name: str,
    pods: tuple[tuple[str, str], ...],
    *,
    ingress: list[Json],
    egress: list[Json],
) -> Object:
    spec: Json = {
        "podSelector": match_labels(pods),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    }
    own = metadata(f"{plan.stack}-{name}", plan.namespace, plan.labels)
    return Object(
        key=f"{name}-network", manifest=manifest("networking.k8s.io/v1", "NetworkPolicy", own, spec=spec)
    )


def _namespaces(names: list[str] | tuple[str, ...]) -> list[Json]:
    return [{"namespaceSelector": {"matchLabels": {_NAMESPACE: name}}} for name in names]


def _tcp(*ports: int) -> list[Json]:
    return [{"protocol": "TCP", "port": port} for port in ports]
