"""Deploys the stack that `Pulumi.<stack>.yaml` describes."""
# ruff: noqa: E402 - the collector is off before the imports, which are half of what it would walk

import gc

# What a program registers stays until its end: there is nothing to collect, and looking for it is a tenth of
# the time.
gc.disable()

import asyncio
import sys
from pathlib import Path

import pulumi

from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.envoy_secrets import read_secrets
from components.errors import SettingsError
from components.stack_file import settings_from_pulumi


async def main() -> dict[str, object]:
    """Load the settings, build the deployment, return its outputs for export."""
    stack = pulumi.get_stack()
    project = Path(__file__).resolve().parent
    try:
        settings = settings_from_pulumi(
            pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env(), stack, project
        )
    except SettingsError as error:
        pulumi.log.error(str(error))
        sys.exit(1)
    args = ServingDeploymentArgs(
        settings=settings,
        stack=stack,
        project_folder=str(project),
        secrets=read_secrets(settings.front_end),
    )
    deployment = ServingDeployment("serving", args)
    # Lets every registration begin. The SDK then waits for one after the other; for those that have not begun
    # it would go through all outputs again each time that one is known: the square of the stack's size.
    await asyncio.sleep(0)
    return deployment.outputs.model_dump()


pulumi.run(main)
