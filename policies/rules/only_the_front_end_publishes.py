"""Clients reach models through the front end and by nothing else."""

import re
from collections.abc import Iterator
from ipaddress import ip_address

import yaml
from pack.kubernetes import config_map
from pack.rule import EVERYWHERE, Finding, Params, Rule, about, unread
from pack.services import Service
from pack.stack import Stack
from pack.workload import Port, Workload
from pack.yaml_text import parsed

NAME = "only-the-front-end-publishes"
_PLAIN = "give it as a plain value: what can be reached must be known before anything is made"
_EVERYWHERE = ("", "0.0.0.0", "::", "[::]", "*")  # noqa: S104 - what is looked for
_PUBLISHES = ("NodePort", "LoadBalancer")
# Where this project's Envoy has them inside, and how a pod's ports are named. Its bootstrap is another
# resource's file, which is not seen beside the container that is judged before it is made.
_ADMIN = ("9901", "admin")
_METRICS = ("9902", "metrics")
_HAS_ADMIN = re.compile(r"\badmin[\"']?\s*:")
# Clouds' words for a balancer that only their own network reaches, and for an address that it is given.
_INTERNAL = re.compile(r"internal", re.IGNORECASE)
_ADDRESS = re.compile(r"source-?ranges|eip|static-?ip|ip-?name|ip-?address|ips?$", re.IGNORECASE)


def check(stack: Stack, params: Params) -> Iterator[Finding]:
    """Ports of the node, services, Envoy's admin page, the server's profiler."""
    for workload in stack.workloads:
        yield from unread(workload, "ports", "Published port", _PLAIN)
        yield from _own_ports(workload, params)
        if workload.role == "front-end" or not workload.is_exempt_from(NAME):
            for path, text in workload.files.items():
                for what in _open_admin(text):
                    yield about(workload, f"{path}: {what}", _ADMIN_INSIDE)
        if workload.is_server:
            yield from _profiler_is_off(workload)
    for resource in stack.resources:
        for name, texts in filter(None, (config_map(resource),)):
            for path, text in texts.items():
                for what in _open_admin(text):
                    yield Finding(resource=resource, what=f"{name}: {path}: {what}", fix=_ADMIN_INSIDE)
    for service in stack.services:
        yield from _service(service, params)


def _own_ports(workload: Workload, params: Params) -> Iterator[Finding]:
    if workload.publishes_all_ports:
        what = "publishAllPorts: true: every port of its image is published, on all addresses"
        yield about(workload, what, "list the ports of the front end one by one")
    if workload.security.host_network and workload.is_server:
        what = "host network: every port that it listens on can be reached from outside"
        yield about(workload, what, "put it on a private network, which the front end joins")
    for port in workload.ports:
        at = f"{port.path}: {port.address or 'all addresses'}:{port.external or 'any'} -> {port.internal}"
        if workload.role == "front-end":
            yield from _front_end_port(workload, port, at, params)
        elif not workload.is_exempt_from(NAME):
            yield about(workload, f"{at}: only the front end publishes ports", _remove(workload))
        elif not _is_loopback(port.address):
            yield about(workload, f"{at}: an exempt page is for its machine alone", "publish it on 127.0.0.1")


def _remove(workload: Workload) -> str:
    if workload.is_server:
        return "remove the port: clients use the front end"
    return f"remove the port; for a monitoring page: 127.0.0.1, and the label tf-serving.exempt: {NAME}"


def _front_end_port(workload: Workload, port: Port, at: str, params: Params) -> Iterator[Finding]:
    if params.environment == "prod" and port.address in _EVERYWHERE:
        what = f"{at}: in prod the front end is published on a named address, not on all"
        yield about(workload, what, "name the address that clients use (front_end.bind, or bind of the node)")
    admin = {str(number) for text in workload.files.values() for _, number in _admins(text)}
    if str(port.internal) in {*admin, *_ADMIN}:
        yield about(workload, f"{at}: {_SHOWS_ALL}", "remove the port; metrics have a listener of their own")
    in_prod = params.environment == "prod" and not workload.is_exempt_from(NAME)
    if in_prod and str(port.internal) in _METRICS and not _is_loopback(port.address):
        what = f"{at}: metrics are not for clients: in prod they stay on the loopback"
        yield about(workload, what, f"publish it on 127.0.0.1, or the label tf-serving.exempt: {NAME}")


_SHOWS_ALL = "Envoy's admin page is published: it shows everything and can stop Envoy"
_ADMIN_INSIDE = "let admin listen on 127.0.0.1 inside its container"


def _open_admin(text: str) -> Iterator[str]:
    """An admin page on another address than the loopback answers every container of the network."""
    for address, port in _admins(text):
        if not _is_loopback(address):
            yield f"admin: {address}:{port}: all on its networks reach Envoy's admin page"


def _admins(text: str) -> Iterator[tuple[str, int]]:
    """Address and port of the admin page, of a file that is a bootstrap with one."""
    if not _HAS_ADMIN.search(text):
        return
    try:
        socket = parsed(text)["admin"]["address"]["socket_address"]
        yield str(socket["address"]), int(socket["port_value"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return


def _profiler_is_off(server: Workload) -> Iterator[Finding]:
    if server.unread.get("command"):
        yield from unread(server, "command", "Arguments", _PLAIN)
    elif (server.flag("enable_profiler") or "").lower() != "false":
        value = server.flag("enable_profiler") or "unset"
        what = f"--enable_profiler: {value}: it answers anybody who reaches the gRPC port"
        yield about(server, what, "set --enable_profiler=false; by default it is on")


def _service(service: Service, params: Params) -> Iterator[Finding]:
    for found in service.unread.get("kind", ()):
        what = f"Type of service {service.name} is not known in preview: {found}"
        yield about(service, what, _PLAIN)
    opens = service.kind in _PUBLISHES or bool(service.external_ips)
    if not opens:
        return
    role = "tf-serving.role"
    front_end = "front-end" in (service.selector.get(role), service.labels.get(role))
    if not front_end:
        what = f"spec.type: {service.kind}: only the front end is reached from outside"
        fix = f"ClusterIP; the front end's own service says so by {role}: front-end in its selector"
        yield about(service, what, fix)
        return
    if leading := [path for path, target in service.targets if target in _ADMIN]:
        fix = "remove the port; metrics have a listener of their own"
        yield about(service, f"{leading[0]}: {_SHOWS_ALL}", fix)
    if params.environment == "prod":
        yield from _in_prod(service)


def _in_prod(service: Service) -> Iterator[Finding]:
    if service.kind == "NodePort":
        what = "spec.type: NodePort: in prod it would be open on all addresses of all nodes"
        yield about(service, what, "LoadBalancer, or ClusterIP behind your ingress")
    elif service.kind == "LoadBalancer" and not _is_narrowed(service):
        what = "spec.type: LoadBalancer: in prod it says who may connect, or on which address"
        fix = (
            "loadBalancerSourceRanges (front_end.source_ranges), or your cloud's annotation for an internal "
            "balancer or an address (front_end.service_annotations)"
        )
        yield about(service, what, fix)
    exempt = NAME in (service.labels.get("tf-serving.exempt") or "")
    for path, target in () if exempt else service.targets:
        if target in _METRICS:
            what = f"{path}: metrics are not for clients: in prod they have a service inside the cluster"
            yield about(service, what, "remove the port, or the label tf-serving.exempt of the service")


def _is_narrowed(service: Service) -> bool:
    """Whether somebody decided who reaches a balancer: whatever was written, it is not left to the cloud."""
    if service.source_ranges or service.load_balancer_ip:
        return True
    return any(_narrows(name, value) for name, value in service.annotations.items())


def _narrows(name: str, value: str) -> bool:
    if value.lower() in ("", "false"):
        return False
    return bool(_INTERNAL.search(name) or _ADDRESS.search(name)) or value.lower() == "internal"


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="Nothing but the front end can be reached from outside, and in prod only on a named address",
        severity="critical",
        steps=(
            "Publish ports on the front end alone, in prod on the address that clients use; keep admin pages "
            "and metrics on the loopback, and turn the server's profiler off."
        ),
        why=(
            "https://github.com/envoyproxy/envoy/issues/2763",
            "https://github.com/moby/moby/issues/22054",
        ),
        exempt=(
            "A monitoring page on the loopback, of whatever is no model server, and in prod metrics of the "
            "front end on another address, by the label `tf-serving.exempt: only-the-front-end-publishes`."
        ),
        levels=EVERYWHERE,
        check=check,
    ),
)
