"""What is known of TensorFlow Serving releases, GPUs and machines: `data/facts.yaml`, typed."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

# The one in C is ten times as fast, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DATA = Path(__file__).parent / "data" / "facts.yaml"


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Release(_Fact):
    """Releases that share one GPU software stack; `tensorrt` is None where the server is built without it."""

    versions: tuple[str, ...]
    cuda: str
    newest_capability: str
    cudnn: str
    minimum_driver: str
    tensorrt: str | None
    xla_gpu: bool


class Flag(_Fact):
    """A command-line flag; `default` is None where the server computes it from its CPUs."""

    type: Literal["int", "float", "bool", "string"]
    default: int | float | bool | str | None = None
    since: str | None = None


class MigProfile(_Fact):
    """A size that a GPU can be cut into; `most` of them fit on one."""

    memory_mib: int
    most: int


class GpuModel(_Fact):
    """A kind of GPU; `mig` is empty where it cannot be cut."""

    memory_mib: int
    capability: str
    mig: dict[str, MigProfile]


class HardwareSlot(_Fact):
    """Where a GPU sits in a machine."""

    numa_node: int
    cpus: str


class Hardware(_Fact):
    """A machine: its GPUs in index order, and the CPUs of each socket by NUMA node."""

    gpu: str
    sockets: dict[int, str]
    slots: tuple[HardwareSlot, ...]


class Facts(_Fact):
    """The whole data file."""

    releases: tuple[Release, ...]
    never_released: dict[str, str]
    flags: dict[str, Flag]
    invented: dict[str, str]
    invented_variables: dict[str, str]
    gpu_reserve_mib: dict[int, int]
    gpus: dict[str, GpuModel]
    hardware: dict[str, Hardware]
    batching_presets: dict[str, dict[str, int | tuple[int, ...]]]

    def release(self, version: str) -> Release | None:
        """The release that carries `version`, or None when no such version is known."""
        return next((release for release in self.releases if version in release.versions), None)

    def versions(self, wanted: Callable[[Release], bool] = lambda _: True) -> list[str]:
        """Every known version of the releases that are wanted, oldest first."""
        return [version for release in self.releases if wanted(release) for version in release.versions]

    def reserve_mib(self, gpu: GpuModel) -> int:
        """What TensorFlow leaves alone of a GPU's memory, or of a part's, where no fraction is given."""
        return self.gpu_reserve_mib[version_number(gpu.capability)[0]]

    def flags_of(self, version: str) -> dict[str, Flag]:
        """The flags that the server of `version` has."""
        number = version_number(version)
        return {
            name: flag
            for name, flag in self.flags.items()
            if flag.since is None or version_number(flag.since) <= number
        }


@cache
def facts() -> Facts:
    """The data file, read once."""
    document = yaml.load(_DATA.read_text(encoding="utf-8"), _LOADER)  # noqa: S506 - safe, either one
    return Facts.model_validate(document)


def version_number(version: str) -> tuple[int, ...]:
    """A dotted version as numbers that compare: `535.54.03` is above `535.9.1`."""
    return tuple(int(part) for part in version.split("."))


def server_version(image: str) -> str | None:
    """The TensorFlow Serving version that an image's tag names (`2.14.1-gpu`), or None when it names none."""
    match = re.search(r":(\d+\.\d+\.\d+)(?:[-.][A-Za-z0-9_.-]+)?(?:@|$)", image)
    return match[1] if match else None


def is_gpu_image(image: str) -> bool:
    """Whether the tag says that the image has GPU code: only `-gpu` tags do, `latest` has none."""
    return image.partition("@")[0].endswith("-gpu")
