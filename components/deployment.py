"""ServingDeployment: a whole stack, composed from the other components."""

from dataclasses import dataclass, field

import pulumi

from components import server_files
from components.batching import BatchingConfig, BatchingConfigArgs
from components.config_plan import ConfigPlan
from components.config_volume import ConfigVolume, ConfigVolumeArgs, PublishedFile
from components.container import Attachment
from components.drain import Drain
from components.envoy import EnvoyFrontEnd, EnvoyFrontEndArgs
from components.envoy_secrets import Secrets
from components.gpu_node import GpuNode, GpuNodeArgs
from components.outputs import StackOutputs, stack_outputs
from components.plan import NodePlan, Plan, make_plan
from components.settings import Settings
from components.tf_serving import TfServingInstance, TfServingInstanceArgs

_PATIENCE_BESIDE_LOADING_S = 60


@dataclass(frozen=True, kw_only=True)
class ServingDeploymentArgs:
    """`stack` goes into the names of containers; `project_folder` is what `./…` paths are relative to.

    `secrets` are those that the settings name (`read_secrets`).
    """

    settings: Settings
    stack: str
    project_folder: str
    secrets: Secrets = field(default_factory=dict)


class ServingDeployment(pulumi.ComponentResource):
    """Nodes, instances and front ends of a stack.

    `outputs` is the typed contract (`outputs.py`), the same values that are registered.
    """

    outputs: StackOutputs

    def __init__(
        self, name: str, args: ServingDeploymentArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("tf-serving:deployment:ServingDeployment", name, None, opts)
        plan = make_plan(args.settings, stack=args.stack, project_folder=args.project_folder)
        self._batching = {
            pool.name: BatchingConfig(
                f"{pool.name}-batching",
                BatchingConfigArgs(batching=pool.batching),
                self._options(None, f"{pool.renamed_from}-batching" if pool.renamed_from else None),
            )
            for pool in args.settings.pools
            if pool.batching
        }
        self._nodes = {
            node.name: GpuNode(node.name, GpuNodeArgs(plan=node), self._options(None, node.spec.renamed_from))
            for node in plan.nodes
        }
        self._front_ends = {node.name: self._front_end(node, args.secrets) for node in plan.nodes}
        self._configs = {
            (config.node, config.pool): self._config(config, node)
            for node in plan.nodes
            for config in node.configs
        }
        self._placed: dict[str | None, TfServingInstance] = {}
        self._place_instances(plan)
        for node in plan.nodes:
            placed = [self._placed[instance.name] for instance in node.instances]
            self._front_ends[node.name].accept(placed, [instance.digest for instance in placed])
        self.outputs = stack_outputs(args.settings, plan)
        self.register_outputs(self.outputs.model_dump())

    def _front_end(self, node: NodePlan, secrets: Secrets) -> EnvoyFrontEnd:
        gpu_node = self._nodes[node.name]
        return EnvoyFrontEnd(
            node.front_end.name,
            EnvoyFrontEndArgs(
                plan=node.front_end,
                serving_network=gpu_node.serving_network,
                front_network=gpu_node.front_network,
                address=node.spec.address,
                secrets=secrets,
                image=gpu_node.images["envoy"],
            ),
            self._options(node.name, node.front_end.former_name),
        )

    def _config(self, plan: ConfigPlan, node: NodePlan) -> ConfigVolume:
        instances = node.instances_of(plan.pool)
        instance = instances[0]
        lists = server_files.by_list(instances)
        texts: dict[str, pulumi.Input[str]] = {}
        for readers in lists.values():
            texts |= server_files.server_files(readers[0])
        if batching := server_files.batching_file(instance):
            texts[batching] = self._batching[plan.pool].text
        return ConfigVolume(
            plan.name,
            ConfigVolumeArgs(
                plan=plan,
                files={name: PublishedFile(text=text) for name, text in texts.items()},
                later=[
                    name
                    for one, *_ in lists.values()
                    for name in (server_files.models_file(one), server_files.serving_file(one))
                ],
                then=server_files.models_script(),
                then_files={"settings": server_files.models_settings(instances)},
                attachments=[
                    Attachment(network=self._nodes[plan.node].serving_network, address=str(plan.address))
                ],
                mounts=dict(instance.model_mounts),
                patience_s=instance.load_timeout_s + _PATIENCE_BESIDE_LOADING_S,
                image=self._nodes[plan.node].images["server"],
                # A model that goes leaves the servers with this: by then Envoy must not ask for it any more.
                follows=self._front_ends[plan.node].staged,
            ),
            self._options(plan.node, plan.former_name),
        )

    def _place_instances(self, plan: Plan) -> None:
        placed = self._placed
        for instance in plan.in_rollout_order():
            placed[instance.name] = TfServingInstance(
                instance.name,
                TfServingInstanceArgs(
                    plan=instance,
                    network=self._nodes[instance.node].serving_network,
                    image=self._nodes[instance.node].images["server"],
                    config=self._configs[instance.node, instance.pool].publisher,
                    follows=placed.get(instance.follows),
                    drain=Drain(
                        network=self._nodes[instance.node].front_network,
                        script=self._front_ends[instance.node].staged,
                    ),
                ),
                self._options(instance.node, *instance.former_names),
            )

    def _options(self, node: str | None, *former: str | None) -> pulumi.ResourceOptions:
        """Options of a part of the stack: the node that it is placed on, the names that it may have had."""
        return pulumi.ResourceOptions(
            parent=self,
            providers={"docker": self._nodes[node].provider} if node else None,
            aliases=[pulumi.Alias(name=name) for name in former if name] or None,
        )
