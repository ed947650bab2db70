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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench import stacks
from bench.flat import PLAIN, TUNED, count_leaves, flat_program
from bench.flat_kubernetes import kubernetes_program
from bench.measure import Sample, ratio, run
from bench.part import Part
from ops.stack import PREVIEW_ENV
from tests.pulumi_project import CHECKOUT, Project
from toolchain.pulumi import ensure
from toolchain.tools import Toolchain

_ROUNDS = 3
_WANTED = {1: 1.10, 10: 1.05, 100: 1.05}
_KEPT = CHECKOUT / ".local" / "bench"
LONGEST_S = {1: 60, 10: 180, 100: 900}
_SOURCES = (
    "__main__.py",
    "components",
    "requirements.txt",
    "bench",
    "Pulumi.prod.yaml",
    "Pulumi.staging.yaml",
)

_OURS = "ours"
_CLUSTER_ROUNDS = 10
MOST_OF_FLAT = 1.10


@dataclass(frozen=True, kw_only=True)
class Flat:
    """A flat program: its `__main__.py` and the module beside it."""

    main: str
    text: str


def report(nodes: int, toolchain: Toolchain) -> Iterator[str]:
    """Docker: three interleaved rounds, against what would be written and that with our two lines."""
    config = stacks.fleet(nodes)
    text = flat_program(config, "bench")
    programs = {"flat": Flat(main=PLAIN, text=text), "flat with our two lines": Flat(main=TUNED, text=text)}
    kept = _KEPT / f"preview-{nodes}-{_fingerprint(text, toolchain)}.json"
    samples = _measured(toolchain, config, programs, kept, warm=nodes < 100, longest_s=LONGEST_S[nodes])
    yield from _table(samples, nodes)
    yield f"{count_leaves(text)} leaf resources. The ratios are ours to that program's."
    yield f"{_of_flat(samples, _WANTED[nodes])}."
    yield ""
    yield f"Where ours takes its CPU time, as sampled: {_by_program(samples[_OURS])}."
    kept.unlink()


def on_cluster(_toolchain: Toolchain) -> Iterator[str]:
    """Kubernetes, rendered to a folder: also against a flat program that imports no typed classes."""
    toolchain = ensure(plugins=["docker", "kubernetes"])
    config = stacks.on_cluster()
    text = kubernetes_program(config, "bench", typed=True)
    bare = kubernetes_program(config, "bench", typed=False)
    programs = {
        "flat": Flat(main=PLAIN, text=text),
        "flat with our two lines": Flat(main=TUNED, text=text),
        "the same without pulumi_kubernetes": Flat(main=TUNED, text=bare),
    }
    kept = _KEPT / f"preview-kubernetes-{_fingerprint(text, toolchain)}.json"
    samples = _measured(toolchain, config, programs, kept, rounds=_CLUSTER_ROUNDS, longest_s=LONGEST_S[1])
    yield from _table(samples, 1)
    yield (
        f"{count_leaves(text)} leaf resources. {_of_flat(samples, MOST_OF_FLAT)}, which is as one would "
        "write it with pulumi_kubernetes; ours does not import that package."
    )
    kept.unlink()


def _measured(
    toolchain: Toolchain,
    config: stacks.Config,
    programs: Mapping[str, Flat],
    kept: Path,
    *,
    longest_s: float,
    warm: bool = True,
    rounds: int = _ROUNDS,
) -> dict[str, list[Sample]]:
    """Every program's runs; those of a bench that was cut short are kept, and count if nothing changed."""
    found = json.loads(kept.read_text()) if kept.exists() else []
    done: list[dict[str, Sample]] = [
        {name: Sample(**sample) for name, sample in each.items()} for each in found
    ]
    # Where Python writes no bytecode, ours alone would be compiled each time: theirs is nearly all packages'.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env.pop("KUBECONFIG", None)
    with tempfile.TemporaryDirectory() as folder:
        ours = _project(Path(folder) / "ours", toolchain, env)
        ours.write_stack("bench", config)
        projects = {_OURS: ours}
        for number, (name, flat) in enumerate(programs.items()):
            other = _project(Path(folder) / f"flat-{number}", toolchain, env)
            (other.folder / "__main__.py").write_text(flat.main)
            (other.folder / "flat.py").write_text(flat.text)
            py_compile.compile(str(other.folder / "flat.py"))
            other.write_stack("bench", {})
            projects[name] = other
        command = [str(toolchain.pulumi), "preview", "--stack", "bench", "--non-interactive"]
        once = {
            name: partial(run, command, cwd=each.folder, env={**each.env, **PREVIEW_ENV}, longest_s=longest_s)
            for name, each in projects.items()
        }
        for each in once.values() if warm else ():  # warms caches
            each()
        while len(done) < rounds:
            done.append({name: each() for name, each in once.items()})
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(
                json.dumps([{name: asdict(sample) for name, sample in each.items()} for each in done])
            )
    return {name: [each[name] for each in done] for name in projects}


def _table(samples: Mapping[str, Sequence[Sample]], nodes: int) -> Iterator[str]:
    yield "| program | wall, s | s a node | CPU, s | ratio | of CPU | memory, MiB | shared once | processes |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, each in samples.items():
        yield _row(name, nodes, each, samples[_OURS])
    yield ""


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


def _of_flat(samples: Mapping[str, Sequence[Sample]], most: float) -> str:
    found = ratio([s.wall_s for s in samples[_OURS]], [s.wall_s for s in samples["flat"]])
    missed = "" if round(found, 2) <= most else "; missed"
    return f"Ours takes {found:.2f} of the flat program's time (wanted: {most:.2f} or less{missed})"


def _by_program(samples: Sequence[Sample]) -> str:
    median = sorted(samples, key=lambda sample: sample.wall_s)[len(samples) // 2]
    parts = sorted(median.cpu_by_program.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts if seconds >= 0.1)


PARTS = {
    f"preview-{nodes}": Part(f"Preview of {nodes} x 4 GPUs against flat programs", partial(report, nodes))
    for nodes in (1, 10, 100)
} | {"kubernetes-preview": Part("Preview of the Kubernetes stack against flat programs", on_cluster)}
