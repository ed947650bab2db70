"""Stacks on Kubernetes: the manifests that each tree's own code renders, object by object.

The provider is not asked, since it takes long to build. What it would replace is restated here from its list
(pulumi-kubernetes, provider/pkg/provider/diff.go), with ConfigMaps mutable, as our provider has them.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from review.changes import changes
from review.events import Step, Value, Violation
from review.trees import POLICIES

Manifests = Mapping[str, Mapping[str, Value]]
"""Manifests by their name in Pulumi."""
_FIXED = ("apiVersion", "kind", "metadata.name", "metadata.namespace")
_FIXED_OF_KIND: Mapping[str, Sequence[str]] = {
    "Deployment": ("spec.selector",),
    "StatefulSet": (
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "Service": ("spec.clusterIP",),
}


def steps(old: Manifests, new: Manifests) -> list[Step]:
    """What a change of manifests does to each object, in the order in which they are made."""
    return list(_steps(old, new))


def _steps(old: Manifests, new: Manifests) -> Iterator[Step]:
    for key, manifest in new.items():
        before = old.get(key)
        if before is None:
            yield _step("create", key, {}, manifest)
        elif differing := [change.path for change in changes(before, manifest)]:
            fixed = (*_FIXED, *_FIXED_OF_KIND.get(manifest["kind"], ()))
            because = tuple(path for path in differing if path.startswith(fixed))
            yield _step("replace" if because else "update", key, before, manifest, because)
    for key, manifest in old.items():
        if key not in new:
            yield _step("delete", key, manifest, {})


def _step(
    operation: str,
    key: str,
    old: Mapping[str, Value],
    new: Mapping[str, Value],
    because: Sequence[str] = (),
) -> Step:
    kind = str((new or old)["kind"])
    return Step(
        operation=operation, name=key, type=f"kubernetes:{kind}", old=old, new=new, because=tuple(because)
    )


def judged(tree: Path, environment: str, found: Manifests, folder: Path) -> tuple[list[Violation], int, str]:
    """What a tree's policies say of manifests, how many rules were asked, and why they could not be.

    The manifests are written to `folder`. Without a pack nothing is said.
    """
    pack = tree / POLICIES
    levels = pack / "config" / f"{environment}.json"
    if not levels.exists():
        return [], 0, ""
    folder.mkdir(parents=True)
    for key, manifest in found.items():
        (folder / f"{key}.json").write_text(json.dumps(manifest), encoding="utf-8")
    words = ["--environment", environment, "--config", str(levels), "--json", "manifests", str(folder)]
    done = subprocess.run(
        [str(pack / ".venv" / "bin" / "python"), "-m", "audit", *words],
        cwd=tree,
        env={"PYTHONPATH": str(pack), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        rows = json.loads(done.stdout)
    except ValueError:
        return [], 0, f"The policies could not judge it:\n{(done.stderr or done.stdout).strip()}"
    asked = [one for one in json.loads(levels.read_text()).values() if _level(one) != "disabled"]
    said = {
        Violation(row["level"], row["rule"], row["resource"], f"{row['value']}\nFix: {row['fix']}")
        for row in rows
    }
    return sorted(said), len(asked), ""


def _level(said: Value) -> str:
    return str(said if isinstance(said, str) else said.get("enforcementLevel", ""))
