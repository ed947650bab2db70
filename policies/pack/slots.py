"""Which GPUs, or parts of GPUs, a container is given, however they are written."""

from collections.abc import Iterator
from dataclasses import dataclass

from pack.stack import Node
from pack.workload import GpuRequest, Workload

ALL = "all"
_CDI = ("nvidia.com/gpu=", "nvidia.com/mig=")


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A GPU or a part of one. `id` is the UUID where it is known, else what was written.

    `card` is the UUID or index of the whole GPU, None where a part does not tell. `path` is what asks for it.
    """

    id: str
    card: str | None
    path: str
    written: str

    @property
    def is_part(self) -> bool:
        """Whether it is a MIG instance."""
        return self.id != self.card

    @property
    def is_index(self) -> bool:
        """Whether only its index is known: no label of the node tells the UUID."""
        return (self.card or "").isdecimal()


def slots(workload: Workload, node: Node) -> Iterator[Slot]:
    """The slots that a Docker container asks for by name, each once; `all` and counts name none."""
    seen: set[str] = set()
    for request in workload.gpus:
        for name in request.ids:
            if name.lower() not in (ALL, "none", "void"):
                slot = _slot(name, request.path, node)
                if slot is not None and slot.id not in seen:
                    seen.add(slot.id)
                    yield slot


def everything(request: GpuRequest) -> bool:
    """Whether a request is for all GPUs of the machine."""
    return any(_bare(name).lower() == ALL for name in request.ids)


def _slot(name: str, path: str, node: Node) -> Slot | None:
    bare = _bare(name)
    if bare.lower() == ALL:
        return None
    index, colon, part = bare.partition(":")
    if index.isdecimal():
        card = node.gpus.get(int(index), str(int(index)))
        known = card if card.isdecimal() else _normal(card)
        return Slot(id=f"{known}:{part}" if colon else known, card=known, path=path, written=name)
    found = _normal(bare)
    if found.startswith("MIG-GPU-"):  # as old drivers write it, with the card: MIG-GPU-<uuid>/<gi>/<ci>
        card = found.removeprefix("MIG-").partition("/")[0]
        return Slot(id=found, card=card, path=path, written=name)
    return Slot(id=found, card=None if found.startswith("MIG-") else found, path=path, written=name)


def _bare(name: str) -> str:
    """The device of a CDI name (`nvidia.com/gpu=0`); other names as they are."""
    return next((name.removeprefix(prefix) for prefix in _CDI if name.startswith(prefix)), name)


def _normal(uuid: str) -> str:
    """UUIDs are compared without case: `gpu-ABC` and `GPU-abc` are one card."""
    lower = uuid.lower()
    for prefix in ("mig-gpu-", "gpu-", "mig-"):
        if lower.startswith(prefix):
            return prefix.upper() + lower.removeprefix(prefix)
    return lower
