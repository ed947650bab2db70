"""What a stack file says of a Kubernetes cluster: how it is reached, and which of its nodes have GPUs."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from components.base import Model
from components.errors import Problem
from components.types import (
    MOST_MIB,
    Driver,
    FolderPath,
    GpuResource,
    HostName,
    ObjectName,
    QualifiedName,
    Slug,
)

GPU_RESOURCE = "nvidia.com/gpu"
SHARED = ".shared"
Cpus = Annotated[int, Field(ge=1, le=1024)]


class Cluster(Model):
    """A Kubernetes cluster: reached by a kubeconfig, or a folder that a GitOps tool applies from."""

    kubeconfig: FolderPath | None = None
    """File that says how the API server is reached. The environment's own is never read."""
    context: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Context in it, always named: the current one is whoever used it last."""
    render_to: FolderPath | None = None
    """Instead of both: folder for manifests. No cluster is asked, and no Secret is ever written there."""
    namespace: ObjectName
    """Namespace of everything."""
    create_namespace: bool = False
    """Make the namespace too; else it must be there."""
    domain: HostName = "cluster.local"
    """The cluster's domain in DNS."""
    priority_class: ObjectName | None = None
    """PriorityClass of model servers; it must be there."""
    pull_secrets: tuple[ObjectName, ...] = ()
    """Secrets of the namespace with which images are pulled."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._applied_or_rendered()

    def _applied_or_rendered(self) -> Iterator[Problem]:
        """One provider cannot do both, and a kubeconfig without its context leads anywhere."""
        if self.render_to is not None:
            for name in ("kubeconfig", "context"):
                if getattr(self, name) is not None:
                    message = (
                        "cannot be combined with render_to: manifests are rendered, or a cluster is reached"
                    )
                    yield Problem(name, message, getattr(self, name))
        else:
            for name in ("kubeconfig", "context"):
                if getattr(self, name) is None:
                    yield Problem(name, "is required, or render_to: a folder for manifests")


class Taint(Model):
    """A taint of the nodes that model servers tolerate."""

    key: QualifiedName
    """Its key."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Its value; unset, any."""
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule"] = "NoSchedule"
    """What it does to others."""


class NodePool(Model):
    """Nodes of the cluster with GPUs of one kind."""

    name: Slug
    """How pools name it."""
    nodes: Annotated[int, Field(ge=1, le=5000)]
    """How many there are."""
    gpus_per_node: Annotated[int, Field(ge=1, le=112)]
    """How many `gpu_resource` each offers."""
    gpu_resource: GpuResource = GPU_RESOURCE
    """What a pod asks for: nvidia.com/gpu, a MIG profile (nvidia.com/mig-1g.10gb), nvidia.com/gpu.shared."""
    gpu_model: str | None = None
    """Kind of the GPU, such as a100-80g: lets memory, MIG profile and image be checked."""
    selector: Annotated[Mapping[QualifiedName, str], Field(min_length=1)]
    """Labels that its nodes have and no others, such as nvidia.com/gpu.product."""
    taints: tuple[Taint, ...] = (Taint(key=GPU_RESOURCE),)
    """Taints of its nodes."""
    runtime_class: ObjectName | None = None
    """RuntimeClass of model servers, where NVIDIA's is not containerd's default."""
    spare_gpus: Annotated[int, Field(ge=0, le=1000)] = 0
    """GPUs that stay free: with them a new pod comes before the old one goes."""
    cpus_per_node: Cpus | None = None
    """What pods may have of a node's CPUs: lets it be checked."""
    memory_mib_per_node: Annotated[int, Field(ge=1024, le=MOST_MIB)] | None = None
    """What pods may have of a node's memory in MiB: lets it be checked."""
    driver: Driver | None = None
    """Driver version, in quotes."""

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.gpus_per_node
