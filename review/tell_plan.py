"""Prints the plan of a stack file by the code of the tree that it is started in, as JSON.

Run as a script with a tree as its folder: `python -P …/tell_plan.py Pulumi.prod.yaml prod`.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

# The same for both trees: paths below the project are no difference.
_PROJECT = "/project"


def main(path: str, stack: str) -> None:
    """Print `{"environment": …, "plan": …}`, on Kubernetes also `manifests` and `outputs`.

    Anything wrong ends in a non-zero exit code, a bad stack file with what is wrong in it.
    """
    tree = Path.cwd()
    sys.path.insert(0, str(tree))
    from components.errors import SettingsError
    from components.plan import make_plan
    from components.stack_file import load_settings, own_values
    from components.stack_yaml import read_yaml

    document = read_yaml((tree / path).read_bytes())
    if not isinstance(document, dict):
        sys.exit(f"{path} holds no settings")
    try:
        settings = load_settings(own_values(document["config"]), path, tree)
    except SettingsError as error:
        sys.exit(str(error))
    told: dict[str, object] = {"environment": settings.environment}
    if getattr(settings, "target", "docker") == "kubernetes":
        told |= _on_kubernetes(settings, stack)
    else:
        told["plan"] = dataclasses.asdict(make_plan(settings, stack=stack, project_folder=_PROJECT))
    print(json.dumps(told, default=_plain))


def _on_kubernetes(settings: Any, stack: str) -> dict[str, object]:
    from components.kubernetes_manifests import objects
    from components.kubernetes_outputs import kubernetes_outputs
    from components.kubernetes_plan import make_kubernetes_plan

    plan = make_kubernetes_plan(settings, stack=stack)
    return {
        "plan": dataclasses.asdict(plan),
        "outputs": kubernetes_outputs(settings, plan).model_dump(),
        "manifests": {each.key: each.manifest for each in objects(plan)},
    }


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump else str(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
