"""Reaches every node of a stack and names every problem there, changing nothing.

The checks need no package; `wanted_of` reads a stack file and runs in the virtual environment
(`.venv/bin/python -m ops.preflight STACK`).
"""

import errno
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import PurePosixPath

from ops import nvidia_smi, paths, ports
from ops.hosts import Host
from ops.networks import networks_in

# Docker 20.10: the first with GPU device requests by the `nvidia` driver as we ask for them.
_OLDEST_API = (1, 41)
_FREE_MIB_TO_PULL = 15 * 1024  # TensorFlow Serving's GPU image is about 4 GB packed, 8 unpacked
_FREE_MIB = 1024
_SOME = 8  # addresses that are named: each network of an engine has one


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a stack file expects of one node. `driver` is None for simulated GPUs."""

    stack: str
    node: str
    host: Host
    driver: str | None
    gpus: tuple[tuple[int, str], ...]
    highest_cpu: int | None
    memory_mib: int
    images: tuple[str, ...]
    folders: tuple[str, ...]
    ports: tuple[tuple[str, int, str], ...]  # address, port, setting
    bind: str  # the setting that names the address
    subnet: str
    place: str  # of the node in the stack file


@dataclass
class Report:
    """What was found on a node, for people."""

    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


PortTaken = Callable[[str, int], bool]


def port_taken(address: str, port: int) -> bool:
    """Whether another program of this machine listens on a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def check(wanted: Wanted, taken: PortTaken = port_taken) -> Report:
    """Every check of one node; the later ones are left out where its engine does not answer."""
    report = Report()
    if not _check_engine(wanted, report):
        return report
    _check_machine(wanted, report)
    to_pull = _check_images(wanted, report)
    held = _check_containers(wanted, report)
    if not wanted.host.runs_commands:
        unseen = "disk, model folders, routes, addresses, other programs' ports, GPUs"
        report.facts.append(f"over tcp:// only the engine answers: {unseen} not seen")
        return report
    _check_disk(wanted, report, _FREE_MIB_TO_PULL if to_pull else _FREE_MIB)
    _check_folders(wanted, report)
    _check_subnet(wanted, report)
    _check_address(wanted, report)
    _check_ports(wanted, report, held, taken)
    if wanted.driver is None:
        report.facts.append("GPUs are simulated: not looked for")
    else:
        _check_gpus(wanted, report, wanted.driver)
    return report


def _check_engine(wanted: Wanted, report: Report) -> bool:
    answer = wanted.host.docker("version", "--format", "{{.Server.Version}} {{.Server.APIVersion}}")
    words = answer.stdout.split()
    if answer.code != 0 or len(words) != 2:
        where = wanted.host.endpoint
        report.problems.append(f"no Docker Engine answers at {where}: {answer.said}")
        return False
    version, api = words
    report.facts.append(f"engine {version}")
    if tuple(int(part) for part in api.split(".")) < _OLDEST_API:
        oldest = ".".join(map(str, _OLDEST_API))
        report.problems.append(
            f"engine {version} speaks API {api}; at least {oldest} (Docker 20.10) is needed"
        )
    return True


def _check_machine(wanted: Wanted, report: Report) -> None:
    answer = wanted.host.docker("info", "--format", "{{.NCPU}} {{.MemTotal}}")
    words = answer.stdout.split()
    if answer.code != 0 or len(words) != 2:
        report.problems.append(f"`docker info` failed: {answer.said}")
        return
    cpus, memory_mib = int(words[0]), int(words[1]) // 2**20
    if wanted.highest_cpu is not None and wanted.highest_cpu >= cpus:
        report.problems.append(
            f"the stack file names CPU {wanted.highest_cpu}, the machine has 0 to {cpus - 1}"
        )
    if wanted.driver is not None and memory_mib < wanted.memory_mib:
        report.problems.append(
            f"memory_mib is {wanted.memory_mib} in the stack file, the machine has {memory_mib}"
        )


def _check_images(wanted: Wanted, report: Report) -> bool:
    """Whether an image has yet to be pulled."""
    absent = [i for i in wanted.images if wanted.host.docker("image", "inspect", "--format=-", i).code != 0]
    for image in absent:
        answer = wanted.host.docker("manifest", "inspect", image)
        if answer.code == 0:
            report.facts.append(f"{image} is not there yet and can be pulled")
        else:
            report.problems.append(f"image {image} is not there and cannot be pulled: {answer.said}")
    if not absent:
        report.facts.append("images are there")
    return bool(absent)


def _check_disk(wanted: Wanted, report: Report, needed_mib: int) -> None:
    root = wanted.host.docker("info", "--format", "{{.DockerRootDir}}").stdout.strip()
    answer = wanted.host.run(["df", "--output=avail", "--block-size=1M", root])
    last = answer.stdout.split()[-1:]
    if answer.code != 0 or not last or not last[0].isdigit():
        report.problems.append(f"`df {root}` failed: {answer.said}")
        return
    free_mib = int(last[0])
    report.facts.append(f"{free_mib // 1024} GiB free in {root}")
    if free_mib < needed_mib:
        report.problems.append(f"{free_mib} MiB free in {root}, at least {needed_mib} are needed")


def _check_folders(wanted: Wanted, report: Report) -> None:
    for folder in wanted.folders:
        answer = wanted.host.run(["ls", "-1", folder])
        if answer.code != 0:
            report.problems.append(f"model folder {folder}: {answer.said}")
        elif not any(name.isdigit() for name in answer.stdout.split()):
            report.problems.append(f"model folder {folder} holds no version folder (1/, 2/, ...)")


def _check_subnet(wanted: Wanted, report: Report) -> None:
    """Another engine's network, a VPN: Docker itself only looks at its own networks."""
    subnet = IPv4Network(wanted.subnet)
    listed = wanted.host.docker("network", "ls", "--quiet").stdout.split()
    form = "{{range .IPAM.Config}}{{.Subnet}} {{end}}"
    own = networks_in(wanted.host.docker("network", "inspect", "--format", form, *listed).stdout)
    if any(subnet.overlaps(network) for network in own):
        return
    for line in wanted.host.run(["ip", "-4", "route", "show", "table", "all"]).stdout.splitlines():
        target = networks_in(" ".join(line.split()[:2]))[:1]
        if any(subnet.overlaps(network) for network in target):
            clash = f"subnet {subnet} is in use there already: {line.strip()}"
            report.problems.append(f"{clash}; {_way_out(wanted, f'{wanted.place}.subnet')}")
            return


def _check_containers(wanted: Wanted, report: Report) -> frozenset[int]:
    """A container of somebody else that has a port of ours. The ports that containers have, also our own."""
    held: set[int] = set()
    for address, port, setting in wanted.ports:
        found = [one for one in ports.published(wanted.host, port) if ports.clash(address, one.address)]
        if found:
            held.add(port)
        others = [one.container for one in found if one.stack != wanted.stack]
        if others:
            taken = f"port {port} of {address} is published by container {others[0]}"
            report.problems.append(f"{taken}; {_way_out(wanted, setting)}")
    return frozenset(held)


def _check_address(wanted: Wanted, report: Report) -> None:
    """The old front end is gone by the time the engine refuses an address that the machine lacks."""
    address = wanted.ports[0][0]
    if IPv4Address(address).is_unspecified or IPv4Address(address).is_loopback:
        return
    there = ports.addresses(wanted.host)
    if there is None:
        report.facts.append(f"its addresses are not told: {wanted.bind} {address} not checked")
    elif address not in there and not ports.may_take_others(wanted.host):
        some = sorted(there)[:_SOME]
        has = ", ".join(some) + (f" and {len(there) - _SOME} more" if len(there) > _SOME else "")
        report.problems.append(
            f"{wanted.bind} is {address}, which is no address of the machine; it has {has}"
        )


def _check_ports(wanted: Wanted, report: Report, held: frozenset[int], taken: PortTaken) -> None:
    """Another program that has a port of ours; `held` are those of containers, which are told already."""
    if wanted.host.remote:
        listening = ports.listeners(wanted.host)
        if listening is None:
            report.facts.append("what listens there is not told: ports of other programs not checked")

        def taken(address: str, port: int) -> bool:
            return any(port == one and ports.clash(address, where) for where, one in listening or ())

    for address, port, setting in wanted.ports:
        if port not in held and taken(address, port):
            clash = f"port {port} of {address} is in use by another program"
            report.problems.append(f"{clash}; {_way_out(wanted, setting)}")


def _way_out(wanted: Wanted, setting: str) -> str:
    change = f"change {setting} in Pulumi.{wanted.stack}.yaml"
    simulated = wanted.driver is None
    return (
        f"if another checkout's local stack has it, `make down` there, else {change}" if simulated else change
    )


def _check_gpus(wanted: Wanted, report: Report, driver: str) -> None:
    answer = wanted.host.run(nvidia_smi.QUERY)
    try:
        gpus = nvidia_smi.parse_gpus(answer.stdout.strip() or answer.said)
    except nvidia_smi.NvidiaSmiError as error:
        report.problems.append(f"nvidia-smi names no GPU: {error}")
        return
    report.facts.append(f"{len(gpus)} GPUs, driver {gpus[0].driver}")
    if gpus[0].driver != driver:
        report.problems.append(f"driver is {gpus[0].driver}, the stack file says {driver}")
    split = any(gpu.mig for gpu in gpus)
    parts = nvidia_smi.parse_mig_uuids(wanted.host.run(nvidia_smi.LIST).stdout) if split else frozenset()
    report.problems += _gpu_problems(wanted, gpus, parts)


def _gpu_problems(wanted: Wanted, gpus: list[nvidia_smi.Gpu], parts: frozenset[str]) -> Iterator[str]:
    found = {gpu.uuid: gpu for gpu in gpus}
    for index, uuid in wanted.gpus:
        gpu = found.get(uuid)
        if gpu is None:
            if uuid not in parts:
                yield f"GPU {index} ({uuid}) is not there; found: {', '.join([*found, *sorted(parts)])}"
        elif gpu.mig:
            yield f"GPU {index} ({uuid}) is in MIG mode: name its instances' UUIDs (nvidia-smi -L)"
        elif gpu.index != index:
            yield f"{uuid} is GPU {gpu.index} there, the stack file says {index}"


def wanted_of(stack: str) -> list[Wanted]:
    """What a stack file expects of its nodes; raises SettingsError for a bad one."""
    from components.plan import make_plan
    from components.slots import slots_of
    from components.stack_file import load_stack_file
    from components.types import parse_cpus

    settings = load_stack_file(paths.stack_file(stack))
    plan = make_plan(settings, stack=stack, project_folder=str(paths.ROOT))
    front = settings.front_end
    wanted = []
    for node in plan.nodes:
        spec = node.spec
        slots = slots_of(spec).values()
        cpus = [cpu for slot in slots if slot.cpus for cpu in parse_cpus(slot.cpus)]
        sources = {PurePosixPath(m.source) for instance in node.instances for m in instance.models}
        wanted.append(
            Wanted(
                stack=stack,
                node=spec.name,
                host=Host(spec.docker.endpoint, spec.docker.ssh_options, spec.docker.cert_path),
                driver=spec.driver,
                gpus=tuple((slot.gpu, slot.uuid) for slot in slots),
                highest_cpu=max(cpus, default=None),
                memory_mib=spec.memory_mib,
                images=(settings.images.server, settings.images.envoy),
                folders=tuple(sorted(map(str, sources))),
                ports=(
                    (str(node.front_end.bind), front.rest_port, "front_end.rest_port"),
                    (str(node.front_end.bind), front.grpc_port, "front_end.grpc_port"),
                    ("127.0.0.1", front.metrics_port, "front_end.metrics_port"),
                ),
                subnet=str(spec.subnet),
                place=f"nodes[{settings.nodes.index(spec)}]",
                bind=f"nodes[{settings.nodes.index(spec)}].bind" if spec.bind else "front_end.bind",
            )
        )
    return wanted


def run(stack: str) -> int:
    """Check every node at once and print a line for each; 1 where there is a problem."""
    nodes = wanted_of(stack)
    with ThreadPoolExecutor(max_workers=16) as pool:
        reports = list(pool.map(check, nodes))
    problems = 0
    for node, report in zip(nodes, reports, strict=True):
        print(f"Preflight of node {node.node} ({node.host.endpoint}): {'; '.join(report.facts) or 'nothing'}")
        problems += len(report.problems)
        for problem in report.problems:
            print(f"  - {problem}")
    if problems:
        count = "1 problem" if problems == 1 else f"{problems} problems"
        print(f"Preflight found {count}; nothing was changed.")
    return 1 if problems else 0


def main(stack: str) -> int:
    """Run, with a bad stack file shown as its message."""
    from components.errors import SettingsError

    try:
        return run(stack)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
