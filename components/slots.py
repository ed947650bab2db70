"""The slots of a node: what an instance can own."""

from dataclasses import dataclass

from components.facts import facts
from components.node_settings import Gpu, MigInstance, Node
from components.pool_settings import SlotKey


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One GPU, or one part of a GPU that is cut up, with the CPUs and the NUMA node beside it."""

    name: str
    """`gpu1`, or `gpu1-mig0` for its first part."""
    gpu: int
    part: int | None
    uuid: str
    numa_node: int
    cpus: str | None
    memory_mib: int | None
    """GPU memory; None where the kind of GPU is not said."""
    reserve_mib: int
    """What TensorFlow leaves alone of it."""


def slots_of(node: Node) -> dict[SlotKey, Slot]:
    """A node's slots as pools name them (`1`, or `'1:0'` for a part), in order."""
    slots: dict[SlotKey, Slot] = {}
    for gpu in sorted(node.all_gpus(), key=lambda gpu: gpu.index):
        if not gpu.mig:
            slots[gpu.index] = _whole(gpu)
        for position, part in enumerate(gpu.mig):
            slots[f"{gpu.index}:{position}"] = _part(gpu, position, part)
    return slots


def _whole(gpu: Gpu) -> Slot:
    model = facts().gpus[gpu.model] if gpu.model else None
    return Slot(
        name=f"gpu{gpu.index}",
        gpu=gpu.index,
        part=None,
        uuid=gpu.uuid,
        numa_node=gpu.numa_node,
        cpus=gpu.cpus,
        memory_mib=model.memory_mib if model else None,
        reserve_mib=facts().reserve_mib(model) if model else 0,
    )


def _part(gpu: Gpu, position: int, part: MigInstance) -> Slot:
    model = facts().gpus[gpu.model or ""]  # settings require it with mig
    return Slot(
        name=f"gpu{gpu.index}-mig{position}",
        gpu=gpu.index,
        part=position,
        uuid=part.uuid,
        numa_node=gpu.numa_node,
        cpus=part.cpus,
        memory_mib=model.mig[part.profile].memory_mib,
        reserve_mib=facts().reserve_mib(model),
    )
