"""What a measurement is. Each file of bench/ that measures has a `PARTS`, and `__main__` lists the files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from toolchain.tools import Toolchain


@dataclass(frozen=True)
class Part:
    """A section of results.md: `report` measures, and hands out its lines as they are known."""

    title: str
    report: Callable[[Toolchain], Iterator[str]]
