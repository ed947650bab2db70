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

from components.errors import SettingsError
from components.stack_file import settings_from_pulumi
from components.targets import deploy


async def main() -> dict[str, object]:
    """Load the settings, build the deployment, return its outputs for export."""
    stack = pulumi.get_stack()
    project = Path(__file__).resolve().parent
    try:
        settings = settings_from_pulumi(
            pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env(), stack, project
        )
        outputs = deploy(settings, stack=stack, project_folder=str(project))
    except SettingsError as error:
        pulumi.log.error(str(error))
        sys.exit(1)
    # Lets every registration begin. The SDK then waits for one after the other; for those that have not begun
    # it would go through all outputs again each time that one is known: the square of the stack's size.
    await asyncio.sleep(0)
    return outputs.model_dump()


pulumi.run(main)
