"""Settings of the way in: TLS, who may ask and how often, what is traced and logged."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from components.base import Model, repeated
from components.errors import Problem
from components.routing_settings import Percent, two_decimals
from components.types import Base64Url, ConfigKey, HeaderValue, HostName, Port, Slug


class Tls(Model):
    """TLS 1.2 or newer on the REST and gRPC ports, with a certificate of your own."""

    certificate: ConfigKey = "tls_certificate"
    """Name of the secret (`pulumi config set --secret`) that holds the certificate and its chain, as PEM."""
    private_key: ConfigKey = "tls_private_key"
    """Name of the secret that holds the certificate's private key, as PEM."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._two_keys()

    def _two_keys(self) -> Iterator[Problem]:
        """A certificate is no key."""
        if self.certificate == self.private_key:
            yield Problem("private_key", f"is also certificate: {self.certificate}; name another key")


class ApiKey(Model):
    """What a client shows in the header `x-api-key`."""

    client: Slug
    """Names it in logs and in its share of the rate limit."""
    key: ConfigKey
    """Name of the secret that holds it: 16 characters or more."""


class Jwk(Model):
    """A public key of a token's issuer (RFC 7517). What a private key has is not accepted."""

    kty: Literal["RSA", "EC", "OKP"]
    """Kind of the key."""
    kid: HeaderValue | None = None
    """Which key a token was signed with."""
    alg: HeaderValue | None = None
    """Algorithm, such as RS256 or ES256."""
    use: Literal["sig"] | None = None
    """For signatures."""
    n: Base64Url | None = None
    """RSA: modulus."""
    e: Base64Url | None = None
    """RSA: exponent."""
    crv: HeaderValue | None = None
    """EC and OKP: curve."""
    x: Base64Url | None = None
    """EC and OKP: coordinate."""
    y: Base64Url | None = None
    """EC: coordinate."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._parts_of_its_kind()

    def _parts_of_its_kind(self) -> Iterator[Problem]:
        """A key that lacks a part opens nothing: every request would be refused."""
        wanted = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}[self.kty]
        for name in wanted:
            if getattr(self, name) is None:
                yield Problem(name, f"is required with kty: {self.kty}")


class Jwt(Model):
    """Signed tokens in the header `authorization: Bearer …`, checked against public keys written here."""

    issuer: HeaderValue
    """The token's `iss`."""
    audiences: Annotated[tuple[HeaderValue, ...], Field(min_length=1)]
    """The token's `aud` is one of these."""
    keys: Annotated[tuple[Jwk, ...], Field(min_length=1)]
    """The issuer's public keys: the `keys` of its JWKS."""
    client_claim: ConfigKey = "sub"
    """The claim that names the client, in logs and for the rate limit."""


class Auth(Model):
    """Who may ask; one of the two. Without TLS in front, keys and tokens travel in the open."""

    api_keys: tuple[ApiKey, ...] = ()
    """A key for each client."""
    jwt: Jwt | None = None
    """Tokens: nothing secret is kept here, so prefer them where there is an issuer."""
    tls_in_front: bool = False
    """Something before the front end speaks TLS with clients; else prod demands TLS here too."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._one_way()
        yield from repeated("api_keys", "client", [known.client for known in self.api_keys])
        yield from repeated("api_keys", "key", [known.key for known in self.api_keys])

    def _one_way(self) -> Iterator[Problem]:
        """With both, a client would need both."""
        if bool(self.api_keys) == (self.jwt is not None):
            yield Problem("", "give exactly one: api_keys: [{client: <name>, key: <secret>}, …] or jwt: {…}")


Rate = Annotated[int, Field(ge=1, le=1_000_000)]


class RateLimit(Model):
    """How many requests each client may send a node; the rest get 429, RESOURCE_EXHAUSTED over gRPC."""

    per_second: Rate
    """Of one client: the owner of an API key, a token's client claim, else the address it comes from."""
    burst: Rate | None = None
    """At once, after a pause. Unset: twice per_second."""
    total_per_second: Rate | None = None
    """Of all clients together, counted before anybody's key is looked at. Unset: no limit."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._bursts_hold_a_second()

    def _bursts_hold_a_second(self) -> Iterator[Problem]:
        """The bucket is filled once a second: a smaller one would spill."""
        if self.burst is not None and self.burst < self.per_second:
            yield Problem("burst", f"is less than per_second {self.per_second}", self.burst)


class Tracing(Model):
    """Spans of requests for an OpenTelemetry collector, by OTLP over HTTP."""

    collector: HostName
    """Where it listens, as Envoy's container reaches it."""
    collector_port: Port = 4318
    """Its port for OTLP over HTTP."""
    sample_percent: Percent = 1
    """Of the requests. Clients cannot ask for it."""


class AccessLog(Model):
    """A line of JSON for each request, on Envoy's standard output."""

    sample_percent: Percent = 100
    """Of the requests that went well. All others are logged. At most two decimals."""

    def _rules(self) -> Iterator[Problem]:
        yield from two_decimals("sample_percent", self.sample_percent)


class RequestIds(Model):
    """The header `x-request-id`, which is in logs, traces and what instances get."""

    from_clients: bool = False
    """Keep an id that the client sent; else Envoy makes one for every request."""
    in_answers: bool = True
    """Put it into the answer, so that a client can name its request."""
