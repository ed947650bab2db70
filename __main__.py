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
    try:
        settings = settings_from_pulumi(pulumi.runtime.get_config_env(), stack)
    except SettingsError as error:
        pulumi.log.error(str(error))
        sys.exit(1)
    project = str(Path(__file__).resolve().parent)
    deployment = ServingDeployment(
        "serving", ServingDeploymentArgs(settings=settings, stack=stack, project_folder=project)
    )
    for name, value in deployment.outputs.model_dump().items():
        pulumi.export(name, value)


main()
