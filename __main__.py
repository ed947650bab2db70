"""Deploys the stack that `Pulumi.<stack>.yaml` describes."""

import sys
from pathlib import Path

import pulumi

from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.errors import SettingsError
from components.stack_file import settings_from_pulumi


def main() -> None:
    """Load the settings, build the deployment, export its outputs."""
    stack = pulumi.get_stack()
    project = Path(__file__).resolve().parent
    try:
        settings = settings_from_pulumi(
            pulumi.runtime.get_config_env(), pulumi.runtime.get_config_secret_keys_env(), stack, project
        )
    except SettingsError as error:
        pulumi.log.error(str(error))
        sys.exit(1)
    deployment = ServingDeployment(
        "serving", ServingDeploymentArgs(settings=settings, stack=stack, project_folder=str(project))
    )
    for name, value in deployment.outputs.model_dump().items():
        pulumi.export(name, value)


main()
