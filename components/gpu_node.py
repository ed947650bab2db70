"""GpuNode: a Docker Engine with GPUs, and the private networks that its containers use."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_docker as docker

from components.plan import NetworkPlan, NodePlan


@dataclass(frozen=True, kw_only=True)
class GpuNodeArgs:
    """`plan` says how the engine is reached and which networks it gets."""

    plan: NodePlan


class GpuNode(pulumi.ComponentResource):
    """A machine with GPUs.

    `provider` is the engine's own: hand it to whatever is placed on this node (`opts.providers`).
    `images` are the pulls of what runs there (`server`, `envoy`), to be waited for. Outputs:
    `serving_network`, internal, for instances and Envoy; `front_network`, from which Envoy publishes.
    """

    serving_network: pulumi.Output[str]
    front_network: pulumi.Output[str]
    provider: docker.Provider
    images: dict[str, docker.RemoteImage]

    def __init__(self, name: str, args: GpuNodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tf-serving:gpu_node:GpuNode", name, None, opts)
        spec = args.plan.spec.docker
        # Unset, each of these comes from the shell (DOCKER_CONTEXT, DOCKER_KEY_MATERIAL, ...), and a context
        # there wins over the host that is named here.
        of_the_shell = None if spec.endpoint == "default" else ""
        self.provider = docker.Provider(
            f"{name}-docker",
            host=None if spec.endpoint == "default" else spec.endpoint,
            context=of_the_shell,
            ssh_opts=list(spec.ssh_options) or None,
            # The provider does not know what `~` stands for; a relative path is the project's, where it runs.
            cert_path=str(Path(spec.cert_path).expanduser()) if spec.cert_path else of_the_shell,
            ca_material=of_the_shell,
            cert_material=of_the_shell,
            key_material=of_the_shell,
            opts=pulumi.ResourceOptions(parent=self),
        )
        # Pulled before a container is stopped for its successor, and kept: a pull of gigabytes in between
        # would be an outage. Containers name the image in plain text and read nothing from here.
        self.images = {
            role: docker.RemoteImage(
                f"{name}-{role}-image",
                name=image,
                keep_locally=True,
                opts=pulumi.ResourceOptions(parent=self, provider=self.provider),
            )
            for role, image in args.plan.images.items()
        }
        serving = self._network(
            f"{name}-serving", args.plan.serving_network, args.plan.network_labels, internal=True
        )
        front = self._network(
            f"{name}-front", args.plan.front_network, args.plan.network_labels, internal=False
        )
        self.serving_network = serving.name
        self.front_network = front.name
        self.register_outputs({"serving_network": self.serving_network, "front_network": self.front_network})

    def _network(
        self, name: str, plan: NetworkPlan, labels: Sequence[tuple[str, str]], *, internal: bool
    ) -> docker.Network:
        return docker.Network(
            name,
            name=plan.name,
            driver="bridge",
            internal=internal,
            ipam_configs=[docker.NetworkIpamConfigArgs(subnet=str(plan.subnet), gateway=str(plan.gateway))],
            labels=[docker.NetworkLabelArgs(label=label, value=value) for label, value in labels],
            # A second network of the same name or with an overlapping subnet cannot exist beside the first.
            opts=pulumi.ResourceOptions(parent=self, provider=self.provider, delete_before_replace=True),
        )
