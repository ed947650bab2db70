"""Deploys a stack on its target. What only the other target needs is not imported: it would be waited for."""

from components.contract import StackOutputs
from components.settings import Settings


def deploy(settings: Settings, *, stack: str, project_folder: str) -> StackOutputs:
    """Make everything of a stack, inside a Pulumi program; the outputs are its contract with other teams.

    Raises SettingsError for a stack whose name its target cannot take.
    """
    if settings.target == "kubernetes":
        from components.kubernetes_deployment import KubernetesDeployment, KubernetesDeploymentArgs
        from components.kubernetes_settings import KubernetesSettings

        assert isinstance(settings, KubernetesSettings)  # noqa: S101 - the target says so
        on_cluster = KubernetesDeploymentArgs(settings=settings, stack=stack, project_folder=project_folder)
        return KubernetesDeployment("serving", on_cluster).outputs
    from components.deployment import ServingDeployment, ServingDeploymentArgs
    from components.envoy_secrets import read_secrets

    on_engines = ServingDeploymentArgs(
        settings=settings,
        stack=stack,
        project_folder=project_folder,
        secrets=read_secrets(settings.front_end),
    )
    return ServingDeployment("serving", on_engines).outputs
