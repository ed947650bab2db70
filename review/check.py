"""Compares every stack of two trees."""

import json
import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from review import on_cluster
from review.changes import changes
from review.events import Value, rules, stack_outputs, steps, violations
from review.meaning import traffic
from review.previews import Bench, Preview
from review.report import Outcome
from review.trees import POLICIES, StackFile, Tree, concerns
from toolchain.tools import Toolchain

_NEW = "A new stack: all of it is made for the first time."
_NOT_BEFORE = "It did not plan in the base, so this shows all that a first `up` would make."
_FROM_A_CLUSTER = (
    "It ran on Kubernetes before: all of it is made anew here, and `pulumi destroy` with the file of before "
    "removes what is there."
)
_ELSEWHERE = (
    "It ran on Docker Engines before: all of it is made anew here, and `pulumi destroy` with the file of "
    "before removes what is there."
)
_GONE = "Its file is gone. What is deployed stays until `pulumi destroy` runs with the file of before."


def compare(
    head: Tree, base: Tree | None, folder: Path, toolchain: Toolchain, changed: Collection[str] | None = None
) -> list[Outcome]:
    """What came of every stack of either tree; previews of different stacks run side by side.

    `changed` names the files in which the trees differ, where that is known: a stack that none of them
    concerns is judged by the policies alone.
    """
    before = base.stacks() if base else []
    files = [*head.stacks(), *(file for file in before if file not in head.stacks())]

    def one(number: int) -> Outcome:
        file = files[number]
        unchanged = file in before and changed is not None and not any(concerns(file, p) for p in changed)
        if (head.folder / file.path).exists() and head.is_on_kubernetes(file):
            return _on_cluster(file, head, base if file in before else None, folder / str(number), unchanged)
        bench = Bench(folder / str(number), toolchain, file.stack)
        if unchanged:
            return _judge(file, head, bench)
        return _compare_stack(file, head, base if file in before else None, bench)

    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(one, range(len(files))))


def _compare_stack(file: StackFile, head: Tree, base: Tree | None, bench: Bench) -> Outcome:
    if not (head.folder / file.path).exists():
        return Outcome(title=file.title, path=file.path, note=_GONE, gone=True)
    before, note = _before(file, head, base, bench)
    told, old_told = _told(head, head, file), _told(head, base, file) if base and before else {}
    after = _judged(bench, head, file, told)
    old, new = (stack_outputs(one.events) if one else {} for one in (before, after))
    return Outcome(
        title=file.title,
        path=file.path,
        steps=steps(after.events),
        known=traffic(old, new),
        # From nothing, all of both is new: that is no news.
        plan=changes(old_told.get("plan"), told.get("plan")) if old_told else (),
        outputs=changes(old, new) if old else (),
        violations=violations(after.events),
        rules=len(rules(after.events)),
        trouble=_trouble(after),
        note=note,
    )


def _judge(file: StackFile, head: Tree, bench: Bench) -> Outcome:
    """A stack in which nothing differs."""
    after = _judged(bench, head, file, _told(head, head, file))
    return Outcome(
        title=file.title,
        path=file.path,
        violations=violations(after.events),
        rules=len(rules(after.events)),
        trouble=_trouble(after),
    )


def _judged(bench: Bench, head: Tree, file: StackFile, told: Mapping[str, Value]) -> Preview:
    return bench.preview(head, file, *_policies(head.folder, str(told.get("environment", ""))))


def _trouble(preview: Preview) -> str:
    """Why it does not plan; that a policy refuses it is told by what the policy says."""
    refused = any(one.level == "mandatory" for one in violations(preview.events))
    return "" if preview.code == 0 or refused else preview.trouble


def _before(file: StackFile, head: Tree, base: Tree | None, bench: Bench) -> tuple[Preview | None, str]:
    """What the base would have made, put into the state; or why there is nothing to compare with."""
    if base is None:
        return None, _NEW
    if base.is_on_kubernetes(file):
        return None, _FROM_A_CLUSTER
    before = bench.preview(base, file)
    if before.code != 0:
        return None, _NOT_BEFORE
    bench.pretend(before, rename=(str(base.folder), str(head.folder)))
    return before, ""


def _policies(tree: Path, environment: str) -> Sequence[str]:
    if not (tree / POLICIES / "PulumiPolicy.yaml").exists():
        return ()
    config = tree / POLICIES / "config" / f"{environment}.json"
    levels = ["--policy-pack-config", str(config)] if config.exists() else []
    return ["--policy-pack", str(tree / POLICIES), *levels]


def _on_cluster(file: StackFile, head: Tree, base: Tree | None, folder: Path, unchanged: bool) -> Outcome:
    """A stack on Kubernetes, by the manifests that both trees render."""
    done = _tell(head, head, file)
    if done.returncode != 0:
        return Outcome(title=file.title, path=file.path, trouble=done.stderr.strip())
    told: Mapping[str, Value] = json.loads(done.stdout)
    found, asked, trouble = on_cluster.judged(head.folder, told["environment"], told["manifests"], folder)
    outcome = Outcome(title=file.title, path=file.path, violations=found, rules=asked, trouble=trouble)
    if unchanged:
        return outcome
    before = _told(head, base, file) if base else {}
    old = before.get("manifests")
    return replace(
        outcome,
        steps=on_cluster.steps(old or {}, told["manifests"]),
        plan=changes(before["plan"], told["plan"]) if old else (),
        outputs=changes(before["outputs"], told["outputs"]) if old else (),
        note="" if old else _NEW if base is None else _ELSEWHERE if before else _NOT_BEFORE,
    )


def _told(head: Tree, tree: Tree, file: StackFile) -> Mapping[str, Value]:
    """What a tree's own code plans; nothing where it cannot say, as the preview tells why."""
    done = _tell(head, tree, file)
    told: Mapping[str, Value] = json.loads(done.stdout) if done.returncode == 0 else {}
    return told


def _tell(head: Tree, tree: Tree, file: StackFile) -> "subprocess.CompletedProcess[str]":
    script = Path(__file__).resolve().parent / "tell_plan.py"
    return subprocess.run(
        [head.folder / ".venv" / "bin" / "python", "-P", script, file.path, file.stack],
        cwd=tree.folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )
