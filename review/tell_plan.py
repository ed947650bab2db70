"""Prints the plan of a stack file by the code of the tree that it is started in, as JSON.

Run as a script with a tree as its folder: `python -P …/tell_plan.py Pulumi.prod.yaml prod`.
"""

import dataclasses
import json
import sys
from pathlib import Path

# The same for both trees: paths below the project are no difference.
_PROJECT = "/project"


def main(path: str, stack: str) -> None:
    """Print `{"environment": …, "plan": …}`; anything wrong ends in a non-zero exit code."""
    tree = Path.cwd()
    sys.path.insert(0, str(tree))
    from components.plan import make_plan
    from components.stack_file import load_settings, own_values
    from components.stack_yaml import read_yaml

    document = read_yaml((tree / path).read_bytes())
    if not isinstance(document, dict):
        sys.exit(f"{path} holds no settings")
    settings = load_settings(own_values(document["config"]), path, tree)
    plan = make_plan(settings, stack=stack, project_folder=_PROJECT)
    told = {"environment": settings.environment, "plan": dataclasses.asdict(plan)}
    print(json.dumps(told, default=_plain))


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump else str(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
