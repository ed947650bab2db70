"""ConfigVolume: files on a volume of a node, put there by a container that does only that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_docker as docker

from components.config_plan import ConfigPlan
from components.container import Attachment, ContainerArgs, Health, VolumeMount, make_container
from components.scripts import script

_FROM = "/publish"
_VOLUME = "/volume"
_MEMORY_MIB = 32
_SHM_MIB = 8  # it counts against the memory
_PATIENCE_S = 60
# The script says so itself, in a file of its own root: a container that failed never gets healthy.
_PROBE = f"[[ -e {_FROM}/done ]] && : >{_FROM}/seen"


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A file on the volume: text, permissions, and the number of the user who owns it (None: root)."""

    text: pulumi.Input[str]
    mode: int = 0o644
    owner: int | None = None


@dataclass(frozen=True, kw_only=True)
class ConfigVolumeArgs:
    """`plan` is plain; `files` maps a name on the volume to what stands there.

    `first` is a script that `data/publish.sh` begins with: where it fails, nothing is put on the volume.
    `then` is one that `data/publish.sh` goes on with, `then_files` what it reads, by name, from a folder
    of its own, `later` the names on the volume of what it puts there itself, some of `files` or others.
    `attachments` are networks that it needs, `mounts` folders of the node, `patience_s` how long `up` waits
    for it. `image` is the pull of its image, `follows` what must be done before: both are only waited for.
    """

    plan: ConfigPlan
    files: Mapping[str, PublishedFile]
    later: Sequence[str] = ()
    first: str | None = None
    then: str | None = None
    then_files: Mapping[str, pulumi.Input[str]] | None = None
    attachments: Sequence[Attachment] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    patience_s: int = _PATIENCE_S
    memory_mib: int = _MEMORY_MIB
    image: pulumi.Resource | None = None
    follows: pulumi.Resource | None = None


class ConfigVolume(pulumi.ComponentResource):
    """A named volume, and the one-shot container that fills it.

    Other text replaces that container alone; who mounts the volume reads on. Needs the node's Docker provider
    in `opts.providers`. `publisher` is to be waited for. Output: `volume`, the volume's name in the engine,
    known before it exists.
    """

    volume: pulumi.Output[str]
    publisher: docker.Container

    def __init__(self, name: str, args: ConfigVolumeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tf-serving:config_volume:ConfigVolume", name, None, opts)
        plan = args.plan
        volume = docker.Volume(
            f"{name}-volume",
            name=plan.volume,
            driver="local",
            labels=[docker.VolumeLabelArgs(label=label, value=value) for label, value in plan.volume_labels],
            # Another label would be another volume of the same name: the engine hands out the one that is
            # there, and the provider would then remove it.
            # Unless it is told otherwise, the provider removes the one before first, which is still in use.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["labels"], delete_before_replace=False),
        )
        self.publisher = make_container(
            f"{name}-publisher",
            publisher_container(args),
            parent=self,
            depends_on=[volume, *(waited for waited in (args.image, args.follows) if waited)],
        )
        self.volume = pulumi.Output.from_input(plan.volume)
        self.register_outputs({"volume": self.volume})


def publisher_container(args: ConfigVolumeArgs) -> ContainerArgs:
    """The container that does what `data/publish.sh` says, and ends."""
    plan = args.plan
    uploads = {f"{_FROM}/files/{name}": file for name, file in args.files.items()}
    scripts = {"publish.sh": script("publish.sh"), "list": _list(args.files, args.later)}
    if args.first is not None:
        scripts["first.sh"] = args.first
    if args.then is not None:
        scripts["then.sh"] = args.then
    return ContainerArgs(
        name=plan.container,
        image=plan.image,
        entrypoint="/bin/bash",
        arguments=(f"{_FROM}/publish.sh", _FROM, _VOLUME),
        # Where the NVIDIA runtime is the engine's default, the image's own `all` would hand over every GPU.
        environment=("NVIDIA_VISIBLE_DEVICES=void",),
        user="0:0",
        capabilities=("CAP_CHOWN",) if any(file.owner is not None for file in args.files.values()) else (),
        files={
            **{f"{_FROM}/{name}": text for name, text in scripts.items()},
            **{path: file.text for path, file in uploads.items()},
            **{f"{_FROM}/then/{name}": text for name, text in (args.then_files or {}).items()},
        },
        volumes={_VOLUME: VolumeMount(volume=plan.volume, writable=True)},
        mounts=args.mounts,
        attachments=args.attachments,
        once=True,
        memory_mib=args.memory_mib,
        shm_mib=_SHM_MIB,
        health=Health(
            probe=("CMD", "/bin/bash", "-c", _PROBE), interval_s=1, timeout_s=5, patience_s=args.patience_s
        ),
        stop_timeout_s=5,
        labels=plan.labels,
    )


def _list(files: Mapping[str, PublishedFile], later: Sequence[str]) -> str:
    """One line a file, as `data/publish.sh` reads it."""
    lines = [
        f"{file.mode:04o} {'-' if file.owner is None else file.owner} {name}\n"
        for name, file in sorted(files.items())
        if name not in later
    ]
    lines += [f"later - {name}\n" for name in sorted(later)]
    return "".join(lines) or "\n"  # an upload cannot be empty
