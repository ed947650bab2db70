"""The same resources as a stack's, written out flat: what a program without components would be."""

import re
from collections.abc import Mapping
from typing import Any

import pulumi

from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.stack_file import load_settings
from tests.mock_engine import PROVIDER, Registered, run_program

_CLASSES = {
    "docker:index/container:Container": "Container",
    "docker:index/network:Network": "Network",
    "docker:index/volume:Volume": "Volume",
    "docker:index/remoteImage:RemoteImage": "RemoteImage",
    PROVIDER: "Provider",
}
_HEAD = """import pulumi
import pulumi_docker as docker

made = {}


def options(provider, depends_on, **more):
    return pulumi.ResourceOptions(
        provider=made[provider] if provider else None, depends_on=[made[name] for name in depends_on], **more
    )


"""


def flat_program(config: Mapping[str, object], stack: str) -> str:
    """Python text with one literal call a resource: every leaf resource of the stack, and no component."""
    engine = run_program(lambda: _deploy(config, stack))
    leaves = [resource for resource in engine.resources if resource.type in _CLASSES]
    names = {resource.urn: resource.name for resource in leaves}
    return _HEAD + "\n".join(_call(resource, names) for resource in leaves) + "\n"


def count_leaves(program: str) -> int:
    """Resources of a flat program."""
    return len(re.findall(r"^made\[", program, re.MULTILINE))


def _deploy(config: Mapping[str, object], stack: str) -> Mapping[str, object]:
    settings = load_settings(config, f"Pulumi.{stack}.yaml")
    args = ServingDeploymentArgs(settings=settings, stack=stack, project_folder="/srv/project")
    ServingDeployment("serving", args)
    return {"done": pulumi.Output.from_input(True)}


def _call(resource: Registered, names: Mapping[str, str]) -> str:
    arguments = ", ".join(f"{_snake(key)}={_literal(value)!r}" for key, value in resource.inputs.items())
    provider = names.get(resource.provider.rpartition("::")[0])
    depends_on = sorted({names[urn] for urn in resource.dependencies if urn in names} - {provider or ""})
    more = f", replace_on_changes={resource.replace_on_changes!r}" if resource.replace_on_changes else ""
    separator = ", " if arguments else ""
    made = f"docker.{_CLASSES[resource.type]}({resource.name!r}, {arguments}{separator}"
    return f"made[{resource.name!r}] = {made}opts=options({provider!r}, {depends_on!r}{more}))"


def _literal(value: Any) -> Any:
    if isinstance(value, dict):
        return {_snake(key): _literal(item) for key, item in value.items()}
    if isinstance(value, float) and value.is_integer():  # numbers come back from the engine as floats
        return int(value)
    return [_literal(item) for item in value] if isinstance(value, list) else value


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"_{match[1].lower()}", name)
