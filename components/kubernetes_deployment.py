"""KubernetesDeployment: a whole stack on a cluster, or as manifests in a folder."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pulumi

from components.contract import StackOutputs
from components.kubernetes_manifests import NAMESPACE_KEY, objects
from components.kubernetes_object import Object
from components.kubernetes_outputs import kubernetes_outputs
from components.kubernetes_plan import KubernetesPlan, make_kubernetes_plan
from components.kubernetes_settings import KubernetesSettings

_PACKAGE = "pulumi-kubernetes"


@dataclass(frozen=True, kw_only=True)
class KubernetesDeploymentArgs:
    """`stack` goes into the names of objects; a kubeconfig's `./…` is relative to `project_folder`."""

    settings: KubernetesSettings
    stack: str
    project_folder: str


class KubernetesDeployment(pulumi.ComponentResource):
    """Model servers and their front end, in one namespace of a cluster or in a folder for GitOps.

    Makes a provider of its own, which reads neither KUBECONFIG nor anybody's current context. `outputs` is
    the typed contract, the same values that are registered.
    """

    outputs: StackOutputs

    def __init__(
        self, name: str, args: KubernetesDeploymentArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("tf-serving:kubernetes_deployment:KubernetesDeployment", name, None, opts)
        plan = make_kubernetes_plan(args.settings, stack=args.stack)
        provider = self._cluster(name, plan, args.project_folder)
        made: dict[str, pulumi.Resource] = {}
        for each in objects(plan):
            made[each.key] = self._make(each, provider, made)
        self.outputs = kubernetes_outputs(args.settings, plan)
        self.register_outputs(self.outputs.model_dump())

    def _cluster(self, name: str, plan: KubernetesPlan, project_folder: str) -> pulumi.ProviderResource:
        # Registered by its name: the package's own class reads KUBECONFIG where it is given none, and is slow
        # to import.
        cluster = plan.cluster
        place = (
            # As it is written: another folder, such as that of another checkout, is another provider.
            {"renderYamlToDirectory": cluster.render_to}
            if cluster.render_to
            else {"kubeconfig": _file(cluster.kubeconfig or "", project_folder), "context": cluster.context}
        )
        return pulumi.ProviderResource(
            "kubernetes",
            f"{name}-kubernetes",
            # Mutable: a changed ConfigMap of one name is changed in place, and what runs reads it again. With
            # a namespace of its own, the provider cannot lose a rendered file either.
            {**place, "namespace": plan.namespace, "enableConfigMapMutable": "true"},
            pulumi.ResourceOptions(parent=self, version=version(_PACKAGE)),
        )

    def _make(
        self, each: Object, provider: pulumi.ProviderResource, made: dict[str, pulumi.Resource]
    ) -> pulumi.CustomResource:
        waited = [made[key] for key in each.after]
        if NAMESPACE_KEY in made:
            waited.append(made[NAMESPACE_KEY])
        timeouts = (
            pulumi.CustomTimeouts(
                create=f"{each.create_timeout_s}s",
                update=f"{each.update_timeout_s or each.create_timeout_s}s",
            )
            if each.create_timeout_s
            else None
        )
        group = each.api_version if "/" in each.api_version else f"core/{each.api_version}"
        return pulumi.CustomResource(
            f"kubernetes:{group}:{each.kind}",
            each.key,
            {**each.manifest},
            pulumi.ResourceOptions(
                parent=self, provider=provider, depends_on=waited, custom_timeouts=timeouts
            ),
        )


def _file(path: str, project_folder: str) -> str:
    """Where a file is: `~` is home, anything else relative to the project."""
    return str(Path(project_folder) / Path(path).expanduser())
