"""Views of Kubernetes services."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pack.kubernetes import kind
from pack.reading import Reader, Unread
from pack.resource import Resource


@dataclass(frozen=True, kw_only=True)
class Service:
    """A Kubernetes service."""

    resource: Resource
    name: str
    kind: str
    selector: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    external_ips: tuple[str, ...] = ()
    load_balancer_ip: str | None = None
    source_ranges: tuple[str, ...] = ()
    targets: tuple[tuple[str, str], ...] = ()
    """Where each port stands, and the port of the pods, by number or name, that it leads to."""
    unread: Mapping[str, tuple[Unread, ...]] = field(default_factory=dict)


def service(resource: Resource) -> Service | None:
    """The view of a service, or None for other resources."""
    if kind(resource.type) != "Service":
        return None
    reader = Reader()
    metadata = reader.mapping(resource.props.get("metadata"), "metadata", "labels")
    spec = reader.mapping(resource.props.get("spec"), "spec", "kind")
    ranges = reader.texts(spec.get("loadBalancerSourceRanges"), "spec.loadBalancerSourceRanges", "kind")
    return Service(
        resource=resource,
        name=reader.text(metadata.get("name"), "metadata.name", "name") or resource.name,
        kind=reader.text(spec.get("type"), "spec.type", "kind") or "ClusterIP",
        selector=reader.texts_of(spec, "selector"),
        labels=reader.texts_of(metadata, "labels"),
        annotations=reader.texts_of(metadata, "annotations"),
        external_ips=reader.texts(spec.get("externalIPs"), "spec.externalIPs", "kind"),
        load_balancer_ip=reader.text(spec.get("loadBalancerIP"), "spec.loadBalancerIP", "kind"),
        source_ranges=ranges,
        targets=tuple(_targets(reader, spec)),
        unread={name: tuple(found) for name, found in reader.unread.items()},
    )


def _targets(reader: Reader, spec: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for at, item in reader.objects(spec.get("ports"), "spec.ports", "ports"):
        name = "port" if item.get("targetPort") is None else "targetPort"
        target = reader.text(item.get(name), f"{at}.{name}", "ports")
        if target is not None:
            yield f"{at}.{name}: {target}", target
