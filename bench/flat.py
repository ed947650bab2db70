"""The same resources as a stack's, written out flat: what a program without components would be."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pulumi

from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.stack_file import load_settings
from tests.mock_engine import PROVIDER, Registered, run_program

PLAIN = "import flat  # noqa: F401\n"
"""The `__main__.py` of a flat program."""
TUNED = """import gc

gc.disable()
import asyncio
import pulumi
import flat


async def main():
    await asyncio.sleep(0)


pulumi.run(main)
"""
"""The same with what our own `__main__.py` does about its time."""
_HEAD = """import pulumi
import pulumi_docker as docker

made = {}


def options(provider, depends_on, **more):
    return pulumi.ResourceOptions(
        provider=made[provider] if provider else None, depends_on=[made[name] for name in depends_on], **more
    )


"""


def flat_program(config: Mapping[str, object], stack: str) -> str:
    """Python text with one literal call a resource: every leaf resource of the stack, and no component.

    It is derived from what the program registers, so that it has the same resources, inputs and dependencies.
    Nested inputs are plain dicts, which Pulumi takes as well as typed classes. It is a module, as Python
    keeps the bytecode of modules alone.
    """
    engine = run_program(lambda: deploy(config, stack))
    # Whatever is no component of ours: the flat program follows the stack for ever.
    leaves = [resource for resource in engine.resources if not resource.type.startswith("tf-serving:")]
    names = {resource.urn: resource.name for resource in leaves}
    return _HEAD + "\n".join(_call(resource, names) for resource in leaves) + "\n"


def count_leaves(program: str) -> int:
    """Resources of a flat program."""
    return len(re.findall(r"^made\[", program, re.MULTILINE))


def deploy(config: Mapping[str, object], stack: str) -> Mapping[str, object]:
    """The program on a stack's settings, to be run on a mock engine."""
    settings = load_settings(config, f"Pulumi.{stack}.yaml")
    args = ServingDeploymentArgs(settings=settings, stack=stack, project_folder="/srv/project")
    ServingDeployment("serving", args)
    return {"done": pulumi.Output.from_input(True)}


def _call(resource: Registered, names: Mapping[str, str]) -> str:
    decoded = resource.type == PROVIDER  # the SDK hands a provider's lists over as JSON
    inputs = {key: _decoded(value) if decoded else value for key, value in resource.inputs.items()}
    arguments = ", ".join(f"{snake(key)}={_literal(value)!r}" for key, value in inputs.items())
    provider = names.get(resource.provider.rpartition("::")[0])
    depends_on = sorted({names[urn] for urn in resource.dependencies if urn in names} - {provider or ""})
    more = f", replace_on_changes={resource.replace_on_changes!r}" if resource.replace_on_changes else ""
    if resource.delete_before_replace:
        more += ", delete_before_replace=True"
    separator = ", " if arguments else ""
    kind = "Provider" if resource.type == PROVIDER else resource.type.rpartition(":")[2]
    made = f"docker.{kind}({resource.name!r}, {arguments}{separator}"
    return f"made[{resource.name!r}] = {made}opts=options({provider!r}, {depends_on!r}{more}))"


def _decoded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value[:1] in ("[", "{") else value


def _literal(value: Any) -> Any:
    if isinstance(value, dict):
        return {snake(key): _literal(item) for key, item in value.items()}
    if isinstance(value, float) and value.is_integer():  # numbers come back from the engine as floats
        return int(value)
    return [_literal(item) for item in value] if isinstance(value, list) else value


def snake(name: str) -> str:
    """A name of the API as Python writes it."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"_{match[1].lower()}", name)
