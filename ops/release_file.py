"""The stack file of a release: what it says, and the edits of `make release`; comments and layout stay.

`read` and what edits can be called without the virtual environment, in which they have the file read
(`.venv/bin/python -m ops.release_file STACK read`).
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops import paths, venv

if TYPE_CHECKING:
    from components.settings import Settings

_READ, _EDIT = "read", "edit"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model of a pool: the versions that are listed (None: it lists none), and its folder on each node."""

    name: str
    versions: tuple[int, ...] | None
    folders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Release:
    """What the stack file says of a release that is under way."""

    model: str
    version: int
    moved: int


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool as far as a release needs it; `instances`: name and node, in the order of being moved."""

    name: str
    models: tuple[Model, ...]
    instances: tuple[tuple[str, str], ...]
    release: Release | None

    def model(self, name: str) -> Model:
        """The model of this name."""
        return next(model for model in self.models if model.name == name)


def read(stack: str) -> tuple[str, dict[str, Pool]]:
    """The target of a stack and its pools by name. Raises UserError for a bad stack file."""
    said = json.loads(_in_environment(stack, _READ))
    return said["target"], {one["name"]: _pool(one) for one in said["pools"]}


def begin(stack: str, pool: Pool, release: Release) -> None:
    """Write down that a release begins, after a look whether its end could be written too."""
    what = {"model": release.model, "version": release.version, "moved": 0}
    _in_environment(stack, _EDIT, pool.name, "finish", json.dumps({**what, "dry": True}))
    _in_environment(stack, _EDIT, pool.name, "begin", json.dumps(what))


def moved(stack: str, pool: Pool, count: int) -> None:
    """Write down how many instances are to have the new version."""
    _in_environment(stack, _EDIT, pool.name, "moved", json.dumps({"moved": count}))


def drop(stack: str, pool: Pool) -> None:
    """Take the release out: the pool is what it was."""
    _in_environment(stack, _EDIT, pool.name, "drop", "{}")


def finish(stack: str, pool: Pool, release: Release) -> None:
    """Take the release out: the pool has the new version, and replaces servers for the next one."""
    what = {"model": release.model, "version": release.version}
    _in_environment(stack, _EDIT, pool.name, "finish", json.dumps(what))


def _pool(said: Mapping[str, Any]) -> Pool:
    models = tuple(
        Model(
            name=one["name"],
            versions=None if one["versions"] is None else tuple(one["versions"]),
            folders=tuple(one["folders"]),
        )
        for one in said["models"]
    )
    return Pool(
        name=said["name"],
        models=models,
        instances=tuple((name, node) for name, node in said["instances"]),
        release=Release(**said["release"]) if said["release"] else None,
    )


def _in_environment(stack: str, *arguments: str) -> str:
    return venv.printed("ops.release_file", stack, *arguments)


def described(settings: "Settings", stack: str, folder: Path) -> dict[str, object]:
    """What `read` reads, from settings."""
    if settings.target != "docker":
        return {"target": settings.target, "pools": []}
    from components.plan import make_plan
    from components.slots import slots_of

    plan = make_plan(settings, stack=stack, project_folder=str(folder))
    slots = {node.name: slots_of(node) for node in settings.nodes}
    pools = []
    for pool in settings.pools:
        placed = {(one.node, one.slot): one for one in plan.instances if one.pool == pool.name}
        instances = [
            placed[group.node, slots[group.node][key]]
            for group in pool.slots
            for key in (group.gpus[:1] if pool.all_gpus else group.gpus)
        ]
        pools.append(
            {
                "name": pool.name,
                "models": [
                    {
                        "name": model.name,
                        "versions": model.versions.specific,
                        "folders": sorted(
                            {
                                own.source
                                for one in instances
                                for own in one.models
                                if own.name in model.served_names
                            }
                        ),
                    }
                    for model in pool.models
                ],
                "instances": [(one.name, one.node) for one in instances],
                "release": pool.release.model_dump() if pool.release else None,
            }
        )
    return {"target": settings.target, "pools": pools}


def changes(config: Mapping[str, Any], pool: str, kind: str, said: Mapping[str, Any]) -> dict[Any, object]:
    """The edits of a stack file for a step of a release, by their places."""
    from components.stack_edit import REMOVED

    key = next(key for key in ("tf-serving:pools", "pools") if key in config)
    position = [one["name"] for one in config[key]].index(pool)
    own, place = config[key][position], ("config", key, position)
    if kind == "begin":
        return {(*place, "release"): dict(said)}
    if kind == "moved":
        return {(*place, "release", "moved"): said["moved"]}
    gone: dict[Any, object] = {(*place, "release"): REMOVED} if "release" in own else {}
    if kind == "drop":
        return gone
    models = own.get("models") or []
    m = next((m for m, model in enumerate(models) if model["name"] == said["model"]), 0)
    model = (*place, "models", m)
    labels = {
        (*model, "labels", label): said["version"]
        for label in (models[m] if models else {}).get("labels", {})
    }
    return {
        **gone,
        (*model, "versions", "specific", 0): said["version"],
        **labels,
        **({} if own.get("new_versions") == "replace" else {(*place, "new_versions"): "replace"}),
    }


def edit(file: Path, pool: str, kind: str, said: dict[str, Any]) -> None:
    """Make a step's edits in a stack file, which must be a good one afterwards too. `dry`: only look."""
    from components.errors import SettingsError
    from components.stack_edit import edited
    from components.stack_file import load_stack_file
    from components.stack_yaml import read_yaml

    dry = said.pop("dry", False)
    with file.open(encoding="utf-8", newline="") as handle:
        text = handle.read()
    document: Any = read_yaml(text.encode())
    done = edited(text, changes(document["config"], pool, kind, said))
    written = file.with_name(f".{file.name}.new")
    try:
        with written.open("w", encoding="utf-8", newline="") as handle:
            handle.write(done)
        written.chmod(file.stat().st_mode & 0o777)
        load_stack_file(written)
        if not dry:
            written.replace(file)
    except SettingsError as error:
        raise SettingsError(file.name, error.problems) from None
    finally:
        written.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    """`STACK read`, or `STACK edit POOL KIND WHAT`."""
    from components.errors import SettingsError
    from components.stack_edit import NotEditedError
    from components.stack_file import load_stack_file

    stack, what, *more = arguments
    file = paths.stack_file(stack)
    try:
        if what == _READ:
            print(json.dumps(described(load_stack_file(file), stack, paths.ROOT)))
        else:
            pool, kind, said = more
            edit(file, pool, kind, json.loads(said))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    except NotEditedError as error:
        print(f"{file.name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
