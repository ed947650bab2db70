"""EnvoyFrontEnd: one node's Envoy, the only thing there that publishes ports."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi
import pulumi_docker as docker

from components.container import Attachment, ContainerArgs, Health, make_container
from components.envoy_config import CONFIG_FOLDER
from components.envoy_files import bootstrap_file, envoy_files
from components.envoy_secrets import ENVOY_USER, Secrets, private_files
from components.plan import FrontEndPlan
from components.probes import PROBE_TIMEOUT_S, http_probe
from components.settings import ADMIN_PORT, LOOPBACK

_BINARY = "/usr/local/bin/envoy"
_USER = f"{ENVOY_USER}:{ENVOY_USER}"
_START_PATIENCE_S = 60
_DRAIN_MARGIN_S = 5


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

    Needs the node's Docker provider in `opts.providers`. Outputs: `rest_url`, `grpc_target` and
    `metrics_target` (on the node's loopback), known before the container exists.
    """

    rest_url: pulumi.Output[str]
    grpc_target: pulumi.Output[str]
    metrics_target: pulumi.Output[str]

    def __init__(
        self, name: str, args: EnvoyFrontEndArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("tf-serving:envoy:EnvoyFrontEnd", name, None, opts)
        spec = args.plan.spec
        make_container(
            f"{name}-proxy", _container(args), parent=self, depends_on=[args.image] if args.image else []
        )
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


def _container(args: EnvoyFrontEndArgs) -> ContainerArgs:
    plan = args.plan
    bootstrap, text = bootstrap_file(plan)
    private = private_files(plan, args.secrets)
    files: Mapping[str, pulumi.Input[str]] = {
        bootstrap: text,
        **{name: file.text for name, file in private.items()},
        **envoy_files(plan),
    }
    return ContainerArgs(
        name=plan.container,
        image=plan.image,
        entrypoint=_BINARY,
        arguments=(
            *("-c", f"{CONFIG_FOLDER}/{bootstrap}"),
            "--reject-unknown-dynamic-fields",  # only a warning otherwise, and the field is left out
            # A replaced listener cuts what is still on it when this time is over.
            *("--drain-time-s", str(plan.spec.request_timeout_s + _DRAIN_MARGIN_S)),
            *("--concurrency", str(plan.spec.workers)),
            *("--log-level", "warning"),
            *("--file-flush-interval-msec", "1000"),  # an access log that is 10 s late misleads
        ),
        user=_USER,
        files={f"{CONFIG_FOLDER}/{name}": content for name, content in files.items()},
        attachments=[
            Attachment(network=args.serving_network, address=str(plan.serving_address)),
            Attachment(network=args.front_network, address=str(plan.front_address)),
        ],
        memory_mib=plan.spec.memory_mib,
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
            _published(plan.spec.rest_port, str(plan.bind)),
            _published(plan.spec.grpc_port, str(plan.bind)),
            _published(plan.spec.metrics_port, LOOPBACK),
        ],
    )


def _published(port: int, address: str) -> docker.ContainerPortArgs:
    return docker.ContainerPortArgs(internal=port, external=port, ip=address, protocol="tcp")
