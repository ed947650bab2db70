"""A preview of the program against the same leaf resources written flat.

Two flat programs: one as it would be written, one that has the two lines of our `__main__.py` too (collector
off, registrations begun before they are waited for). What the second lacks is components and settings alone.
All run in the environment of `make preview`, which keeps Pulumi from writing checkpoints of a preview.
"""

import hashlib
import json
import os
import py_compile
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench import stacks
from bench.flat import PLAIN, TUNED, count_leaves, flat_program
from bench.measure import Sample, ratio, run
from bench.part import Part
from ops.stack import PREVIEW_ENV
from tests.pulumi_project import CHECKOUT, Project
from toolchain.tools import Toolchain

_ROUNDS = 3
_WANTED = {1: 1.10, 10: 1.05, 100: 1.05}
_KEPT = CHECKOUT / ".local" / "bench"
LONGEST_S = {1: 60, 10: 180, 100: 900}
_SOURCES = ("__main__.py", "components", "requirements.txt", "bench", "Pulumi.prod.yaml")

Round = Sequence[Sample]
"""One run of each program, one after the other: ours, flat, flat with our two lines."""


def report(nodes: int, toolchain: Toolchain) -> Iterator[str]:
    """Three interleaved rounds; those of a run that was cut short are kept, and count if nothing changed."""
    config = stacks.fleet(nodes)
    flat = flat_program(config, "bench")
    kept = _KEPT / f"preview-{nodes}-{_fingerprint(flat, toolchain)}.json"
    rounds = _measured(nodes, toolchain, config, flat, kept)
    ours, theirs, tuned = zip(*rounds, strict=True)
    yield "| program | wall, s | s a node | CPU, s | ratio | of CPU | memory, MiB | shared once | processes |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, samples in (("ours", ours), ("flat", theirs), ("flat with our two lines", tuned)):
        yield _row(name, nodes, samples, ours)
    yield ""
    yield f"{count_leaves(flat)} leaf resources. The ratios are ours to that program's."
    yield _judged(nodes, ratio([s.wall_s for s in ours], [s.wall_s for s in theirs]))
    yield ""
    yield f"Where ours takes its CPU time, as sampled: {_by_program(ours)}."
    kept.unlink()


def _measured(nodes: int, toolchain: Toolchain, config: stacks.Config, flat: str, kept: Path) -> list[Round]:
    found = json.loads(kept.read_text()) if kept.exists() else []
    rounds: list[Round] = [[Sample(**sample) for sample in each] for each in found]
    # Where Python writes no bytecode, ours alone would be compiled each time: theirs is nearly all packages'.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        ours = _project(Path(folder) / "ours", toolchain, env)
        ours.write_stack("bench", config)
        projects = [ours]
        for name, main in (("flat", PLAIN), ("tuned", TUNED)):
            other = _project(Path(folder) / name, toolchain, env)
            (other.folder / "__main__.py").write_text(main)
            (other.folder / "flat.py").write_text(flat)
            py_compile.compile(str(other.folder / "flat.py"))
            other.write_stack("bench", {})
            projects.append(other)
        command = [str(toolchain.pulumi), "preview", "--stack", "bench", "--non-interactive"]
        once = [
            partial(
                run, command, cwd=each.folder, env={**each.env, **PREVIEW_ENV}, longest_s=LONGEST_S[nodes]
            )
            for each in projects
        ]
        if nodes < 100:  # warms caches
            for each in once:
                each()
        while len(rounds) < _ROUNDS:
            rounds.append([each() for each in once])
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps([[asdict(sample) for sample in each] for each in rounds]))
    return rounds


def _project(folder: Path, toolchain: Toolchain, env: dict[str, str]) -> Project:
    folder.mkdir()
    return Project(folder, toolchain, env)


def _fingerprint(flat: str, toolchain: Toolchain) -> str:
    digest = hashlib.sha256(f"{toolchain.version}\n{flat}".encode())
    for name in _SOURCES:
        path = CHECKOUT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".yaml", ".txt"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _row(name: str, nodes: int, samples: Sequence[Sample], ours: Sequence[Sample]) -> str:
    walls = [sample.wall_s for sample in samples]
    cpu = [sample.cpu_s for sample in samples]
    wall = statistics.median(walls)
    ratios = ["", ""]
    if samples is not ours:
        ratios = [
            f"{ratio([s.wall_s for s in ours], walls):.3f}",
            f"{ratio([s.cpu_s for s in ours], cpu):.3f}",
        ]
    cells = [
        name,
        f"{wall:.2f} ({min(walls):.2f} to {max(walls):.2f})",
        f"{wall / nodes:.2f}",
        f"{statistics.median(cpu):.2f}",
        *ratios,
        f"{max(s.peak_mib for s in samples):.0f}",
        f"{max(s.peak_shared_once_mib for s in samples):.0f}",
        f"{max(s.processes for s in samples)}",
    ]
    return f"| {' | '.join(cells)} |"


def _judged(nodes: int, found: float) -> str:
    met = "met" if found <= _WANTED[nodes] else "missed"
    return f"Wanted: at most {_WANTED[nodes]:.2f} of the flat program's wall-clock time: {met}."


def _by_program(samples: Sequence[Sample]) -> str:
    median = sorted(samples, key=lambda sample: sample.wall_s)[len(samples) // 2]
    parts = sorted(median.cpu_by_program.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts if seconds >= 0.1)


PARTS = {
    f"preview-{nodes}": Part(f"Preview of {nodes} x 4 GPUs against flat programs", partial(report, nodes))
    for nodes in (1, 10, 100)
}
