"""What runs on which machine is said by the program, not by the shell that it is run from."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml
from pack import docker
from pack.plain import UNKNOWN
from pack.resource import Provider, Resource
from pack.rule import EVERYWHERE, Finding, Params, Rule, about
from pack.stack import Stack
from pack.workload import Workload
from pack.yaml_text import parsed

NAME = "explicit-provider"
NODE = "explicit-provider-per-node"
_DOCKER, _KUBERNETES = "pulumi:providers:docker", "pulumi:providers:kubernetes"
_DEFAULT = re.compile(r"default(_\d.*)?")
_EXAMPLE = {
    "docker": 'docker.Provider(…, host="ssh://user@gpu-01"), in opts.provider',
    "kubernetes": "kubernetes.Provider(…, kubeconfig=…, context=…), in opts.provider",
}


def check(stack: Stack, _params: Params) -> Iterator[Finding]:
    """Providers of what has a GPU, and how providers reach their machines."""
    for workload in stack.workloads:
        uses_a_gpu = workload.is_server or workload.gpus or workload.unread.get("gpus")
        if workload.is_exempt_from(NAME) or not uses_a_gpu:
            continue
        if _is_default(workload.resource.provider):
            where = "engine" if workload.target == "docker" else "cluster"
            what = f"provider: default: which {where} that is depends on the shell that runs Pulumi"
            yield about(workload, what, f"hand it a provider of its own: {_EXAMPLE[workload.target]}")
    for resource in stack.of_type(_DOCKER):
        yield from _docker_is_verified(resource)
    for resource in stack.of_type(_KUBERNETES):
        yield from _cluster_is_verified(resource)


def _is_default(provider: Provider | None) -> bool:
    """Whether Pulumi made it up; None is what has no provider at all, such as a manifest."""
    return provider is not None and _DEFAULT.fullmatch(_short(provider.urn)) is not None


def _docker_is_verified(provider: Resource) -> Iterator[Finding]:
    """An engine's API is root on its host. Without a CA the Docker provider does not check who answers."""
    props = provider.props
    host, context = props.get("host"), props.get("context")
    if host is UNKNOWN or context is UNKNOWN:
        what = f"Endpoint of provider {provider.name} is not known in preview: host"
        yield Finding(resource=provider, what=what, fix="give it in plain text, such as ssh://user@gpu-01")
        return
    # A context brings its own keys, and wins over the host.
    if context or not isinstance(host, str) or _scheme(host) not in ("tcp", "http", "https"):
        return
    if not (props.get("caMaterial") or props.get("certPath")):
        has_key = bool(props.get("certMaterial") or props.get("keyMaterial"))
        how = "nobody checks which machine answers" if has_key else "whoever reaches the port is root there"
        what = f"{provider.name}: host: {host}: caMaterial and certPath are unset: {how}"
        fix = "set certPath (a folder with ca.pem, cert.pem, key.pem) or caMaterial as well; or use ssh://"
        yield Finding(resource=provider, what=what, fix=fix)


def _scheme(host: str) -> str:
    try:
        return urlsplit(host).scheme.lower()
    except ValueError:
        return ""


def _cluster_is_verified(provider: Resource) -> Iterator[Finding]:
    for name, cluster in _clusters(provider.props.get("kubeconfig")):
        if cluster.get("insecure-skip-tls-verify") is True:
            what = f"{provider.name}: kubeconfig: cluster {name}: insecure-skip-tls-verify: true"
            fix = "remove it, and give the cluster's certificate-authority-data"
            yield Finding(resource=provider, what=f"{what}: nobody checks which machine answers", fix=fix)
        server = cluster.get("server")
        if isinstance(server, str) and _scheme(server) == "http":
            what = f"{provider.name}: kubeconfig: cluster {name}: server: {server}: nothing encrypts it"
            yield Finding(resource=provider, what=what, fix="use its https:// address, with its CA")


def _clusters(kubeconfig: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The clusters of a kubeconfig that is given as text; none for a path."""
    try:
        document: Any = parsed(str(kubeconfig))
    except yaml.YAMLError:
        return
    listed = document.get("clusters") if isinstance(document, dict) else None
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict) and isinstance(item.get("cluster"), dict):
            yield str(item.get("name")), item["cluster"]


def check_nodes(stack: Stack, _params: Params) -> Iterator[Finding]:
    """Two providers of one machine undo each other's order, and one of them knows less about it."""
    first: dict[tuple[str, str], Resource] = {}
    reported: set[tuple[str, str]] = set()
    names = {workload.urn: _node(workload) for workload in stack.workloads}
    for resource in stack.resources:
        if not resource.type.startswith("docker:"):
            continue
        provider = _urn(resource)
        for place in (("machine", docker.machine(resource.provider)), names.get(resource.urn)):
            if place is None:
                continue
            other = first.setdefault(place, resource)
            pair = (_urn(other), provider)
            if pair[0] != provider and pair not in reported:
                reported.add(pair)
                what = f"{_short(provider)}: {place[0]} {place[1]} is also reached by {_short(pair[0])}"
                fix = "use one provider for all that is on a machine, and call a machine by one address"
                yield Finding(resource=resource, what=f"{resource.name}: provider: {what}", fix=fix)


def _node(workload: Workload) -> tuple[str, str] | None:
    """The node as labels name it: two addresses may be one machine."""
    stack, node = workload.label("stack"), workload.label("node")
    return ("node", f"{node} of {stack}") if stack and node else None


def _urn(resource: Resource) -> str:
    return resource.provider.urn if resource.provider else "default"


def _short(urn: str) -> str:
    return urn.rpartition("::")[2]


_WHY = (
    "https://github.com/pulumi/pulumi-docker/issues/619",
    "https://github.com/pulumi/pulumi-docker/issues/1106",
    "https://github.com/pulumi/pulumi-kubernetes/issues/2463",
)
_STEPS = (
    "Make one provider for each machine or cluster, name it in opts.provider of all that runs there, and let "
    "it check who answers: ssh://, or tcp:// with a CA."
)
RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="A program says which machine a GPU is on, and its provider checks that this one answers",
        severity="high",
        steps=_STEPS,
        why=_WHY,
        exempt=(
            "What is no model server, by the label `tf-serving.exempt: explicit-provider`; no provider is."
        ),
        levels={"local": "advisory", "staging": "mandatory", "prod": "mandatory"},
        check=check,
    ),
    Rule(
        name=NODE,
        scope="stack",
        protects="A machine is managed by one provider",
        severity="medium",
        steps=_STEPS,
        why=_WHY,
        exempt="None.",
        levels=EVERYWHERE,
        check=check_nodes,
    ),
)
