"""The part of the Plan that Envoy's configuration is made from."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from components.config_plan import ConfigPlan
from components.drain_plan import Drained
from components.labels import Labels
from components.model_settings import ServedModel, VersionPolicy
from components.routing_settings import Balancing, Traffic
from components.settings import FrontEnd


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where Envoy reaches an instance, and the name it gives it."""

    name: str
    address: IPv4Address | str
    """A name only on Kubernetes."""


@dataclass(frozen=True, kw_only=True)
class RoutedModel:
    """A model that clients ask for, and which of its versions they can name."""

    name: str
    versions: VersionPolicy
    labels: tuple[tuple[str, int], ...]


def routed_models(models: Iterable[ServedModel]) -> tuple[RoutedModel, ...]:
    """The models of a pool as clients know them; an original beside its optimized form is one more."""
    return tuple(
        RoutedModel(name=name, versions=model.versions, labels=tuple(sorted(model.labels.items())))
        for model in models
        for name in model.served_names
    )


@dataclass(frozen=True, kw_only=True)
class VersionOf:
    """A version, and under which names its model is served."""

    models: tuple[str, ...]
    version: int


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """The instances of a pool on one node: one Envoy cluster for REST, one for gRPC."""

    name: str
    models: tuple[RoutedModel, ...]
    endpoints: tuple[Endpoint, ...]
    balancing: Balancing
    traffic: Traffic
    only: VersionOf | None = None
    """Where it is a part of a pool: what the instances of this part have."""
    parts: tuple["PoolPlan", ...] = ()
    """While a release is under way: its instances by the version that they have."""

    def part(self, models: Iterable[str], version: int) -> "PoolPlan | None":
        """Its instances that have a version of one of these models, where not all have the same."""
        asked = set(models)
        return next(
            (
                part
                for part in self.parts
                if part.only and part.only.version == version and asked.intersection(part.only.models)
            ),
            None,
        )

    @property
    def model_names(self) -> tuple[str, ...]:
        """What clients call its models."""
        return tuple(model.name for model in self.models)


@dataclass(frozen=True, kw_only=True)
class ListenPorts:
    """Where Envoy listens inside its container, whatever port is published.

    Envoy gets other listeners only once all that it leads to is well. Another published port is open as soon
    as Envoy is there again, since its listeners stay what they are.
    """

    rest: int = 8080
    grpc: int = 8500
    metrics: int = 9902


@dataclass(frozen=True, kw_only=True)
class FrontEndPlan:
    """One node's Envoy."""

    name: str
    former_name: str | None
    container: str
    node: str
    image: str
    spec: FrontEnd
    listens: ListenPorts = ListenPorts()
    bind: IPv4Address
    """Where REST and gRPC are published."""
    serving_address: IPv4Address
    """On the network of the instances."""
    front_address: IPv4Address
    """On the network that can publish ports."""
    config: ConfigPlan
    """The volume with its files, and the container that stages them there."""
    acceptance: str
    """The container that has Envoy take its files; unique on the Docker Engine."""
    acceptance_address: IPv4Address
    acceptance_labels: Labels
    pools: tuple[PoolPlan, ...]
    stop_timeout_s: int
    labels: tuple[tuple[str, str], ...]
    drained: tuple[Drained, ...] = ()
    """Instances that may be drained, and what that takes to know."""
    drain_timeout_s: int = 0

    @property
    def leading(self) -> tuple[PoolPlan, ...]:
        """Pools that requests are for; the others only help them."""
        helpers = {name for pool in self.pools for _, name in pool.traffic.helpers}
        return tuple(pool for pool in self.pools if pool.name not in helpers)

    @property
    def asked(self) -> tuple[PoolPlan, ...]:
        """Pools that requests are sent to as such, not only where others fail."""
        standing_by = {pool.traffic.standby.pool for pool in self.pools if pool.traffic.standby}
        otherwise = {
            name for pool in self.pools for said, name in pool.traffic.helpers if said != "standby.pool"
        }
        return tuple(pool for pool in self.pools if pool.name not in standing_by or pool.name in otherwise)

    def fallback(self, pool: PoolPlan) -> PoolPlan | None:
        """The pool that takes over from one: its standby, or that whose hot or canary requests it gets."""
        if pool.traffic.standby is not None:
            return self.pool(pool.traffic.standby.pool)
        for other in self.pools:
            for said, name in other.traffic.helpers:
                if name == pool.name and said.startswith(("dedicated", "canary")):
                    return other
        return None

    def pool(self, name: str) -> PoolPlan:
        """The pool of this name on this node."""
        return next(pool for pool in self.pools if pool.name == name)
