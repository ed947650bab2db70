"""`python -m bench [preview|plan|up|envoy ...]`: measures, prints, and writes bench/results.md."""

import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path

from bench import envoy, stacks, up
from bench.flat import count_leaves, flat_program
from bench.measure import Sample, ratio, run
from components.plan import make_plan
from components.stack_file import load_settings
from tests.pulumi_project import CHECKOUT, Project
from toolchain.pulumi import ensure
from toolchain.tools import Toolchain

RESULTS = CHECKOUT / "bench" / "results.md"
_PAIRS = 3


def preview(toolchain: Toolchain) -> Iterator[str]:
    """A preview of the program against the same leaf resources written flat, in interleaved pairs."""
    yield "| nodes x GPUs | resources | program, s | flat, s | ratio | ratio CPU | MiB | flat | processes |"
    yield "|---|---|---|---|---|---|---|---|---|"
    programs = []
    for nodes in (1, 10, 100):
        config = stacks.fleet(nodes)
        flat = flat_program(config, "bench")
        ours, theirs = _pairs(toolchain, config, flat)
        wall = ratio([s.wall_s for s in ours], [s.wall_s for s in theirs])
        cpu = ratio([s.cpu_s for s in ours], [s.cpu_s for s in theirs])
        programs.append(f"{nodes} nodes: {_by_program(ours)}")
        yield (
            f"| {nodes} x 4 | {count_leaves(flat)} | {_seconds(ours)} | {_seconds(theirs)} "
            f"| {wall:.3f} | {cpu:.3f} "
            f"| {max(s.peak_mib for s in ours):.0f} | {max(s.peak_mib for s in theirs):.0f} "
            f"| {max(s.processes for s in ours)} |"
        )
    yield ""
    yield "Where the program's CPU time goes, as sampled:"
    yield ""
    yield from (f"- {line}" for line in programs)


def _by_program(samples: list[Sample]) -> str:
    median = sorted(samples, key=lambda sample: sample.wall_s)[len(samples) // 2]
    parts = sorted(median.cpu_by_program.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts if seconds >= 0.1)


def _pairs(toolchain: Toolchain, config: stacks.Config, flat: str) -> tuple[list[Sample], list[Sample]]:
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        program = Project(Path(first), toolchain, dict(os.environ))
        program.write_stack("bench", config)
        other = Project(Path(second), toolchain, dict(os.environ))
        (other.folder / "__main__.py").write_text(flat)
        other.write_stack("bench", {})
        both = (program, other)
        command = [str(toolchain.pulumi), "preview", "--stack", "bench", "--non-interactive"]
        samples: tuple[list[Sample], list[Sample]] = ([], [])
        for pair in range(_PAIRS + 1):
            for project, kept in zip(both, samples, strict=True):
                sample = run(command, cwd=project.folder, env=project.env)
                if pair:  # the first pair warms caches
                    kept.append(sample)
        return samples


def _seconds(samples: list[Sample]) -> str:
    walls = [sample.wall_s for sample in samples]
    return f"{statistics.median(walls):.2f} ({min(walls):.2f} to {max(walls):.2f})"


def plan(_toolchain: Toolchain) -> Iterator[str]:
    """Settings and plan alone, without Pulumi."""
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


PARTS: dict[str, tuple[str, Callable[[Toolchain], Iterator[str]]]] = {
    "plan": ("Plan alone", plan),
    "preview": ("Preview against a flat program", preview),
    "up": ("`make up` with nothing to change, against `pulumi up`", up.report),
    "envoy": ("Envoy against a direct call", envoy.report),
}


def machine() -> str:
    """The machine in words."""
    model = next(
        (
            line.partition(": ")[2]
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, {platform.system()} {platform.release()}"


def main() -> None:
    """Run the parts that are named, or all, and write them over their old sections."""
    toolchain = ensure(plugins=["docker"])
    wanted = sys.argv[1:] or list(PARTS)
    sections = _old_sections()
    for name in wanted:
        title, measure = PARTS[name]
        lines = []
        print(f"## {title}", flush=True)
        for line in measure(toolchain):
            print(line, flush=True)
            lines.append(line)
        when = f"{date.today().isoformat()}, {machine()}"  # noqa: DTZ011 - the day where it ran
        how = f"Measured {when}, Pulumi {toolchain.version} ({toolchain.origin})."
        sections[title] = "\n".join([how, "", *lines])
        _write(sections)  # after each part, so that one that fails takes none along


def _write(sections: Mapping[str, str]) -> None:
    text = (
        "# Measurements\n\nWritten by `make bench`. Ratios are medians of interleaved pairs within one run.\n"
    )
    for title, _ in PARTS.values():
        if title in sections:
            text += f"\n## {title}\n\n{sections[title]}\n"
    RESULTS.write_text(text, encoding="utf-8")


def _old_sections() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    parts = RESULTS.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}


if __name__ == "__main__":
    main()
