"""What a stack file may say: strict, frozen models with the rules that hold inside one of them.

Nodes are in `node_settings.py`, pools in `pool_settings.py`, models in `model_settings.py`. Rules across
all of them are in `rules.py`; `stack_file.py` loads.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import Field

from components.base import Model
from components.edge_settings import AccessLog, Auth, RateLimit, RequestIds, Tls, Tracing
from components.errors import Problem
from components.node_settings import Node
from components.pool_settings import Pool
from components.routing_settings import VersionChoice
from components.types import MOST_MIB, HeaderName, ImageReference, Owner, Port

LOOPBACK = "127.0.0.1"
ADMIN_PORT = 9901
"""Envoy's admin page, on the loopback of its container."""
STATUS_PORT = 9903
"""Envoy's status page, on the node's private network."""


class Images(Model):
    """Container images. Tags can move: `make pin` writes their digests to images.lock.yaml, which wins."""

    server: ImageReference
    """TensorFlow Serving; the tag names its version (`tensorflow/serving:2.14.1-gpu`)."""
    envoy: ImageReference
    """The front end, with a shell (`envoyproxy/envoy:v1.40.0`): its files are put in place from its image."""

    def _rules(self) -> Iterator[Problem]:
        """Distroless images have no shell, and so neither a health check nor a way to get files."""
        if "distroless" in self.envoy:
            yield Problem("envoy", "has no shell; take an image of Envoy that is not distroless", self.envoy)


class FrontEnd(Model):
    """Envoy: one on each node, the only thing that publishes ports."""

    bind: IPv4Address = IPv4Address("0.0.0.0")  # noqa: S104 - the front end is what is meant to be reached
    """Address of each node that REST and gRPC are published on, unless the node says its own."""
    rest_port: Port = 8080
    """REST, published."""
    grpc_port: Port = 8500
    """gRPC, published."""
    metrics_port: Port = 9902
    """Prometheus pages of Envoy and of every instance, published on the node's loopback only."""
    user_header: HeaderName = "x-user-id"
    """Header that names a request's user, for pools that keep a user on one instance or one version."""
    versions: VersionChoice = VersionChoice()
    """How clients name a model's version beside the path."""
    tls: Tls | None = None
    """Encrypts the REST and gRPC ports."""
    auth: Auth | None = None
    """Who may ask; unset, everybody who reaches the ports."""
    rate_limit: RateLimit | None = None
    """How often a client may ask; unset, as often as it likes."""
    tracing: Tracing | None = None
    """Where spans of requests go; unset, nowhere."""
    request_ids: RequestIds = RequestIds()
    """The header x-request-id."""
    access_log: AccessLog = AccessLog()
    """What is logged of requests."""
    request_timeout_s: Annotated[int, Field(ge=1, le=3600)] = 30
    """A whole request, retries included, in seconds."""
    max_request_mib: Annotated[int, Field(ge=1, le=1024)] = 16
    """Largest request body in MiB; also what is buffered so that a request can be tried again."""
    max_concurrent: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    """Requests in flight per pool before Envoy answers 503."""
    workers: Annotated[int, Field(ge=1, le=256)] = 4
    """Envoy's worker threads; one handles some thousand small requests a second."""
    memory_mib: Annotated[int, Field(ge=256, le=MOST_MIB)] = 1024
    """Memory of Envoy in MiB; it sheds load before it gets there. On Docker its container may use twice that:
    two run while one takes over from the other."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._headers_differ()
        yield from self._ports_differ()
        yield from self._large_requests_fit()

    def _headers_differ(self) -> Iterator[Problem]:
        """One header, one meaning."""
        if self.versions.header == self.user_header:
            yield Problem("versions.header", "is also user_header", self.user_header)
        if self.auth is None:
            return
        taken = "authorization" if self.auth.jwt else "x-api-key"
        for setting, header in (("user_header", self.user_header), ("versions.header", self.versions.header)):
            if header == taken:
                yield Problem(setting, "is what auth reads, and it goes no further", header)

    def _ports_differ(self) -> Iterator[Problem]:
        """One port, one listener."""
        ports = {"rest_port": self.rest_port, "grpc_port": self.grpc_port, "metrics_port": self.metrics_port}
        owner = {ADMIN_PORT: "Envoy's own admin port", STATUS_PORT: "Envoy's own status port"}
        for name, port in ports.items():
            first = owner.setdefault(port, name)
            if first != name:
                yield Problem(name, f"is also {first}", port)

    def _large_requests_fit(self) -> Iterator[Problem]:
        """Envoy holds a request until it is answered, to try it again: a few must fit at once."""
        if self.memory_mib < 8 * self.max_request_mib:
            yield Problem(
                "memory_mib",
                f"is less than 8 requests of max_request_mib {self.max_request_mib}",
                self.memory_mib,
            )

    def rest_url(self, address: str) -> str:
        """Where clients ask over REST a node that they reach at `address`."""
        return f"{'https' if self.tls else 'http'}://{address}:{self.rest_port}"

    @property
    def container_mib(self) -> int:
        """Memory limit of its container on Docker: one Envoy takes over from another."""
        return 2 * self.memory_mib

    @property
    def given_up(self) -> dict[str, str]:
        """What a policy must be told of it, as short labels."""
        return {"tls-in-front": "true"} if self.auth and self.auth.tls_in_front else {}

    @property
    def secrets(self) -> dict[str, str]:
        """Keys of the configuration that Envoy's files take in, each by the setting that names it."""
        named: dict[str, str] = {}
        if self.tls:
            named |= {"tls.certificate": self.tls.certificate, "tls.private_key": self.tls.private_key}
        for position, known in enumerate(self.auth.api_keys if self.auth else ()):
            named[f"auth.api_keys[{position}].key"] = known.key
        return named

    def grpc_target(self, address: str) -> str:
        """Where clients ask over gRPC a node that they reach at `address`."""
        return f"{address}:{self.grpc_port}"

    def metrics_address(self) -> str:
        """Where Prometheus pages are, on the node itself."""
        return f"{LOOPBACK}:{self.metrics_port}"


LONGEST_DRAIN_S = 600


class Rollout(Model):
    """How a change reaches the instances of a pool, one after the other or max_unavailable at once."""

    stop_timeout_s: Annotated[int, Field(ge=1, le=600)] = 10
    """How long a stopped container may take before it is killed, in seconds."""
    health_interval_s: Annotated[int, Field(ge=1, le=60)] = 5
    """How often an instance is asked whether its models are loaded, in seconds."""
    drain_timeout_s: Annotated[int, Field(ge=1, le=LONGEST_DRAIN_S)] = 30
    """How long requests that an instance is at may take to end before it is replaced, in seconds."""


class Settings(Model):
    """A whole stack file."""

    target: Literal["docker", "kubernetes"] = "docker"
    """Where it runs: Docker Engines of `nodes`, or a Kubernetes cluster, whose settings are further below."""
    environment: Literal["local", "staging", "prod"] = "prod"
    """What may be risked: `prod` refuses what gives up isolation."""
    owner: Owner | None = None
    """The team to ask, a label of every container. Unset: the stack's name; required in prod."""
    nodes: Annotated[tuple[Node, ...], Field(min_length=1)]
    """Machines with GPUs."""
    images: Images
    """What runs in the containers."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    """Which models are served, and by which GPUs."""
    front_end: FrontEnd = FrontEnd()
    """What clients reach."""
    rollout: Rollout = Rollout()
    """How changes reach the instances."""
