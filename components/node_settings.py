"""Settings of a node: how it is reached, and the slots that it has."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated

from pydantic import Field

from components.base import Model, repeated
from components.errors import Problem
from components.facts import GpuModel, facts
from components.types import (
    MOST_MIB,
    CpuSet,
    Driver,
    Endpoint,
    FolderPath,
    GpuId,
    HostName,
    MigId,
    Slug,
    parse_cpus,
)

# Those of RFC 1918: what the standard library calls private holds the loopback and link-local ones as well.
_PRIVATE_NETWORKS = tuple(IPv4Network(net) for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
WHOLE_GPU_SLOTS = 7
"""Slots that a GPU can come to: no GPU can be cut into more than seven."""


class Docker(Model):
    """How a node's Docker Engine is reached."""

    endpoint: Endpoint
    """`default` is the engine that `docker` itself reaches: for the machine that runs Pulumi."""
    ssh_options: tuple[str, ...] = ()
    """Options for the ssh program, such as `[-o, StrictHostKeyChecking=yes]`."""
    cert_path: FolderPath | None = None
    """Folder with `ca.pem`, `cert.pem` and `key.pem`, on the machine that runs Pulumi: for `tcp://`."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._options_fit_the_endpoint()

    def _options_fit_the_endpoint(self) -> Iterator[Problem]:
        """Options that the endpoint ignores are a mistake, and so is TCP without TLS."""
        if self.ssh_options and not self.endpoint.startswith("ssh://"):
            yield Problem("ssh_options", f"only for ssh:// endpoints, not {self.endpoint}")
        if self.cert_path is not None and not self.endpoint.startswith("tcp://"):
            yield Problem("cert_path", f"only for tcp:// endpoints, not {self.endpoint}", self.cert_path)
        if self.cert_path is None and self.endpoint.startswith("tcp://"):
            yield Problem(
                "cert_path",
                "is required for tcp://: without a CA the provider would not check who answers, and whoever "
                "reaches an engine is root on its host",
            )


class MigInstance(Model):
    """A part of a GPU that is cut up: a slot of its own, named `<gpu>:<position>`."""

    uuid: MigId
    profile: str
    """Size, as `nvidia-smi mig -lgip` prints it: `3g.40gb`."""
    cpus: CpuSet | None = None
    """CPUs for its instance alone; unset: no pinning."""


class Gpu(Model):
    """One GPU of a node: a slot that one instance owns, or several where it is cut up."""

    index: Annotated[int, Field(ge=0, le=15)]
    """The number `nvidia-smi` prints; names the slot."""
    uuid: GpuId
    """What pins an instance: indices move when a card is lost, UUIDs do not."""
    model: str | None = None
    """Kind of GPU, such as `a100-80g`: lets memory and MIG profiles be checked."""
    numa_node: Annotated[int, Field(ge=0, le=7)] = 0
    """NUMA node of the GPU (`nvidia-smi topo -m`). Memory follows the CPUs: it is taken near them."""
    cpus: CpuSet | None = None
    """CPUs beside the GPU, for its instance alone, such as `0-15,64-79`. Unset: no pinning."""
    mig: Annotated[tuple[MigInstance, ...], Field(max_length=WHOLE_GPU_SLOTS)] = ()
    """The parts of a GPU that is cut up, in `nvidia-smi -L`'s order; the whole GPU is then no slot."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._model_and_profiles_exist()

    def _model_and_profiles_exist(self) -> Iterator[Problem]:
        """The card is a known one, and can be cut like this."""
        if self.mig and self.cpus is not None:
            yield Problem("cpus", "belongs to the parts here: set mig[].cpus", self.cpus)
        known = facts().gpus
        if self.model is None:
            if self.mig:
                yield Problem("model", f"is required with mig; accepted: {', '.join(known)}")
            return
        card = known.get(self.model)
        if card is None:
            yield Problem("model", f"accepted: {', '.join(known)}", self.model)
            return
        for position, part in enumerate(self.mig):
            if part.profile not in card.mig:
                accepted = ", ".join(card.mig) or "none: it cannot be cut"
                yield Problem(
                    f"mig[{position}].profile",
                    f"{self.model} has no such profile; accepted: {accepted}",
                    part.profile,
                )
        for profile in sorted({part.profile for part in self.mig} & card.mig.keys()):
            count = sum(part.profile == profile for part in self.mig)
            if count > card.mig[profile].most:
                yield Problem(
                    "mig", f"{count} x {profile}, but one {self.model} has {card.mig[profile].most} at most"
                )
                return
        yield from self._parts_fit_the_card(card)

    def _parts_fit_the_card(self, card: GpuModel) -> Iterator[Problem]:
        """Different profiles share the card's seven slices and its memory."""
        known = [part.profile for part in self.mig if part.profile in card.mig]
        slices = sum(int(profile.partition("g")[0]) for profile in known)
        memory = sum(card.mig[profile].memory_mib for profile in known)
        if slices > WHOLE_GPU_SLOTS or memory > card.memory_mib:
            yield Problem(
                "mig",
                f"{' + '.join(known)} take {slices} slices and {memory} MiB, but one {self.model} has "
                f"{WHOLE_GPU_SLOTS} and {card.memory_mib}",
            )


class Node(Model):
    """A machine with GPUs and a Docker Engine."""

    name: Slug
    """Stands in the names of its containers; renaming it replaces them."""
    renamed_from: Slug | None = None
    """The name before, for one `up`: containers are then replaced in order, not made beside the old ones."""
    address: HostName
    """What clients use to reach this node's front end; it stands in the URLs of the outputs."""
    bind: IPv4Address | None = None
    """Address of this node that its front end publishes on. Unset: `front_end.bind`."""
    docker: Docker
    """Its Docker Engine."""
    driver: Driver | None = None
    """NVIDIA driver on the node. Unset: no GPU driver to check (simulated GPUs)."""
    memory_mib: Annotated[int, Field(ge=1024, le=MOST_MIB)]
    """RAM of the node in MiB; what its containers may use together stays below it."""
    subnet: IPv4Network
    """Private network of the containers, /24 or larger: instances in the lower half, Envoy in the upper."""
    network_name: Slug | None = None
    """Begins the names of the node's Docker networks. Unset: the stack's name."""
    hardware: str | None = None
    """A known machine, such as `a100-80g-x4`, which says where each GPU sits; then give `gpu_uuids`."""
    gpu_uuids: tuple[GpuId, ...] = ()
    """With `hardware`: the GPUs' UUIDs in index order."""
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=16)] = ()
    """The GPUs written out: for a machine that `hardware` does not know, or with MIG."""
    share_cpus: bool = False
    """Let slots name the same CPUs: for machines with fewer CPUs than slots."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._gpus_come_from_one_place()
        yield from self._gpus_are_told_apart()
        yield from self._cpus_are_not_shared()
        yield from self._cpus_are_on_the_gpus_numa_node()
        yield from self._subnet_is_private_and_large_enough()

    def _gpus_come_from_one_place(self) -> Iterator[Problem]:
        """A profile with UUIDs, or GPUs written out: not both, not neither."""
        if self.hardware is None:
            if self.gpu_uuids:
                yield Problem("gpu_uuids", "needs hardware; or write gpus out", list(self.gpu_uuids))
            if not self.gpus:
                yield Problem("gpus", "is required, or hardware with gpu_uuids")
            return
        machine = facts().hardware.get(self.hardware)
        if machine is None:
            yield Problem("hardware", f"accepted: {', '.join(facts().hardware)}", self.hardware)
        elif self.gpus:
            yield Problem(
                "gpus", f"comes from hardware {self.hardware} here; give gpu_uuids, or leave hardware out"
            )
        elif len(self.gpu_uuids) != len(machine.slots):
            yield Problem("gpu_uuids", f"{self.hardware} has {len(machine.slots)} GPUs", list(self.gpu_uuids))

    def _gpus_are_told_apart(self) -> Iterator[Problem]:
        """Each index and each UUID stands once."""
        yield from repeated("gpus", "index", [gpu.index for gpu in self.gpus])
        yield from repeated("gpus", "uuid", [gpu.uuid for gpu in self.gpus])
        yield from repeated("gpu_uuids", "", self.gpu_uuids)
        first: dict[str, str] = {}
        for g, gpu in enumerate(self.gpus):
            for m, part in enumerate(gpu.mig):
                path = f"gpus[{g}].mig[{m}].uuid"
                if first.setdefault(part.uuid, path) != path:
                    yield Problem(path, f"is also {first[part.uuid]}", part.uuid)

    def _cpus_are_not_shared(self) -> Iterator[Problem]:
        """Two servers on the same CPUs each size their thread pools as if alone."""
        if self.share_cpus:
            return
        owner: dict[int, str] = {}
        for path, _, written in self._cpu_sets():
            cpus = parse_cpus(written)
            rivals = sorted({owner[cpu] for cpu in cpus if cpu in owner})
            if rivals:
                yield Problem(
                    f"{path}.cpus",
                    f"overlaps {', '.join(rivals)}; give each slot its own CPUs, or set share_cpus: true",
                    written,
                )
            owner.update(dict.fromkeys(cpus - owner.keys(), path))

    def _cpu_sets(self) -> Iterator[tuple[str, Gpu, str]]:
        for g, gpu in enumerate(self.gpus):
            if gpu.cpus:
                yield f"gpus[{g}]", gpu, gpu.cpus
            for m, part in enumerate(gpu.mig):
                if part.cpus:
                    yield f"gpus[{g}].mig[{m}]", gpu, part.cpus

    def _cpus_are_on_the_gpus_numa_node(self) -> Iterator[Problem]:
        """A CPU belongs to one NUMA node, so GPUs of different nodes cannot both be beside it."""
        if not self.share_cpus:
            return  # an overlap, and told as one
        home: dict[int, tuple[int, str]] = {}
        for path, gpu, written in self._cpu_sets():
            for cpu in sorted(parse_cpus(written)):
                numa_node, first = home.setdefault(cpu, (gpu.numa_node, path))
                if numa_node != gpu.numa_node:
                    yield Problem(
                        f"{path}.cpus",
                        f"CPU {cpu} is on NUMA node {numa_node} by {first}, but this GPU on {gpu.numa_node}",
                        written,
                    )
                    break

    def _subnet_is_private_and_large_enough(self) -> Iterator[Problem]:
        """Containers get fixed addresses in it, so it must be the node's own."""
        private = any(self.subnet.subnet_of(network) for network in _PRIVATE_NETWORKS)
        if not private or self.subnet.prefixlen > 24:
            yield Problem("subnet", "a private IPv4 network of /24 or larger", str(self.subnet))

    def all_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs, written out or from the hardware profile."""
        if self.hardware is None:
            return self.gpus
        machine = facts().hardware[self.hardware]
        return tuple(
            Gpu(index=index, uuid=uuid, model=machine.gpu, numa_node=slot.numa_node, cpus=slot.cpus)
            for index, (uuid, slot) in enumerate(zip(self.gpu_uuids, machine.slots, strict=True))
        )
