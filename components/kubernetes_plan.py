"""The Plan of a stack on Kubernetes: which workloads there are, what each is told, where it may go.

As `plan.py`: plain, ordered data. What is made of it is in `kubernetes_manifests.py`.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from components.cluster_settings import SHARED, Cluster, NodePool
from components.config_plan import ConfigPlan
from components.edge_settings import Auth, Tls
from components.errors import Problem, SettingsError
from components.facts import server_version
from components.front_end_plan import Endpoint, FrontEndPlan, ListenPorts, PoolPlan, routed_models
from components.kubernetes_settings import (
    KubernetesFrontEnd,
    KubernetesPool,
    KubernetesSettings,
    ModelVolume,
    OnNodes,
)
from components.labels import Labels, helping_labels, labels
from components.model_plan import models_of
from components.model_sizes import room_of, size_labels
from components.server_spec import Server, ThreadCounts, thread_counts
from components.types import STACK_OF_OBJECTS

# The pod leaves the Service's addresses, and Envoy asks for them every five seconds.
DNS_LAG_S = 10
_NONE = IPv4Address(0)
_NO_CONFIG: Any = None


@dataclass(frozen=True, kw_only=True)
class ServersPlan(Server):
    """The pods of one pool."""

    pool: str
    name: str
    """Of its workload and its headless Service."""
    host: str
    """The Service's name in DNS."""
    nodes: NodePool
    on: OnNodes
    volume: ModelVolume
    sticky: bool
    """Pods have names that stay: a user is kept on one of them."""
    surge: int
    """Pods beyond the wanted number while a change rolls."""
    labels: Labels
    own_labels: Labels
    """Of the workload alone: what they say changes without its pods being replaced."""
    selector: Labels
    annotations: Labels

    @property
    def drain_s(self) -> int:
        """From the moment that a pod is to go until no request is sent to it, and the last is answered."""
        return DNS_LAG_S + self.request_timeout_s

    @property
    def pod_timeout_s(self) -> int:
        """How long one pod may take from its predecessor's end until it is ready."""
        return self.drain_s + self.rollout.stop_timeout_s + self.load_timeout_s + 60

    @property
    def create_timeout_s(self) -> int:
        """All load side by side."""
        return self.load_timeout_s + 60

    @property
    def update_timeout_s(self) -> int:
        """One after the other."""
        return self.on.most * self.pod_timeout_s

    @property
    def pod_names(self) -> tuple[str, ...]:
        """Names of its pods, where they stay."""
        return tuple(f"{self.name}-{position}" for position in range(self.on.most)) if self.sticky else ()


@dataclass(frozen=True, kw_only=True)
class ClusterFrontEnd(FrontEndPlan):
    """Envoy as its configuration sees it; what only a Docker Engine has is empty."""

    former_name: str | None = None
    container: str = ""
    node: str = ""
    bind: IPv4Address = _NONE
    serving_address: IPv4Address = _NONE
    front_address: IPv4Address = _NONE
    config: ConfigPlan = _NO_CONFIG
    acceptance: str = ""
    acceptance_address: IPv4Address = _NONE
    acceptance_labels: Labels = ()


@dataclass(frozen=True, kw_only=True)
class ProxyPlan:
    """The pods of Envoy."""

    name: str
    host: str
    """The Service's name in DNS."""
    metrics_host: str
    """That of the Service for Prometheus."""
    spec: KubernetesFrontEnd
    """`tls` and `auth` in it are set where a Secret of the cluster is named."""
    envoy: FrontEndPlan
    labels: Labels
    selector: Labels

    @property
    def drain_s(self) -> int:
        """From the moment that a pod is to go until its last answer."""
        return DNS_LAG_S + self.spec.request_timeout_s


@dataclass(frozen=True, kw_only=True)
class AcceptancePlan:
    """The Job that waits until Envoy and the servers have taken their files."""

    name: str
    image: str
    labels: Labels
    selector: Labels


@dataclass(frozen=True, kw_only=True)
class KubernetesPlan:
    """A whole stack on Kubernetes."""

    stack: str
    cluster: Cluster
    labels: Labels
    servers: tuple[ServersPlan, ...]
    front_end: ProxyPlan
    acceptance: AcceptancePlan

    @property
    def namespace(self) -> str:
        """Where everything is."""
        return self.cluster.namespace


def make_kubernetes_plan(settings: KubernetesSettings, *, stack: str) -> KubernetesPlan:
    """The plan for settings that passed every rule; `stack` begins the name of every object.

    Raises SettingsError for a stack whose name no object can have.
    """
    if not STACK_OF_OBJECTS.fullmatch(stack):
        message = "on Kubernetes a stack is named in lower-case letters, digits and '-', at most 20"
        raise SettingsError(f"Pulumi.{stack}.yaml", [Problem("stack", message, stack)])
    owner = settings.owner or stack
    servers = tuple(_servers(settings, pool, stack, owner) for pool in settings.pools)
    return KubernetesPlan(
        stack=stack,
        cluster=settings.cluster,
        labels=_labels(stack, owner, {}),
        servers=servers,
        front_end=_front_end(settings, servers, stack, owner),
        acceptance=AcceptancePlan(
            name=f"{stack}-acceptance",
            image=settings.images.envoy,
            labels=_labels(stack, owner, {"role": "acceptance"}),
            selector=labels(stack, {"role": "acceptance"}),
        ),
    )


def _servers(settings: KubernetesSettings, pool: KubernetesPool, stack: str, owner: str) -> ServersPlan:
    image = settings.images.server
    version = server_version(image)
    if version is None:
        raise ValueError(f"{image} names no version: these settings did not pass the rules")
    name = f"{stack}-{pool.name}"
    nodes = next(nodes for nodes in settings.node_pools if nodes.name == pool.nodes.pool)
    models, room = models_of(pool, "/"), room_of(nodes.gpu_model, nodes.gpu_resource)
    said = {"role": "instance", "pool": pool.name}
    given_up = {
        "single": pool.single,
        "unbatched": pool.unbatched,
        "sharing": nodes.gpu_resource.endswith(SHARED),
        "multi-gpu": pool.nodes.gpus > 1,
    }
    return ServersPlan(
        pool=pool.name,
        name=name,
        host=_host(settings, name),
        image=image,
        version=version,
        models=models.plans,
        model_mounts=models.mounts,
        by_version=False,
        needs_gpu_xla=any(model.optimized and model.optimized.kind == "xla" for model in pool.models),
        batching=pool.batching,
        gpu_memory=pool.gpu_memory,
        memory=pool.memory,
        threads=_threads(pool),
        server=pool.server,
        log_level=pool.log_level,
        load_timeout_s=pool.load_timeout_s,
        request_timeout_s=settings.front_end.request_timeout_s,
        rollout=settings.rollout,
        nodes=nodes,
        on=pool.nodes,
        volume=pool.model_volume,
        sticky=pool.balancing.sticky,
        surge=_surge(settings, pool, nodes),
        labels=_labels(stack, owner, {**said, "load-timeout-s": str(pool.load_timeout_s)}),
        own_labels=tuple(
            (f"tf-serving.{name}", value)
            for name, value in {
                **_of_nodes(pool, nodes),
                **size_labels(pool, room),
                **helping_labels(pool, settings.pools),
            }.items()
        ),
        selector=labels(stack, said),
        # A label cannot hold a comma.
        annotations=(
            ("tf-serving.models", ",".join(sorted(model.name for model in models.plans))),
            *((f"tf-serving.{name}", "true") for name, is_so in given_up.items() if is_so),
        ),
    )


def _of_nodes(pool: KubernetesPool, nodes: NodePool) -> dict[str, str]:
    """What the policy pack must know of the nodes; of memory what pods may have."""
    found = {"pool-gpus": str(nodes.gpus)}
    if nodes.driver is not None:
        found["node-driver"] = nodes.driver
    if nodes.memory_mib_per_node is not None:
        found["node-memory-mib"] = str(nodes.memory_mib_per_node)
        found["pods-per-node"] = str(pool.nodes.on_the_fullest(nodes))
    return found


def _threads(pool: KubernetesPool) -> ThreadCounts:
    """Unset, the server would take so many for each CPU of its node, whatever its pod may use of them."""
    said, cpus = thread_counts(pool), pool.nodes.cpus
    return ThreadCounts(
        grpc_max=said.grpc_max or 4 * cpus,
        rest=said.rest or 4 * cpus,
        intra_op=said.intra_op or cpus,
        inter_op=said.inter_op or cpus,
    )


def _surge(settings: KubernetesSettings, pool: KubernetesPool, nodes: NodePool) -> int:
    """What is said; else one where every pool of these nodes has room for one at the same time."""
    if pool.balancing.sticky:
        return 0  # a pod's successor has its name
    if pool.nodes.surge is not None:
        return pool.nodes.surge
    there = [other.nodes for other in settings.pools if other.nodes.pool == nodes.name]
    needed = sum((1 if other.surge is None else other.surge) * other.gpus for other in there)
    return 1 if needed <= nodes.spare_gpus else 0


def _front_end(
    settings: KubernetesSettings, servers: tuple[ServersPlan, ...], stack: str, owner: str
) -> ProxyPlan:
    name = f"{stack}-envoy"
    spec = settings.front_end
    if spec.tls_secret:
        spec = spec.model_copy(update={"tls": Tls()})
    if spec.api_keys_secret:
        spec = spec.model_copy(update={"auth": Auth.model_construct(api_keys=(), jwt=None)})
    said = {"role": "front-end"}
    own = _labels(stack, owner, {**said, **spec.given_up})
    pools = zip(settings.pools, servers, strict=True)
    return ProxyPlan(
        name=name,
        host=_host(settings, name),
        metrics_host=_host(settings, f"{name}-metrics"),
        spec=spec,
        envoy=ClusterFrontEnd(
            name=name,
            image=settings.images.envoy,
            spec=spec,
            listens=ListenPorts(rest=spec.rest_port, grpc=spec.grpc_port, metrics=spec.metrics_port),
            pools=tuple(
                PoolPlan(
                    name=pool.name,
                    models=routed_models(pool.models),
                    endpoints=_endpoints(of),
                    balancing=pool.balancing,
                    traffic=pool.traffic,
                )
                for pool, of in pools
            ),
            stop_timeout_s=settings.rollout.stop_timeout_s,
            labels=own,
        ),
        labels=own,
        selector=labels(stack, said),
    )


def _endpoints(servers: ServersPlan) -> tuple[Endpoint, ...]:
    """As many as there are pods, since limits follow from the number; only sticky ones have names."""
    if servers.sticky:
        return tuple(Endpoint(name=pod, address=f"{pod}.{servers.host}") for pod in servers.pod_names)
    return (Endpoint(name=servers.name, address=servers.host),) * servers.on.most


def _host(settings: KubernetesSettings, service: str) -> str:
    return f"{service}.{settings.cluster.namespace}.svc.{settings.cluster.domain}"


def _labels(stack: str, owner: str, named: dict[str, str]) -> Labels:
    usual = {
        "app.kubernetes.io/name": "tf-serving",
        "app.kubernetes.io/instance": stack,
        "app.kubernetes.io/managed-by": "pulumi",
    }
    return tuple(sorted({**usual, **dict(labels(stack, {"owner": owner, **named}))}.items()))
