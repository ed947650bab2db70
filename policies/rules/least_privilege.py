"""A container may do what it needs, and nothing that makes it root on its node."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from posixpath import normpath

from pack.docker import bound_folder
from pack.reading import Reader
from pack.rule import EVERYWHERE, Finding, Params, Rule, about, unread
from pack.stack import Stack
from pack.workload import Mount, Workload

NAME = "least-privilege"
_PLAIN = "give it as a plain value: what a container may do must be known before it is made"
_CAPABILITIES = ("CAP_CHOWN",)
_WRITABLE = ("/tmp", "/dev/shm")  # noqa: S108 - what a server may write to
VOLUME = "docker:index/volume:Volume"
_SOCKETS = tuple(
    PurePosixPath(f"{folder}/{name}")
    for folder in ("/run", "/var/run")
    for name in (
        "docker.sock",
        "podman/podman.sock",
        "containerd/containerd.sock",
        "crio/crio.sock",
        "docker/containerd/containerd.sock",
    )
)
_SOCKET_NAMES = {socket.name for socket in _SOCKETS}
_JOINED = {
    "network": "it has that one's addresses, and reaches pages on its loopback (Envoy's admin page)",
    "pid": "it sees that one's programs, their files and variables, and can end them",
    "ipc": "it reads and writes that one's memory",
}


def check(stack: Stack, params: Params) -> Iterator[Finding]:
    """What containers may do and see of their node."""
    for workload in stack.workloads:
        if workload.is_exempt_from(NAME):
            continue
        for name, what in (("security", "Privilege"), ("mounts", "Mount"), ("networks", "Network")):
            yield from unread(workload, name, what, _PLAIN)
        yield from _own_namespaces(workload)
        yield from _is_confined(workload)
        yield from _capabilities(workload, params)
        yield from _gains_nothing(workload)
        for mount in workload.mounts:
            if _reaches_an_engine(mount.source):
                what = f"{mount.path}: {mount.source}: {_ENGINE}"
                yield about(workload, what, f"remove the mount{_or_exempt(workload)}")
            yield from _read_only(workload, mount, params)
    for volume in stack.of_type(VOLUME):
        where = "driverOpts"
        source = bound_folder(Reader(), volume.props.get(where), where, "mounts")
        if source and _reaches_an_engine(source):
            what = f"{volume.name}: {where}.device: {source}: {_ENGINE}"
            yield Finding(resource=volume, what=what, fix="bind a folder of its own")


def _own_namespaces(workload: Workload) -> Iterator[Finding]:
    security = workload.security
    if security.privileged:
        what = "privileged: true: it is root on its node, and sees every device"
        yield about(workload, what, "remove it; a GPU is had by a device request")
    on_host_network = security.host_network or "host" in [network.name for network in workload.networks]
    if workload.is_server and on_host_network:
        what = "network: host: it sees all traffic of its node, and all that it listens on is open"
        yield about(workload, what, "put it on a private network, which the front end joins")
    for name, shared in (("pid", security.host_pid), ("ipc", security.host_ipc)):
        if shared:
            what = f"{name}: host: it reaches other programs of its node"
            yield about(workload, what, f"remove the {name} mode{_or_exempt(workload)}")
    for name, mode in security.joined.items():
        what = f"{name}: {mode}: {_JOINED[name]}"
        yield about(workload, what, f"remove the {name} mode{_or_exempt(workload)}")
    if security.host_users:
        what = f"{security.host_users}: root in it is root on its node, also where the node keeps them apart"
        yield about(workload, what, f"remove it{_or_exempt(workload)}")


def _is_confined(workload: Workload) -> Iterator[Finding]:
    for what in workload.security.unconfined:
        fix = f"remove it: the default stands between it and the kernel{_or_exempt(workload)}"
        yield about(workload, f"{what}: it may ask anything of the kernel of its node", fix)


def _capabilities(workload: Workload, params: Params) -> Iterator[Finding]:
    allowed = {_capability(name) for name in params.texts("allowedCapabilities", _CAPABILITIES)}
    beyond = [name for name in workload.security.capabilities_added if _capability(name) not in allowed]
    if beyond:
        what = f"capabilities added: {', '.join(beyond)}: allowed are {', '.join(sorted(allowed)) or 'none'}"
        yield about(
            workload, what, f"drop it{_or_exempt(workload)}, or allow it (allowedCapabilities of the rule)"
        )


def _capability(name: str) -> str:
    """Docker and Kubernetes write one capability with and without its prefix."""
    upper = name.upper()
    return upper if upper.startswith("CAP_") else f"CAP_{upper}"


def _gains_nothing(workload: Workload) -> Iterator[Finding]:
    if workload.security.no_new_privileges or workload.unread.get("security"):
        return
    if workload.target == "docker":
        what = "securityOpts: no-new-privileges is not set: a program with a set-user bit makes it root"
        yield about(workload, what, "add no-new-privileges:true to securityOpts")
    else:
        what = (
            "securityContext.allowPrivilegeEscalation: not false: a program with a set-user bit makes it root"
        )
        yield about(workload, what, "set securityContext.allowPrivilegeEscalation to false")


_ENGINE = "whoever reaches the engine's socket is root on the node"


def _reaches_an_engine(source: str) -> bool:
    """Whether a path of the node is, or holds, an engine's socket; read-only changes nothing about that."""
    if not source.startswith("/"):
        return False
    path = _path(source)
    return path.name in _SOCKET_NAMES or any(path in socket.parents for socket in _SOCKETS)


def _path(text: str) -> PurePosixPath:
    """Without `.`, `..` and the second slash that POSIX lets a path begin with."""
    return PurePosixPath("/" + normpath(text).lstrip("/"))


def _read_only(workload: Workload, mount: Mount, params: Params) -> Iterator[Finding]:
    """A server writes neither models nor configuration, and nobody writes to folders of the node."""
    if mount.read_only or mount.kind not in ("bind", "volume"):
        return
    if workload.is_server and not _is_below(mount.target, params.texts("writableFolders", _WRITABLE)):
        what = f"{mount.path}: {mount.source} -> {mount.target}: a server could change its models"
        yield about(workload, what, "mount it read-only (readOnly: true)")
    elif mount.kind == "bind" and not _is_below(mount.source, params.texts("writableHostFolders")):
        what = f"{mount.path}: {mount.source} -> {mount.target}: it could change files of its node"
        fix = (
            "mount it read-only (readOnly: true), use a volume, or allow the folder (writableHostFolders of "
        )
        yield about(workload, what, f"{fix}the rule){_or_exempt(workload)}")


def _is_below(path: str, folders: Iterable[str]) -> bool:
    found = _path(path)
    return any(folder == found or folder in found.parents for folder in map(_path, folders))


def _or_exempt(workload: Workload) -> str:
    return "" if workload.is_server else f" (or the label tf-serving.exempt: {NAME})"


_LIST = {"type": "array", "items": {"type": "string"}}
RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="A container cannot become root on its node, and a server cannot change its models",
        severity="critical",
        steps=(
            "Remove privileged, namespaces of the node or of other containers, added capabilities, "
            "unconfined profiles and mounts of the engine's socket; mount models and folders of the node "
            "read-only; set no-new-privileges (Kubernetes: allowPrivilegeEscalation: false)."
        ),
        why=(
            "https://github.com/tensorflow/serving/issues/311",
            "https://github.com/SteveLTN/https-portal/issues/148",
            "https://github.com/NVIDIA/dcgm-exporter/issues/33",
        ),
        exempt="What is no model server, by the label `tf-serving.exempt: least-privilege`.",
        levels=EVERYWHERE,
        check=check,
        schema={
            "allowedCapabilities": {
                **_LIST,
                "default": list(_CAPABILITIES),
                "description": "capabilities that a container may add: files of Envoy's user need CAP_CHOWN",
            },
            "writableFolders": {
                **_LIST,
                "default": list(_WRITABLE),
                "description": "folders in which a server may have mounts that it can write to",
            },
            "writableHostFolders": {
                **_LIST,
                "default": [],
                "description": "folders of the node that containers may write to",
            },
        },
    ),
)
