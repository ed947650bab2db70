"""Reads what `nvidia-smi` prints about the GPUs of a machine."""

import re
from dataclasses import dataclass

QUERY = ("nvidia-smi", "--query-gpu=index,uuid,driver_version,mig.mode.current", "--format=csv,noheader")
# MIG instances have UUIDs of their own, which --query-gpu does not list.
LIST = ("nvidia-smi", "-L")

_MIG = re.compile(r"^\s+MIG .*\(UUID: (MIG-(?:GPU-[0-9a-f-]{36}/\d+/\d+|[0-9a-f-]{36}))\)", re.MULTILINE)
_ROW = re.compile(
    r"(?P<index>\d+), (?P<uuid>GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}), "
    r"(?P<driver>\d[\d.]*), (?P<mig>.+)"
)


class NvidiaSmiError(Exception):
    """What nvidia-smi said instead of naming GPUs."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of a machine; `mig` says that it is split, so that only its instances can be used."""

    index: int
    uuid: str
    driver: str
    mig: bool


def parse_gpus(text: str) -> list[Gpu]:
    """The GPUs that QUERY printed, in its order; raises NvidiaSmiError for anything else it may say."""
    gpus = []
    for line in filter(None, map(str.strip, text.splitlines())):
        row = _ROW.fullmatch(line)
        if row is None:
            raise NvidiaSmiError(line)
        gpus.append(Gpu(int(row["index"]), row["uuid"], row["driver"], row["mig"] == "Enabled"))
    if not gpus:
        raise NvidiaSmiError("nvidia-smi printed nothing")
    return gpus


def parse_mig_uuids(text: str) -> frozenset[str]:
    """The UUIDs of the MIG instances that LIST printed."""
    return frozenset(_MIG.findall(text))
