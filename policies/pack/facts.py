"""What rules need to know of TensorFlow Serving's versions, flags and GPUs: the project's one data file."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pack.yaml_text import parsed

# `make policy-pack` puts a copy into the pack that other programs use; here it is read where it is kept.
_PACKAGED = Path(__file__).resolve().parents[1] / "data" / "facts.yaml"
_HERE = Path(__file__).resolve().parents[2] / "components" / "data" / "facts.yaml"


@dataclass(frozen=True, kw_only=True)
class Release:
    """Releases that share one GPU software stack."""

    versions: tuple[str, ...]
    cuda: str
    minimum_driver: str


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A command-line flag: `int`, `float`, `bool` or `string`; `since` None: every known version has it."""

    type: str
    default: object
    since: str | None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The part of the data file that rules read."""

    releases: tuple[Release, ...]
    never_released: Mapping[str, str]
    flags: Mapping[str, Flag]
    invented_variables: Mapping[str, str]
    gpu_memory_mib: Mapping[str, int]

    def release(self, version: str) -> Release | None:
        """The release that carries a version, or None when no such version is known."""
        return next((release for release in self.releases if version in release.versions), None)

    def flags_of(self, version: str) -> Mapping[str, Flag]:
        """The flags that the server of a version has."""
        number = version_number(version)
        return {
            name: flag
            for name, flag in self.flags.items()
            if flag.since is None or version_number(flag.since) <= number
        }


@cache
def facts() -> Facts:
    """The data file, read once."""
    file = _PACKAGED if _PACKAGED.exists() else _HERE
    document = parsed(file.read_text(encoding="utf-8"))
    return Facts(
        releases=tuple(
            Release(versions=tuple(one["versions"]), cuda=one["cuda"], minimum_driver=one["minimum_driver"])
            for one in document["releases"]
        ),
        never_released=document["never_released"],
        flags={
            name: Flag(type=one["type"], default=one.get("default"), since=one.get("since"))
            for name, one in document["flags"].items()
        },
        invented_variables=document["invented_variables"],
        gpu_memory_mib={name: one["memory_mib"] for name, one in document["gpus"].items()},
    )


def version_number(version: str) -> tuple[int, ...]:
    """A dotted version as numbers that compare: `535.54.03` is above `535.9.1`."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
