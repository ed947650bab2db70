"""The one place that makes a container: what every container of ours has in common."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_docker as docker

# The provider shows a change of these as an update and then leaves the running container as it was.
_NOT_APPLIED_IN_PLACE = ["healthcheck", "init", "mounts", "tmpfs"]
# The state lacks this output of a container that did not become healthy, and of no other. Without it the next
# `up` would "update" that container without waiting for it, and call a broken server well.
_LACKING_AFTER_A_FAILURE = ["networkDatas"]
# False in the state of a container that a refresh found stopped. It is made anew rather than started: what it
# was attached to may be gone by then.
_STOPPED = ["mustRun"]
# The engine changes these of a container that runs.
_IN_PLACE = ("cpu_set", "memory", "memory_swap", "restart")
_TMP = "rw,nosuid,nodev,noexec,size=256m"


@dataclass(frozen=True, kw_only=True)
class Health:
    """When a container counts as healthy, and how long `up` waits for that, in seconds.

    `timeout_s` is the probe's own: the engine kills it then, and its message is lost.
    """

    probe: Sequence[str]
    interval_s: int
    timeout_s: int
    patience_s: int


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A network and the container's fixed address there.

    The name comes from the network itself: when that must be replaced, what is attached to it goes first.
    """

    network: pulumi.Input[str]
    address: str


@dataclass(frozen=True, kw_only=True)
class VolumeMount:
    """A volume by its name in the engine; read-only, unless the container is the one that fills it."""

    volume: pulumi.Input[str]
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class ContainerArgs:
    """What differs from one container of ours to the next.

    `files` maps a path in the container to its text, which root owns; `mounts` maps one to the folder of the
    node that is seen there, read-only, and `volumes` to the volume.
    Without `files` the root is read-only, and /tmp is in memory. `ports` are published. Memory is in MiB.
    A container that is `once` does its work, is healthy for a moment, and ends. Inputs that it `keeps` stay
    what they were when it was made.
    """

    name: str
    image: str
    entrypoint: str
    arguments: Sequence[str]
    environment: Sequence[str] = ()
    files: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    attachments: Sequence[Attachment] = ()
    health: Health
    memory_mib: int
    shm_mib: int = 64
    stop_timeout_s: int
    labels: Sequence[tuple[str, str]]
    mounts: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, VolumeMount] = field(default_factory=dict)
    user: str
    capabilities: Sequence[str] = ()
    once: bool = False
    keeps: Sequence[str] = ()
    cpus: str | None = None
    gpus: Sequence[str] = ()
    ports: Sequence[docker.ContainerPortArgs] = ()


def make_container(
    resource_name: str,
    args: ContainerArgs,
    *,
    parent: pulumi.Resource,
    depends_on: Sequence[pulumi.Resource] = (),
) -> docker.Container:
    """A container with least privilege; its inputs include all that the engine fills in and reads back."""
    return docker.Container(
        resource_name,
        **_inputs(args),
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=list(depends_on),
            ignore_changes=list(args.keeps),
            replace_on_changes=[*_NOT_APPLIED_IN_PLACE, *_LACKING_AFTER_A_FAILURE, *_STOPPED],
            # The provider asks for it where it wants a replacement itself, but not where we do: the successor
            # would be made first, and refused for the name that is taken.
            delete_before_replace=True,
        ),
    )


def replacing_digest(args: ContainerArgs) -> str:
    """A digest of all that replaces the container when it changes.

    But for the names of its networks, which may not be known: whoever is on them is replaced with them.
    """
    inputs = {name: value for name, value in _inputs(args).items() if name not in _IN_PLACE}
    inputs["networks_advanced"] = [attachment.address for attachment in args.attachments]
    text = json.dumps(inputs, default=vars, sort_keys=True)  # the SDK's classes hold what they were given
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _inputs(args: ContainerArgs) -> dict[str, Any]:
    return dict(  # noqa: C408 - the names of arguments
        name=args.name,
        image=args.image,
        entrypoints=[args.entrypoint],
        command=list(args.arguments),
        envs=sorted(args.environment),
        user=args.user,
        # Never with an owner: the engine then looks up the container's user by name, and refuses a number.
        uploads=[
            docker.ContainerUploadArgs(file=file, content=text) for file, text in sorted(args.files.items())
        ],
        # The provider unpacks files at `/`, which the engine refuses where the root is read-only.
        read_only=not args.files,
        tmpfs=None if args.files else {"/tmp": _TMP},  # noqa: S108
        mounts=[
            *(
                docker.ContainerMountArgs(type="bind", source=source, target=target, read_only=True)
                for target, source in sorted(args.mounts.items())
            ),
            *(
                docker.ContainerMountArgs(
                    type="volume", source=mount.volume, target=target, read_only=not mount.writable
                )
                for target, mount in sorted(args.volumes.items())
            ),
        ],
        # The default bridge, which the provider then takes the container off: it would join a network that is
        # named here at once, at any address, and the fixed address would be left out without a word. Not left
        # unset either, since newer engines report another mode than the provider's default.
        network_mode="bridge" if args.attachments else "none",
        networks_advanced=[
            docker.ContainerNetworksAdvancedArgs(name=attachment.network, ipv4_address=attachment.address)
            for attachment in args.attachments
        ],
        ports=list(args.ports),
        device_requests=[_device_request(args.gpus)] if args.gpus else None,
        cpu_set=args.cpus,
        memory=args.memory_mib,
        memory_swap=args.memory_mib,  # unset, the engine stores twice the memory: a difference for ever
        shm_size=args.shm_mib,
        capabilities=docker.ContainerCapabilitiesArgs(adds=list(args.capabilities) or None, drops=["ALL"]),
        security_opts=["no-new-privileges:true"],
        # As process 1 a server does not get SIGTERM's default action: every stop would take its full time.
        init=True,
        stop_signal="SIGTERM",
        stop_timeout=args.stop_timeout_s,
        destroy_grace_seconds=args.stop_timeout_s,
        restart="no" if args.once else "unless-stopped",
        must_run=not args.once,
        log_driver="json-file",
        log_opts={"max-file": "3", "max-size": "50m"},
        healthcheck=docker.ContainerHealthcheckArgs(
            tests=list(args.health.probe),
            interval=duration(args.health.interval_s),
            timeout=duration(args.health.timeout_s),
            start_period=duration(args.health.patience_s),
            retries=3,
        ),
        wait=True,
        wait_timeout=args.health.patience_s,
        labels=[docker.ContainerLabelArgs(label=label, value=value) for label, value in args.labels],
    )


def _device_request(gpus: Sequence[str]) -> docker.ContainerDeviceRequestArgs:
    # By UUID: a count always takes the first GPUs, and indices move when a card is lost.
    return docker.ContainerDeviceRequestArgs(driver="nvidia", device_ids=list(gpus), capabilities=["gpu"])


def duration(seconds: int) -> str:
    """Seconds as the engine writes them back: `1m30s`, `10m0s`, `5s`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
