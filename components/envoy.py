"""EnvoyFrontEnd: one node's Envoy, the only thing there that publishes ports."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_docker as docker

from components.config_volume import ConfigVolume, publisher_container
from components.container import Attachment, ContainerArgs, Health, VolumeMount, make_container
from components.envoy_config import CONFIG_FOLDER
from components.envoy_delivery import Delivery
from components.envoy_run import ENVOY_USER, RUN_SCRIPT
from components.envoy_secrets import Secrets
from components.plan import FrontEndPlan
from components.probes import PROBE_TIMEOUT_S, http_probe
from components.settings import ADMIN_PORT, LOOPBACK

_USER = f"{ENVOY_USER}:{ENVOY_USER}"
_START_PATIENCE_S = 60


@dataclass(frozen=True, kw_only=True)
class EnvoyFrontEndArgs:
    """`plan` is plain; the networks are the node's, `address` is what clients use to reach the node.

    `secrets` are those that the plan's settings name. `image` is the pull of its image, which is only waited
    for.
    """

    plan: FrontEndPlan
    serving_network: pulumi.Input[str]
    front_network: pulumi.Input[str]
    address: str
    secrets: Secrets = field(default_factory=dict)
    image: pulumi.Resource | None = None


class EnvoyFrontEnd(pulumi.ComponentResource):
    """Envoy in front of a node's instances.

    Its files and its binary are on a volume. Other files reach it while it runs; where its image changes, or
    what it only reads as it starts, the next Envoy takes over from it within the container, whose own image
    stays the one that it was made from. Only other ports, addresses or labels replace the container. It is
    there as soon as it can be, whatever becomes of the instances; what is new it gets once `accept` has all
    that it leads to.

    `staged` is what tries its files and stages them. Servers are changed after that: see `ask_less` in
    `data/envoy_files.sh`.

    Needs the node's Docker provider in `opts.providers`. Outputs: `rest_url`, `grpc_target` and
    `metrics_target` (on the node's loopback), known before the container exists.
    """

    rest_url: pulumi.Output[str]
    grpc_target: pulumi.Output[str]
    metrics_target: pulumi.Output[str]
    staged: pulumi.Resource

    def __init__(
        self, name: str, args: EnvoyFrontEndArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("tf-serving:envoy:EnvoyFrontEnd", name, None, opts)
        spec = args.plan.spec
        self._name = name
        self._delivery = Delivery(
            plan=args.plan, network=args.serving_network, secrets=args.secrets, image=args.image
        )
        image = [args.image] if args.image else []
        files = ConfigVolume(
            f"{name}-config", self._delivery.publisher(), pulumi.ResourceOptions(parent=self)
        )
        self.staged = files.publisher
        self._serves = [
            self.staged,
            make_container(f"{name}-proxy", _container(args), parent=self, depends_on=[self.staged, *image]),
            *image,
        ]
        self.rest_url = pulumi.Output.from_input(spec.rest_url(args.address))
        self.grpc_target = pulumi.Output.from_input(spec.grpc_target(args.address))
        self.metrics_target = pulumi.Output.from_input(spec.metrics_address())
        self.register_outputs(
            {
                "rest_url": self.rest_url,
                "grpc_target": self.grpc_target,
                "metrics_target": self.metrics_target,
            }
        )

    def accept(self, instances: Sequence[pulumi.Resource], replaced_by: Sequence[str] = ()) -> None:
        """Have Envoy take its files once these, what they lead to, are well.

        `replaced_by` are digests of what replaces them.
        """
        make_container(
            f"{self._name}-acceptance",
            publisher_container(self._delivery.acceptance(replaced_by)),
            parent=self,
            depends_on=[*self._serves, *instances],
        )


def _container(args: EnvoyFrontEndArgs) -> ContainerArgs:
    plan = args.plan
    return ContainerArgs(
        name=plan.container,
        image=plan.image,
        # Which Envoy, and with which arguments, is on the volume: another one takes over while clients ask.
        entrypoint="/bin/bash",
        arguments=(f"{CONFIG_FOLDER}/{RUN_SCRIPT}", CONFIG_FOLDER, str(ADMIN_PORT)),
        keeps=("image",),
        user=_USER,
        # Root owns what is there; Envoy's user can write into one folder of it, in which it says what runs.
        volumes={CONFIG_FOLDER: VolumeMount(volume=plan.config.volume, writable=True)},
        attachments=[
            Attachment(network=args.serving_network, address=str(plan.serving_address)),
            Attachment(network=args.front_network, address=str(plan.front_address)),
        ],
        memory_mib=plan.spec.container_mib,
        # Only that Envoy took its configuration. Whether instances are healthy is for its /healthz to say: a
        # model that does not load must not keep the front end of the others down.
        health=Health(
            probe=http_probe(ADMIN_PORT, ["/ready"]),
            interval_s=2,
            timeout_s=2 * PROBE_TIMEOUT_S,
            patience_s=_START_PATIENCE_S,
        ),
        stop_timeout_s=plan.stop_timeout_s,
        labels=plan.labels,
        ports=[
            _published(plan.listens.rest, plan.spec.rest_port, str(plan.bind)),
            _published(plan.listens.grpc, plan.spec.grpc_port, str(plan.bind)),
            _published(plan.listens.metrics, plan.spec.metrics_port, LOOPBACK),
        ],
    )


def _published(inside: int, port: int, address: str) -> docker.ContainerPortArgs:
    return docker.ContainerPortArgs(internal=inside, external=port, ip=address, protocol="tcp")
