"""What has Envoy leave an instance alone before it is replaced: a container for each, which ends."""

from dataclasses import dataclass

import pulumi

from components.container import Attachment, ContainerArgs, Health, VolumeMount
from components.plan import FrontEndPlan, InstancePlan
from components.scripts import script
from components.settings import LONGEST_DRAIN_S, STATUS_PORT

SCRIPT, SETTINGS = "drain.sh", "drain.conf"
"""Names on the volume with Envoy's files of what a drain reads there."""

_FOLDER = "/envoy"
_DONE = "/tmp/done"  # noqa: S108 - in the container's memory
_MEMORY_MIB = 32
_SHM_MIB = 8
# The script bounds itself; this is for a container that is killed before it was done.
_PATIENCE_S = LONGEST_DRAIN_S + 60
# Whatever becomes of the script, the instance may then be replaced. Who waits looks once a second, and must
# meet this container healthy, however late a busy engine answers.
_RUN = f"""trap 'exit 0' TERM; . {_FOLDER}/{SCRIPT}; drain {_FOLDER} "$1" {_DONE}
: >{_DONE}
for ((waited = 0; waited < 300; waited++)); do [[ -e {_DONE}.seen ]] && break; sleep 0.2; done
for ((n = 0; n < 30; n++)); do sleep 1; done"""
_PROBE = f"[[ -e {_DONE} ]] && : >{_DONE}.seen"


@dataclass(frozen=True, kw_only=True)
class Drain:
    """Where a node's Envoy is asked: the front network by its name, and what brings its volume the script."""

    network: pulumi.Input[str]
    script: pulumi.Resource


def drain_container(plan: InstancePlan, network: pulumi.Input[str], replaced_by: str) -> ContainerArgs:
    """The container that is replaced whenever the instance is, and before it.

    `replaced_by` is a digest of what replaces the instance. Beside it there is nothing here that changes
    while the instance stays: the script and its settings are on the volume.
    """
    drain = plan.drain
    return ContainerArgs(
        name=drain.container,
        image=plan.image,
        entrypoint="/bin/bash",
        arguments=("-c", _RUN, "drain", plan.name, replaced_by),
        environment=("NVIDIA_VISIBLE_DEVICES=void",),
        user="0:0",
        volumes={_FOLDER: VolumeMount(volume=drain.volume, writable=True)},
        attachments=[Attachment(network=network, address=str(drain.address))],
        once=True,
        memory_mib=_MEMORY_MIB,
        shm_mib=_SHM_MIB,
        health=Health(
            probe=("CMD", "/bin/bash", "-c", _PROBE), interval_s=1, timeout_s=5, patience_s=_PATIENCE_S
        ),
        stop_timeout_s=10,
        labels=drain.labels,
    )


def drain_files(plan: FrontEndPlan) -> dict[str, str]:
    """What drains of a node's instances read, by name."""
    # Where Envoy listens, not what is published.
    lines = [f"envoy {plan.front_address} {STATUS_PORT} {plan.listens.metrics} {plan.drain_timeout_s}\n"]
    lines += [f"{one.name} {one.address} {one.follows or '-'}\n" for one in plan.drained]
    return {SCRIPT: script("drain.sh"), SETTINGS: "".join(lines)}


def ends_drains(volume: str) -> str:
    """Lines of a script on that volume: nobody is drained any more."""
    return f'( . "{volume}/{SCRIPT}"; end_drains "{volume}" )'
