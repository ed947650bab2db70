"""What a pool's models take at most, and of which slot: for rules, and on labels for policies."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from components.facts import facts
from components.pool_settings import Pool
from components.slots import Slot

_CONTEXT_MIB = 1024
_USUAL_SLOT_MIB = 40 * 1024


class Room(NamedTuple):
    """Memory of a GPU or of a part of one in MiB, and what TensorFlow leaves alone of it."""

    memory_mib: int
    reserve_mib: int


def most_at_once(pool: Pool, size: Literal["gpu_mib", "disk_mib"]) -> int | None:
    """MiB of all its models while new versions replace old ones; None where one does not tell."""
    total = 0
    for model in pool.models:
        each, count = getattr(model, size), model.versions.most_loaded()
        if each is None or count is None:
            return None
        twice = 2 if model.optimized and model.optimized.keep_original else 1
        total += each * count * twice
    return total


def usable_mib(pool: Pool, room: Room) -> int:
    """What one of its servers can take."""
    fraction = pool.gpu_memory.fraction
    return room.memory_mib - room.reserve_mib if fraction is None else int(room.memory_mib * fraction)


def too_much(needed: int, usable: int) -> str:
    """Models that do not fit a GPU."""
    return (
        f"need {needed} MiB of GPU memory while a new version replaces an old one, but a slot has "
        f"{usable} for them; keep fewer versions, list them in versions.specific, or drop a model"
    )


def smallest(slots: Iterable[Slot]) -> Room | None:
    """Of the slots whose kind is said; None where that is none of them."""
    known = [Room(slot.memory_mib, slot.reserve_mib) for slot in slots if slot.memory_mib is not None]
    return min(known, default=None)


def room_of(gpu_model: str | None, gpu_resource: str) -> Room | None:
    """Of what a pod asks for (`nvidia.com/mig-1g.10gb`); None for what is not in the facts."""
    card = facts().gpus.get(gpu_model or "")
    _, is_part, profile = gpu_resource.partition("nvidia.com/mig-")
    if card is None or (is_part and profile not in card.mig):
        return None
    memory = card.mig[profile].memory_mib if is_part else card.memory_mib
    return Room(memory, facts().reserve_mib(card))


def size_labels(pool: Pool, room: Room | None) -> dict[str, str]:
    """Short labels for whoever compares, models or the contexts of sharers; none where it could not."""
    needed = most_at_once(pool, "gpu_mib")
    if room is None or (needed is None and not pool.sharing):
        return {}
    slot = {"slot-mib": str(room.memory_mib), "slot-reserve-mib": str(room.reserve_mib)}
    return slot if needed is None else {"models-mib": str(needed), **slot}


def most_shared(sharers: int, slot_mib: int | None) -> float:
    """What fractions of one slot may come to: each process holds up to 1 GiB (its CUDA context) outside.

    Of a slot whose size is not known 40 GiB are taken. Policies have the same (gpu_memory.py).
    """
    return round(max(0, min(0.95, 1 - sharers * _CONTEXT_MIB / (slot_mib or _USUAL_SLOT_MIB))), 4)
