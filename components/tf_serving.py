"""TfServingInstance: one TensorFlow Serving process that owns exactly one slot."""

from dataclasses import dataclass

import pulumi

from components import flags, server_files
from components.container import (
    Attachment,
    ContainerArgs,
    Health,
    VolumeMount,
    make_container,
    replacing_digest,
)
from components.drain import Drain, drain_container
from components.plan import InstancePlan
from components.probes import PROBE_TIMEOUT_S, serving_probe
from components.server_spec import GRPC_PORT, REST_PORT


@dataclass(frozen=True, kw_only=True)
class TfServingInstanceArgs:
    """`plan` is plain; `network` is the name of the node's serving network.

    `follows` is the instance that must be up again before this one is touched, `image` the pull of its image,
    `config` what puts its files (`server_files.py`) into the volume that the plan names: all are only waited
    for. With `drain` the node's Envoy sends nothing to it any more before it is replaced.
    """

    plan: InstancePlan
    network: pulumi.Input[str]
    config: pulumi.Resource | None = None
    follows: pulumi.Resource | None = None
    image: pulumi.Resource | None = None
    drain: Drain | None = None


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
        server = _container(plan, args.network)
        # Not an output: what the containers of this instance are replaced by.
        self.digest = replacing_digest(server)
        files = [waited for waited in (args.image, args.config) if waited]
        before = [*files, *([args.follows] if args.follows else [])]
        if args.drain:
            drain = make_container(
                f"{name}-drain",
                drain_container(plan, args.drain.network, self.digest),
                parent=self,
                depends_on=[*before, args.drain.script],
            )
            before = [*files, drain]
        make_container(f"{name}-server", server, parent=self, depends_on=before)
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


def _container(plan: InstancePlan, network: pulumi.Input[str]) -> ContainerArgs:
    return ContainerArgs(
        name=plan.container,
        image=plan.image,
        # Not the image's script: bash would be the parent of the server and swallow SIGTERM.
        entrypoint=flags.BINARY,
        arguments=flags.server_arguments(plan),
        environment=flags.server_environment(plan),
        user="0:0",
        mounts=dict(plan.model_mounts),
        volumes={server_files.FOLDER: VolumeMount(volume=plan.config_volume)},
        attachments=[Attachment(network=network, address=str(plan.address))],
        gpus=[slot.uuid for slot in plan.slots],
        cpus=plan.cpus,
        memory_mib=plan.memory.container_mib,
        shm_mib=plan.memory.shm_mib,
        health=Health(
            probe=serving_probe(REST_PORT, server_files.path(server_files.serving_file(plan))),
            interval_s=plan.rollout.health_interval_s,
            # Models that answer do so at once; the first that does not ends the probe.
            timeout_s=3 * PROBE_TIMEOUT_S,
            patience_s=plan.load_timeout_s,
        ),
        stop_timeout_s=plan.rollout.stop_timeout_s,
        labels=plan.labels,
    )
