"""What the components make of a stack file, as policies are shown it."""

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.runtime import rpc

from components.deployment import ServingDeployment, ServingDeploymentArgs
from tests import stacks
from tests.mock_engine import CONTAINER, Deploy
from tests.policies.good import Declared


def containers(
    deploy: Deploy, config: stacks.Config, secrets: Mapping[str, str] | None = None
) -> list[Declared]:
    """Every container of a stack on Docker Engines."""

    def program() -> None:
        values = {name: pulumi.Output.secret(text) for name, text in (secrets or {}).items()}
        args = ServingDeploymentArgs(
            settings=stacks.settings(config),
            stack="test",
            project_folder=stacks.PROJECT_FOLDER,
            secrets=values,
        )
        ServingDeployment("serving", args)

    return [
        Declared(type=one.type, name=one.name, props=_known(one.inputs))
        for one in deploy(program).of_type(CONTAINER)
    ]


def _known(value: Any) -> Any:
    """Values in place of secrets, as policies read them."""
    if rpc.is_rpc_secret(value):
        return _known(rpc.unwrap_rpc_secret(value))
    if isinstance(value, dict):
        return {name: _known(each) for name, each in value.items()}
    return [_known(each) for each in value] if isinstance(value, list) else value
