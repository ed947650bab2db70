"""TfServingInstance: one TensorFlow Serving process that owns exactly one slot."""

from dataclasses import dataclass

import pulumi

from components import flags
from components.batching import BatchingConfig
from components.container import Attachment, ContainerArgs, Health, make_container
from components.model_config import models_config
from components.monitoring import monitoring_config
from components.plan import GRPC_PORT, REST_PORT, InstancePlan
from components.probes import PROBE_TIMEOUT_S, http_probe, model_paths


@dataclass(frozen=True, kw_only=True)
class TfServingInstanceArgs:
    """`plan` is plain; `network` is the name of the node's serving network, `batching` its pool's.

    `follows` is the instance that must be up again before this one is touched, `image` the pull of its image:
    both are only waited for.
    """

    plan: InstancePlan
    network: pulumi.Input[str]
    batching: BatchingConfig | None = None
    follows: pulumi.Resource | None = None
    image: pulumi.Resource | None = None


class TfServingInstance(pulumi.ComponentResource):
    """A server pinned to one GPU, its CPUs and a fixed address on the node's private network.

    Needs the node's Docker provider in `opts.providers`. Outputs: `name`; `rest_target` and `grpc_target`,
    the `address:port` that Envoy uses; `gpus`, UUIDs. All are known before the container exists.
    """

    name: pulumi.Output[str]
    rest_target: pulumi.Output[str]
    grpc_target: pulumi.Output[str]
    gpus: pulumi.Output[list[str]]

    def __init__(
        self, name: str, args: TfServingInstanceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("tf-serving:tf_serving:TfServingInstance", name, None, opts)
        plan = args.plan
        make_container(
            f"{name}-server",
            _container(plan, args.network, args.batching),
            parent=self,
            depends_on=[waited for waited in (args.follows, args.image) if waited],
        )
        self.name = pulumi.Output.from_input(plan.name)
        self.rest_target = pulumi.Output.from_input(f"{plan.address}:{REST_PORT}")
        self.grpc_target = pulumi.Output.from_input(f"{plan.address}:{GRPC_PORT}")
        self.gpus = pulumi.Output.from_input([slot.uuid for slot in plan.slots])
        self.register_outputs(
            {
                "name": self.name,
                "rest_target": self.rest_target,
                "grpc_target": self.grpc_target,
                "gpus": self.gpus,
            }
        )


def _container(
    plan: InstancePlan, network: pulumi.Input[str], batching: BatchingConfig | None
) -> ContainerArgs:
    files: dict[str, pulumi.Input[str]] = {
        flags.MODELS_CONFIG: models_config(plan.models),
        flags.MONITORING_CONFIG: monitoring_config(),
    }
    if batching is not None:
        files[flags.BATCHING_CONFIG] = batching.text
    return ContainerArgs(
        name=plan.container,
        image=plan.image,
        # Not the image's script: bash would be the parent of the server and swallow SIGTERM.
        entrypoint=flags.BINARY,
        arguments=flags.server_arguments(plan),
        environment=flags.server_environment(plan),
        user="0:0",
        files=files,
        mounts={model.target: model.source for model in plan.models},
        attachments=[Attachment(network=network, address=str(plan.address))],
        gpus=[slot.uuid for slot in plan.slots],
        cpus=plan.cpus,
        memory_mib=plan.memory.container_mib,
        shm_mib=plan.memory.shm_mib,
        health=Health(
            probe=http_probe(REST_PORT, model_paths([model.name for model in plan.models])),
            interval_s=plan.rollout.health_interval_s,
            timeout_s=PROBE_TIMEOUT_S * len(plan.models) + PROBE_TIMEOUT_S,
            patience_s=plan.load_timeout_s,
        ),
        stop_timeout_s=plan.rollout.stop_timeout_s,
        labels=plan.labels,
    )
