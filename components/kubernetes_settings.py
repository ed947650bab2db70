"""What a stack file says where `target` is `kubernetes`: a cluster, pools of its nodes, and what runs there.

Everything about models, batching, routing and the like is as on Docker (`settings.py`); what is here says
where an instance may be placed. Rules across parts are in `kubernetes_rules.py`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from components.base import Model, repeated
from components.cluster_settings import Cluster, Cpus, NodePool
from components.errors import Problem
from components.model_settings import ServedModel
from components.node_settings import Node
from components.pool_settings import Pool, SlotGroup
from components.settings import FrontEnd, Settings
from components.types import (
    ImageReference,
    ObjectName,
    QualifiedName,
    Slug,
)


def _whole_gpus(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 16:
        return value
    if isinstance(value, float):
        raise ValueError(  # noqa: TRY004 - a finding, not a fault of the caller
            "Kubernetes hands out whole GPUs (1 to 16); for a part of one set gpu_resource of the node pool "
            "to a MIG profile, such as nvidia.com/mig-1g.10gb, or to nvidia.com/gpu.shared"
        )
    raise ValueError("accepted: a whole number of GPUs, 1 to 16")


WholeGpus = Annotated[
    int, PlainValidator(_whole_gpus), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 16})
]
Replicas = Annotated[int, Field(ge=1, le=1000)]
PodShare = Annotated[int, Field(ge=1, le=100)]


class Autoscale(Model):
    """How many pods a pool has, by load; at most one of the three measures, else CPU at 75 %."""

    least: Replicas
    """Pods when nothing is asked."""
    most: Replicas
    """Pods at most: that many GPUs are reserved for it."""
    cpu_percent: PodShare | None = None
    """Use of the pods' CPUs to keep to."""
    gpu_percent: PodShare | None = None
    """Use of the GPUs to keep to, as NVIDIA's exporter measures it; needs a metrics adapter with our rule."""
    queue_ms: Annotated[int, Field(ge=1, le=60_000)] | None = None
    """Mean wait for a batch to keep to, in ms; needs a metrics adapter with our rule, and batching."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._least_is_below_most()
        yield from self._one_measure()

    def _least_is_below_most(self) -> Iterator[Problem]:
        """Else nothing scales."""
        if self.least >= self.most:
            yield Problem("least", f"must be below most {self.most}; or set replicas instead", self.least)

    def _one_measure(self) -> Iterator[Problem]:
        """With several the largest answer wins, which nobody can foretell."""
        named = [
            name for name in ("cpu_percent", "gpu_percent", "queue_ms") if getattr(self, name) is not None
        ]
        for name in named[1:]:
            yield Problem(name, f"cannot be combined with {named[0]}", getattr(self, name))


class Disruptions(Model):
    """How many pods a drain may take at a time (PodDisruptionBudget): exactly one of the two."""

    max_unavailable: Replicas | None = None
    """So many may be away."""
    min_available: Replicas | None = None
    """So many must stay."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._exactly_one_is_given()

    def _exactly_one_is_given(self) -> Iterator[Problem]:
        """The API accepts one of them."""
        if (self.max_unavailable is None) == (self.min_available is None):
            yield Problem("", "give exactly one: max_unavailable: <n> or min_available: <n>")


class OnNodes(Model):
    """Where a pool's pods go, how many there are, and what each takes."""

    pool: Slug
    """A node pool's name."""
    replicas: Replicas | None = None
    """Pods, always so many."""
    autoscale: Autoscale | None = None
    """Instead of replicas: as many as the load asks for."""
    gpus: WholeGpus = 1
    """GPUs of each pod; more than one only for models that say multi_gpu."""
    cpus: Cpus
    """CPUs of each pod, whole: request and limit, so that a static CPU manager pins them."""
    surge: Annotated[int, Field(ge=0, le=100)] | None = None
    """Pods beyond that while a change rolls. Unset: one where spare_gpus has room, else none."""
    disruptions: Disruptions = Disruptions(max_unavailable=1)
    """What a drain may do."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._exactly_one_count()
        yield from self._drains_can_go_on()

    def _exactly_one_count(self) -> Iterator[Problem]:
        """With both, the autoscaler and every `up` would undo each other."""
        if (self.replicas is None) == (self.autoscale is None):
            yield Problem("", "give exactly one: replicas: <n> or autoscale: {least: <n>, most: <n>}")

    def _drains_can_go_on(self) -> Iterator[Problem]:
        """A budget that lets no pod go keeps a node from ever being drained."""
        least = self.disruptions.min_available
        if least is not None and self.fewest and least >= self.fewest:
            message = (
                f"of {self.fewest} pods lets none go: no node could ever be drained; set max_unavailable: 1"
            )
            yield Problem("disruptions.min_available", message, least)

    @property
    def fewest(self) -> int:
        """Pods at least."""
        return self.replicas or (self.autoscale.least if self.autoscale else 0)

    @property
    def most(self) -> int:
        """Pods at most, without those of a surge."""
        return self.replicas or (self.autoscale.most if self.autoscale else 0)

    def on_the_fullest(self, nodes: NodePool) -> int:
        """Pods on the node with the most, however they are spread; 0 where none fits."""
        return min(nodes.gpus_per_node // self.gpus, self.most, -(-self.most // nodes.nodes))


class ModelVolume(Model):
    """Where the models' folders are: exactly one of the three."""

    claim: ObjectName | None = None
    """A PersistentVolumeClaim of the namespace, read-only; a model's path is below its root."""
    host_path: Literal[True] | None = None
    """Folders of every node; a model's path is theirs."""
    image: ImageReference | None = None
    """An image with the models at their paths, and a shell: copied before the server starts."""
    user: Annotated[int, Field(ge=1, le=2**31 - 1)] = 10001
    """Number of the user that servers run as: it must be able to read the models."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._exactly_one_is_given()

    def _exactly_one_is_given(self) -> Iterator[Problem]:
        """A model is in one place."""
        given = [name for name in ("claim", "host_path", "image") if getattr(self, name) is not None]
        if len(given) != 1:
            yield Problem("", "give exactly one: claim: <name>, host_path: true or image: <image>")


class KubernetesModel(ServedModel):
    """One model of a pool."""

    multi_gpu: bool = False
    """Its graph computes on several GPUs. Most do on the first alone: two pods of one GPU serve twice as much
    as one pod of two."""


class KubernetesPool(Pool):
    """Pods that serve the same models; Envoy balances over them."""

    models: Annotated[tuple[KubernetesModel, ...], Field(min_length=1, max_length=100)]
    """What each of its pods serves."""
    slots: tuple[SlotGroup, ...] = ()
    """Not on Kubernetes, which chooses GPUs itself: set nodes."""
    nodes: OnNodes
    """Where its pods go."""
    model_volume: ModelVolume
    """Where its models are."""

    def _rules(self) -> Iterator[Problem]:
        yield from super()._rules()
        yield from self._nothing_of_docker()
        yield from self._gpus_are_used()
        yield from self._queues_are_there()
        yield from self._users_stay_with_pods()

    def _nothing_of_docker(self) -> Iterator[Problem]:
        """Kubernetes chooses which GPUs a pod gets."""
        if self.slots:
            yield Problem(
                "slots", "is for Docker; on Kubernetes set nodes: {pool: <node pool>, replicas: <n>}"
            )
        gpus = "is for Docker; on Kubernetes set gpu_resource of the node pool, or nodes.gpus"
        pods = "is for Docker; on Kubernetes one pod changes at a time, or more with nodes.surge"
        for name, message in (("sharing", gpus), ("all_gpus", gpus), ("max_unavailable", pods)):
            if (value := getattr(self, name)) is True or value > 1:
                yield Problem(name, message, value)
        if self.renamed_from is not None:
            message = "is for Docker; on Kubernetes add the pool under its new name, then remove the old one"
            yield Problem("renamed_from", message, self.renamed_from)

    def _gpus_are_used(self) -> Iterator[Problem]:
        """A SavedModel computes on the first GPU alone, unless it was made for more."""
        if self.nodes.gpus > 1:
            for m, model in enumerate(self.models):
                if not model.multi_gpu:
                    message = (
                        f"is required with nodes.gpus {self.nodes.gpus}: a model computes on the first GPU "
                        "alone unless it was made for more; else set gpus: 1 and more replicas"
                    )
                    yield Problem(f"models[{m}].multi_gpu", message)

    def _queues_are_there(self) -> Iterator[Problem]:
        """Without batching nothing queues."""
        if self.nodes.autoscale and self.nodes.autoscale.queue_ms is not None and self.batching is None:
            yield Problem("nodes.autoscale.queue_ms", "needs batching", self.nodes.autoscale.queue_ms)

    def _users_stay_with_pods(self) -> Iterator[Problem]:
        """Envoy knows sticky pods by name, and so how many there are."""
        if self.balancing.sticky and self.nodes.autoscale:
            yield Problem("nodes.autoscale", "cannot be combined with balancing.sticky; set replicas")
        if self.balancing.sticky and self.nodes.surge:
            yield Problem("nodes.surge", "cannot be combined with balancing.sticky", self.nodes.surge)


class KubernetesFrontEnd(FrontEnd):
    """Envoy: several pods behind one Service, the only thing that clients reach."""

    replicas: Annotated[int, Field(ge=2, le=100)] = 2
    """Pods of Envoy at least: one may be drained."""
    max_replicas: Annotated[int, Field(ge=2, le=100)] = 4
    """Pods of Envoy at most, by their CPU."""
    cpus: Cpus = 2
    """CPUs of each."""
    service: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """How clients reach it."""
    service_annotations: Mapping[QualifiedName, str] = {}
    """What the cloud's load balancer is told."""
    source_ranges: tuple[str, ...] = ()
    """With LoadBalancer: networks that may connect, such as 10.0.0.0/8. Unset, all."""
    client_namespaces: tuple[ObjectName, ...] = ()
    """Namespaces whose pods may connect. Unset, everybody who reaches the Service."""
    address: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """How clients outside call it, for the outputs. Unset: the Service's name inside the cluster."""
    prometheus_namespace: ObjectName = "monitoring"
    """Namespace whose pods may read metrics."""
    tls_secret: ObjectName | None = None
    """A Secret of the namespace (kubernetes.io/tls) with the certificate: encrypts REST and gRPC."""
    api_keys_secret: ObjectName | None = None
    """A Secret of the namespace with `api-keys.yaml`, as `make api-keys` writes it: clients show a key."""
    tls_in_front: bool = False
    """With api_keys_secret: something before the front end speaks TLS; else prod demands it here."""
    node_selector: Mapping[QualifiedName, str] = {}
    """Labels of the nodes that Envoy goes to; it needs no GPU."""

    @property
    def given_up(self) -> dict[str, str]:
        """What a policy must be told of it, as short labels."""
        return super().given_up | ({"tls-in-front": "true"} if self.tls_in_front else {})

    def _rules(self) -> Iterator[Problem]:
        yield from super()._rules()
        yield from self._secrets_are_the_clusters()
        yield from self._replicas_ascend()
        yield from self._ranges_are_of_load_balancers()
        yield from self._nothing_of_docker()

    def _secrets_are_the_clusters(self) -> Iterator[Problem]:
        """Manifests are committed, and the state of a live stack is read by many."""
        if self.tls is not None:
            yield Problem("tls", "is for Docker; on Kubernetes name a Secret of the cluster in tls_secret")
        if self.auth is not None and self.auth.api_keys:
            message = "is for Docker; on Kubernetes name a Secret of the cluster in api_keys_secret"
            yield Problem("auth.api_keys", message)
        if self.auth is not None and self.api_keys_secret:
            message = "cannot be combined with auth: a client would need both"
            yield Problem("api_keys_secret", message, self.api_keys_secret)
        if self.tls_in_front and not self.api_keys_secret:
            yield Problem("tls_in_front", "only with api_keys_secret; with auth set auth.tls_in_front", True)

    def _replicas_ascend(self) -> Iterator[Problem]:
        """The autoscaler's bounds."""
        if self.max_replicas < self.replicas:
            yield Problem("max_replicas", f"is below replicas {self.replicas}", self.max_replicas)

    def _ranges_are_of_load_balancers(self) -> Iterator[Problem]:
        """Nothing else reads them."""
        if self.source_ranges and self.service != "LoadBalancer":
            yield Problem("source_ranges", "only with service: LoadBalancer", list(self.source_ranges))

    def _nothing_of_docker(self) -> Iterator[Problem]:
        """A pod publishes nothing on a node."""
        if "bind" in self.model_fields_set:
            yield Problem("bind", "is for Docker; on Kubernetes set service", str(self.bind))
        low = {"rest_port": self.rest_port, "grpc_port": self.grpc_port, "metrics_port": self.metrics_port}
        for name, port in low.items():
            if port < 1024:
                yield Problem(name, "is below 1024, which Envoy's user may not open in a pod", port)


class KubernetesSettings(Settings):
    """A whole stack file for Kubernetes."""

    target: Literal["kubernetes"]
    """Where it runs."""
    cluster: Cluster
    """The cluster, or the folder for manifests."""
    node_pools: Annotated[tuple[NodePool, ...], Field(min_length=1)]
    """Nodes with GPUs."""
    nodes: tuple[Node, ...] = ()
    """Not on Kubernetes: set node_pools."""
    pools: Annotated[tuple[KubernetesPool, ...], Field(min_length=1)]
    """Which models are served, and on which nodes."""
    front_end: KubernetesFrontEnd = KubernetesFrontEnd()
    """What clients reach."""

    def _rules(self) -> Iterator[Problem]:
        yield from super()._rules()
        if self.nodes:
            yield Problem("nodes", "is for Docker; on Kubernetes set node_pools")
        yield from repeated("node_pools", "name", [pool.name for pool in self.node_pools])
