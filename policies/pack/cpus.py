"""Sets of CPUs as Linux writes them: `0-15,64-79`."""

import re

_PART = re.compile(r"(\d+)(?:-(\d+))?$")
_MOST = 2**16


def cpus_of(text: str) -> frozenset[int] | None:
    """The CPUs of a set, or None for what is no set."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part.strip())
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last > _MOST:
            return None
        found.update(range(first, last + 1))
    return frozenset(found)


def written(cpus: frozenset[int]) -> str:
    """The shortest way to write a set."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)
