"""All that a rule sees: the workloads of a stack (or the one resource that is judged), and their nodes."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pack import docker, kubernetes, services
from pack.resource import Resource
from pack.services import Service
from pack.workload import Workload

_PACKAGES = ("docker:", "kubernetes:", "pulumi:providers:")


@dataclass(frozen=True, kw_only=True)
class Node:
    """What the labels of a node's containers say about it; empty or None where none does."""

    gpus: Mapping[int, str]
    """UUIDs by index."""
    driver: str | None
    memory_mib: int | None
    numa: Mapping[int, int]
    """The NUMA node of each GPU, by index."""
    cpus: Mapping[int, str]
    """The CPUs beside each GPU, by index."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Resources as a rule sees them: all of a stack, or one, according to the rule's scope."""

    resources: tuple[Resource, ...]

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """Every container, in the order of the resources."""
        return tuple(found for resource in self.resources for found in _workloads(resource))

    @cached_property
    def services(self) -> tuple[Service, ...]:
        """Every Kubernetes service."""
        found = (services.service(resource) for resource in self.resources)
        return tuple(service for service in found if service is not None)

    @property
    def servers(self) -> Iterator[Workload]:
        """The model servers."""
        return (workload for workload in self.workloads if workload.is_server)

    def of_type(self, token: str) -> Iterator[Resource]:
        """Resources of one type, such as docker:index/volume:Volume."""
        return (resource for resource in self.resources if resource.type == token)

    def on_machine(self, machine: str | None) -> tuple[Workload, ...]:
        """The Docker containers of one host."""
        return self._by_machine.get(machine, ())

    @property
    def machines(self) -> tuple[str, ...]:
        """The Docker hosts, in the order in which their containers are declared."""
        return tuple(machine for machine in self._by_machine if machine is not None)

    def node(self, workload: Workload) -> Node:
        """The facts of the node that a container is on, from any container there that carries them."""
        known = self._nodes.get(workload.machine) if workload.machine else None
        return known or _node((workload,))

    def files(self, workload: Workload) -> dict[str, str]:
        """Text that a container sees: put into it, published to a volume of its, or of a ConfigMap."""
        files: dict[str, str] = {}
        for mount in workload.mounts:
            if mount.kind == "config":
                texts = self._config_maps.get(mount.source, {})
                files |= {f"{mount.target}/{name}": text for name, text in texts.items()}
        mounted = {mount.source: mount.target for mount in workload.mounts if mount.kind == "volume"}
        for other in self.on_machine(workload.machine) if mounted else ():
            shared = [mount.source for mount in other.mounts if mount.source in mounted]
            if other.role == "publisher":
                for volume in shared:
                    for path, text in other.files.items():
                        files[f"{mounted[volume]}/{path.rpartition('/')[2]}"] = text
        return {**files, **workload.files}

    @cached_property
    def _config_maps(self) -> Mapping[str, Mapping[str, str]]:
        found = (kubernetes.config_map(resource) for resource in self.resources)
        return dict(each for each in found if each is not None)

    @cached_property
    def _nodes(self) -> Mapping[str | None, Node]:
        return {machine: _node(workloads) for machine, workloads in self._by_machine.items()}

    @cached_property
    def _by_machine(self) -> Mapping[str | None, tuple[Workload, ...]]:
        found: dict[str | None, list[Workload]] = defaultdict(list)
        for workload in self.workloads:
            found[workload.machine].append(workload)
        return {machine: tuple(workloads) for machine, workloads in found.items()}


def matters(type_token: str) -> bool:
    """Whether any rule could look at a resource of this type."""
    return type_token.startswith(_PACKAGES)


def _workloads(resource: Resource) -> Iterator[Workload]:
    if resource.type == docker.CONTAINER:
        yield docker.workload(resource)
    else:
        yield from kubernetes.workloads(resource)


def _node(workloads: Iterable[Workload]) -> Node:
    labels: dict[str, str] = {}
    for workload in workloads:
        for name in ("gpus", "driver", "memory-mib", "numa", "cpus"):
            value = workload.label(f"node-{name}")
            if value is not None:
                labels.setdefault(name, value)
    memory, numa = labels.get("memory-mib", ""), _of_cards(labels.get("numa", ""))
    return Node(
        gpus=_by_index(labels.get("gpus", "")),
        driver=labels.get("driver"),
        memory_mib=int(memory) if memory.isdecimal() else None,
        numa={index: int(found[0]) for index, found in numa.items() if found[0].isdecimal()},
        cpus={index: ",".join(sets) for index, sets in _of_cards(labels.get("cpus", "")).items()},
    )


def _by_index(text: str) -> dict[int, str]:
    """`0=a;1=b` as a mapping; what is written otherwise is left out."""
    return {int(index): value for index, value in re.findall(r"(?:^|;)\s*(\d+)=([^;]*)", text)}


def _of_cards(text: str) -> dict[int, list[str]]:
    """`0=a;1:0=b;1:1=c` by the index of the card: what is said of it, or of each of its parts."""
    found: dict[int, list[str]] = defaultdict(list)
    for index, value in re.findall(r"(?:^|;)\s*(\d+)(?::\d+)?=([^;]*)", text):
        found[int(index)].append(value)
    return found
