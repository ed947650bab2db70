"""What the policy pack costs: its rules and the SDK alone, and a preview that meets it.

CPU seconds beside those by the clock: on a busy machine only they say something.
"""

import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import stacks
from bench.flat import count_leaves, deploy, flat_program
from bench.measure import Sample, ratio, run
from bench.part import Part
from bench.preview import LONGEST_S
from ops.policy import PACK
from ops.stack import PREVIEW_ENV
from tests.mock_engine import Registered, run_program
from tests.pulumi_project import Project
from toolchain.python_env import ensure_policy_venv
from toolchain.tools import Toolchain

sys.path.append(str(PACK))  # the pack is run from its own folder and imports from there

from pack.judge import judge_all
from pack.once import read_once
from pack.registry import all_rules
from pack.resource import Provider, Resource
from pack.rule import Params

from tests.policies.server import request, server, whole

_ROUNDS = 3
_FLEETS = (10, 100, 1000)
_MOST_GROWTH = 13  # 10 is linear; caches that no longer hold a whole fleet cost some
_MOST_OF_EMPTY = 1.15
# The SDK refuses a pack without policies: one that nobody asks.
_EMPTY = """from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy

nothing = ResourceValidationPolicy(
    name="nothing",
    description="Nothing",
    validate=lambda _args, _report: None,
    enforcement_level=EnforcementLevel.DISABLED,
)
PolicyPack(name="empty", policies=[nothing])
"""


def rules(_toolchain: Toolchain) -> Iterator[str]:
    """CPU of each rule over whole fleets, without the CLI; then of what the SDK does for every policy."""
    yield f"| rule | {' | '.join(f'{nodes} nodes, ms' for nodes in _FLEETS)} | us a resource, last | growth |"
    yield f"|---|{'---|' * len(_FLEETS)}---|---|"
    fleets = [fleet(nodes) for nodes in _FLEETS]
    growths: dict[str, float] = {}
    for rule in all_rules():
        spent = [_cpu(lambda rule=rule, f=f: list(judge_all(rule, f, Params()))) for f in fleets]  # type: ignore[misc]
        cells = [f"{1000 * one:.1f}" for one in spent]
        growths[rule.name] = spent[-1] / max(spent[-2], 1e-9)
        yield (
            f"| {rule.name} | {' | '.join(cells)} | {1e6 * spent[-1] / len(fleets[-1]):.0f} "
            f"| {growths[rule.name]:.1f} |"
        )
    yield ""
    yield linearity(growths)
    yield ""
    yield "Through the SDK's own server, 10 nodes, without the CLI:"
    yield ""
    yield "| a resource is read | us CPU a resource, before it is made | us CPU a resource, the whole stack |"
    yield "|---|---|---|"
    for how in ("for every rule, as the SDK does", "once"):
        if how == "once":
            read_once()
        alone, together = _served(fleets[0])
        yield f"| {how} | {1e6 * alone:.0f} | {1e6 * together:.0f} |"


def linearity(growths: Mapping[str, float]) -> str:
    """Whether each rule's time grows as the resources do; here by a factor of ten."""
    steepest = max(growths, key=lambda name: growths[name])
    missed = "" if growths[steepest] <= _MOST_GROWTH else "; missed"
    return (
        f"With ten times the resources a rule takes {growths[steepest]:.1f} times as long or less "
        f"({steepest}; 10 is linear, wanted: {_MOST_GROWTH} or less{missed})."
    )


def _served(resources: tuple[Resource, ...]) -> tuple[float, float]:
    """CPU seconds a resource, of the pack's server: asked for each resource, and for all of them together."""
    shown = [
        request(
            one.type,
            one.urn,
            one.props,
            vars(one.provider) if one.provider else None,
            one.delete_before_replace,
        )
        for one in resources
    ]
    stack, asked = whole(shown), server()
    alone = _cpu(lambda: [asked.Analyze(one, None) for one in shown])
    return alone / len(shown), _cpu(lambda: asked.AnalyzeStack(stack, None)) / len(shown)


def preview(nodes: int, toolchain: Toolchain) -> Iterator[str]:
    """Interleaved: without a pack, with an empty one (its start-up), with ours."""
    ensure_policy_venv()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        project = Project(folder, toolchain, _env())
        project.write_stack("bench", stacks.fleet(nodes))
        packs = {
            "none": [],
            "empty": [f"--policy-pack={_empty_pack(folder / 'empty')}"],
            "ours": [f"--policy-pack={PACK}", f"--policy-pack-config={PACK}/config/prod.json"],
        }
        base = [str(toolchain.pulumi), "preview", "--stack", "bench", "--non-interactive"]
        once: dict[str, Callable[[], Sample]] = {
            name: partial(
                run,
                [*base, *options],
                cwd=project.folder,
                env={**project.env, **PREVIEW_ENV},
                longest_s=2 * LONGEST_S[nodes],
            )
            for name, options in packs.items()
        }
        for each in once.values() if nodes < 100 else ():  # warms caches
            each()
        rounds = [{name: each() for name, each in once.items()} for _ in range(_ROUNDS)]
    yield "| pack | wall, s | CPU, s | ratio to none | of CPU | to empty | of CPU |"
    yield "|---|---|---|---|---|---|---|"
    for name in packs:
        wall, cpu = ([_of(round_[name], what) for round_ in rounds] for what in ("wall_s", "cpu_s"))
        cells = [name, f"{statistics.median(wall):.2f}", f"{statistics.median(cpu):.2f}"]
        for other in ("none", "empty"):
            for mine, what in ((wall, "wall_s"), (cpu, "cpu_s")):
                cells.append(f"{ratio(mine, [_of(round_[other], what) for round_ in rounds]):.3f}")
        yield f"| {' | '.join(cells)} |"
    yield ""
    ours, empty = ([_of(round_[name], "wall_s") for round_ in rounds] for name in ("ours", "empty"))
    resources = count_leaves(flat_program(stacks.fleet(nodes), "bench"))
    yield rules_add(ours, empty, resources)


def rules_add(ours: Sequence[float], empty: Sequence[float], resources: int) -> str:
    """What the rules add to a pack without any; each list holds seconds, the two of a round at one place."""
    to_empty = ratio(ours, empty)
    added_ms = statistics.median(1000 * (a - b) / resources for a, b in zip(ours, empty, strict=True))
    missed = "" if round(to_empty, 2) <= _MOST_OF_EMPTY else "; missed"
    return (
        f"`empty` to `none` is the pack's start-up. The rules take the preview to {to_empty:.2f} of that "
        f"(wanted: {_MOST_OF_EMPTY} or less{missed}), {added_ms:.1f} ms for each of {resources} resources."
    )


def fleet(nodes: int) -> tuple[Resource, ...]:
    """The resources of a fleet as rules see them: those of one node, under other names and addresses."""
    engine = run_program(lambda: deploy(stacks.fleet(1), "bench"))
    made = {one.urn: one for one in engine.resources if not one.type.startswith("tf-serving:")}
    first = [_resource(one, made) for one in made.values()]
    texts = [json.dumps(_as_json(one)) for one in first]
    found = []
    for number in range(nodes):
        for text in texts:
            named = text.replace("gpu-0000", f"gpu-{number:04d}")
            values = json.loads(named.replace("GPU-00000000-", f"GPU-{number:08d}-"))
            provider = values.pop("provider")
            found.append(
                Resource(
                    **{**values, "depends_on": tuple(values["depends_on"])},
                    provider=Provider(**provider) if provider else None,
                )
            )
    return tuple(found)


def _resource(one: Registered, made: Mapping[str, Registered]) -> Resource:
    urn = one.provider.rpartition("::")[0]
    provider = made.get(urn)
    return Resource(
        type=one.type,
        urn=one.urn,
        name=one.name,
        props=one.inputs,
        provider=Provider(urn=urn, type=provider.type, props=provider.inputs) if provider else None,
        depends_on=tuple(one.dependencies),
        delete_before_replace=one.delete_before_replace,
    )


def _as_json(one: Resource) -> dict[str, Any]:
    provider = one.provider
    return {
        "type": one.type,
        "urn": one.urn,
        "name": one.name,
        "props": one.props,
        "provider": {"urn": provider.urn, "type": provider.type, "props": provider.props}
        if provider
        else None,
        "depends_on": list(one.depends_on),
        "delete_before_replace": one.delete_before_replace,
    }


def _cpu(work: Callable[[], object]) -> float:
    """CPU seconds, the best of three; as in the pack's process, which looks for no garbage."""
    spent = []
    gc.disable()
    try:
        for _ in range(_ROUNDS):
            start = time.process_time()
            work()
            spent.append(time.process_time() - start)
    finally:
        gc.enable()
    return min(spent)


def _of(sample: Sample, what: str) -> float:
    return float(getattr(sample, what))


def _env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _empty_pack(folder: Path) -> Path:
    """A pack without policies, in the environment of ours."""
    folder.mkdir()
    (folder / "__main__.py").write_text(_EMPTY)
    (folder / "PulumiPolicy.yaml").write_text((PACK / "PulumiPolicy.yaml").read_text())
    (folder / ".venv").symlink_to(PACK / ".venv")
    return folder


PARTS = {
    "policies-rules": Part("Rules of the policy pack, alone", rules),
    **{
        f"policies-{nodes}": Part(
            f"Preview of {nodes} x 4 GPUs with the policy pack", partial(preview, nodes)
        )
        for nodes in (10, 100)
    },
}
