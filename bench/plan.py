"""Settings and plan alone, without Pulumi."""

import time
from collections.abc import Callable, Iterator

from bench import stacks
from bench.part import Part
from components.plan import make_plan
from components.stack_file import load_settings
from toolchain.tools import Toolchain


def report(_toolchain: Toolchain) -> Iterator[str]:
    """The best of three, for 100 and for 1,000 nodes."""
    yield "| nodes x GPUs | settings, s | plan, s |"
    yield "|---|---|---|"
    for nodes in (100, 1000):
        config = stacks.fleet(nodes)
        settings = load_settings(config, "bench")
        loading = _best(lambda config=config: load_settings(config, "bench"))  # type: ignore[misc]
        planning = _best(lambda settings=settings: make_plan(settings, stack="bench", project_folder="/p"))  # type: ignore[misc]
        yield f"| {nodes} x 4 | {loading:.2f} | {planning:.2f} |"


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.monotonic()
        work()
        times.append(time.monotonic() - start)
    return min(times)


PARTS = {"plan": Part("Plan alone", report)}
