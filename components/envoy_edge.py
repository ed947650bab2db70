"""The way in, as Envoy reads it: TLS, who may ask, how often, tracing; and the files that hold secrets."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address

from components import block_yaml
from components.edge_settings import Auth, Jwt, RateLimit
from components.envoy_config import (
    CONFIG_FOLDER,
    Config,
    extension,
    from_file,
    load_assignment,
    socket_address,
    typed,
)
from components.front_end_plan import FrontEndPlan
from components.settings import FrontEnd

API_KEY_HEADER = "x-api-key"
TRACING_CLUSTER = "tracing"
LEAST_API_KEY = 16

_API_KEYS = "api-keys"
API_KEYS_FILE = f"{_API_KEYS}.yaml"
"""Who may ask; holds keys."""
_CERTIFICATE = "tls"
EDGE_FILES = (
    f"{_CERTIFICATE}.crt",
    f"{_CERTIFICATE}.key",
    f"sds-{_CERTIFICATE}.yaml",
    f"{_API_KEYS}.yaml",
)
"""Every file that `secret_files` and `edge_files` may come to."""
# A bucket that never runs dry: only those of the clients count.
_PLENTY = 1_000_000
# Clients that have a bucket of their own at a time; who was silent longest loses it.
_MOST_CLIENTS = 10_000
_MARK = re.compile(r"\(secret ([a-z0-9_]+)\)")
_ALWAYS: Config = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}


@dataclass(frozen=True, kw_only=True)
class SecretFile:
    """A file that Envoy reads and only it may read; `text` holds a mark for each secret.

    `names` maps the marked keys of the configuration to what they are (`tls.private_key`).
    """

    name: str
    text: str
    names: Mapping[str, str]
    quoted: bool
    """The marks stand inside quotation marks, so a value is written as it must be there."""


def secret_files(front_end: FrontEndPlan) -> tuple[SecretFile, ...]:
    """The files that hold a node's secrets."""
    spec = front_end.spec
    files = []
    if spec.tls:
        for suffix, key, name in (
            ("crt", spec.tls.certificate, "tls.certificate"),
            ("key", spec.tls.private_key, "tls.private_key"),
        ):
            file = SecretFile(
                name=f"{_CERTIFICATE}.{suffix}", text=_mark(key), names={key: name}, quoted=False
            )
            files.append(file)
    if spec.auth and spec.auth.api_keys:
        files.append(api_keys_file(spec.auth))
    return tuple(files)


def api_keys_file(auth: Auth) -> SecretFile:
    """Who may ask, each by a key."""
    resource = typed(
        "config.core.v3.TypedExtensionConfig", {"name": _API_KEYS, "typed_config": _key_rules(auth)}
    )
    names = {known.key: f"the API key of {known.client}" for known in auth.api_keys}
    text = block_yaml.render({"resources": [resource]})
    return SecretFile(name=API_KEYS_FILE, text=text, names=names, quoted=True)


def edge_files(front_end: FrontEndPlan) -> dict[str, str]:
    """Text by file name of what stands beside the secrets and holds none."""
    if not front_end.spec.tls:
        return {}
    certificate = {
        "certificate_chain": {"filename": f"{CONFIG_FOLDER}/{_CERTIFICATE}.crt"},
        "private_key": {"filename": f"{CONFIG_FOLDER}/{_CERTIFICATE}.key"},
        "watched_directory": {"path": CONFIG_FOLDER},
    }
    resource = typed(
        "extensions.transport_sockets.tls.v3.Secret", {"name": _CERTIFICATE, "tls_certificate": certificate}
    )
    return {f"sds-{_CERTIFICATE}.yaml": block_yaml.render({"resources": [resource]})}


def filled(file: SecretFile, secrets: Mapping[str, str]) -> str:
    """The file's text with its secrets in it.

    Raises ValueError for one that cannot be what it should be; no message holds a value.
    """
    written = {key: _written(key, name, secrets[key].strip(), file) for key, name in file.names.items()}
    # All at once: a secret that holds another's mark stays as it is.
    text = _MARK.sub(lambda mark: written[mark[1]], file.text)
    return text if text.endswith("\n") else f"{text}\n"


def _written(key: str, name: str, value: str, file: SecretFile) -> str:
    if not file.quoted:
        if "-----BEGIN " not in value:
            raise ValueError(f"{key} ({name}): accepted: PEM, which begins with -----BEGIN")
        return value
    if len(value) < LEAST_API_KEY or not value.isascii() or not value.isprintable():
        accepted = f"{LEAST_API_KEY} printable ASCII characters or more, on one line"
        raise ValueError(f"{key} ({name}): accepted: {accepted}")
    return json.dumps(value)[1:-1]


def _mark(key: str) -> str:
    return f"(secret {key})"


def transport_socket(spec: FrontEnd, protocols: list[str]) -> Config:
    """The part of a filter chain that encrypts; nothing where TLS is off."""
    if not spec.tls:
        return {}
    common = {
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
        "alpn_protocols": protocols,
        "tls_certificate_sds_secret_configs": [
            {"name": _CERTIFICATE, "sds_config": from_file(f"sds-{_CERTIFICATE}")}
        ],
    }
    context = extension(
        "transport_sockets.tls",
        "transport_sockets.tls.v3.DownstreamTlsContext",
        {"common_tls_context": common},
    )
    # Else a client that never ends its handshake holds a connection for good.
    return {"transport_socket": context, "transport_socket_connect_timeout": "5s"}


def edge_filters(spec: FrontEnd) -> list[Config]:
    """The filters that a request passes first: the limit of all, who asks, the limit of each."""
    filters = []
    limit = spec.rate_limit
    if limit and limit.total_per_second:
        total = limit.total_per_second
        filters.append(_rate_limit("limit-of-all", 2 * total, total, {}))
    if spec.auth and spec.auth.jwt:
        filters.append(_tokens(spec.auth.jwt))
    elif spec.auth:
        # In a file of its own, so that no other holds a key. While it is not there, nothing passes.
        discovery = {
            "config_source": from_file(_API_KEYS),
            "type_urls": ["type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"],
        }
        filters.append({"name": _API_KEYS, "config_discovery": discovery})
    if limit:
        filters.append(_limit_of_each(limit, spec.auth))
    return filters


def _key_rules(auth: Auth) -> Config:
    # A policy for each client, whose name is then known to the log and the rate limit. The filter that is
    # made for API keys is marked as unfinished in Envoy 1.40.
    policies = {
        known.client: {
            "permissions": [{"any": True}],
            "principals": [{"header": {"name": API_KEY_HEADER, "string_match": {"exact": _mark(known.key)}}}],
        }
        for known in auth.api_keys
    }
    rules = {"action": "ALLOW", "policies": policies}
    return typed("extensions.filters.http.rbac.v3.RBAC", {"rules": rules})


def _tokens(jwt: Jwt) -> Config:
    keys = {"keys": [key.model_dump(exclude_none=True) for key in jwt.keys]}
    provider = {
        "issuer": jwt.issuer,
        "audiences": list(jwt.audiences),
        "local_jwks": {"inline_string": json.dumps(keys)},
        "from_headers": [{"name": "authorization", "value_prefix": "Bearer "}],
        "forward": False,
        "payload_in_metadata": "token",
        "require_expiration": True,
    }
    rules = [{"match": {"prefix": "/"}, "requires": {"provider_name": "issuer"}}]
    config = {"providers": {"issuer": provider}, "rules": rules}
    return extension("filters.http.jwt_authn", "filters.http.jwt_authn.v3.JwtAuthentication", config)


def _limit_of_each(limit: RateLimit, auth: Auth | None) -> Config:
    if auth is None:
        action: Config = {"remote_address": {}}
        key = "remote_address"
    else:
        key = "client"
        filter_name, *path = client_metadata(auth)
        named = {"key": filter_name, "path": [{"key": step} for step in path]}
        action = {
            "metadata": {
                "descriptor_key": key,
                "metadata_key": named,
                "source": "DYNAMIC",
                "default_value": "nobody",
            }
        }
    bucket = _bucket(limit.burst or 2 * limit.per_second, limit.per_second)
    more = {
        "rate_limits": [{"actions": [action]}],
        "descriptors": [{"entries": [{"key": key}], "token_bucket": bucket}],
        "max_dynamic_descriptors": _MOST_CLIENTS,
    }
    return _rate_limit("limit-of-each", _PLENTY, _PLENTY, more)


def client_metadata(auth: Auth) -> tuple[str, ...]:
    """Where a request's client stands, once it was let in: the filter, and the path in what it says."""
    if auth.jwt:
        return ("envoy.filters.http.jwt_authn", "token", auth.jwt.client_claim)
    return ("envoy.filters.http.rbac", "enforced_effective_policy_id")


def _rate_limit(name: str, burst: int, per_second: int, more: Config) -> Config:
    config = {
        "stat_prefix": name,
        "token_bucket": _bucket(burst, per_second),
        # Both are 0 % by default: the filter would be there and limit nothing.
        "filter_enabled": _ALWAYS,
        "filter_enforced": _ALWAYS,
        "rate_limited_as_resource_exhausted": True,
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        **more,
    }
    typed_config = typed("extensions.filters.http.local_ratelimit.v3.LocalRateLimit", config)
    return {"name": name, "typed_config": typed_config}


def _bucket(burst: int, per_second: int) -> Config:
    return {"max_tokens": burst, "tokens_per_fill": per_second, "fill_interval": "1s"}


def tracing(spec: FrontEnd) -> Config:
    """The part of a connection manager that traces; nothing where it is off."""
    if not spec.tracing:
        return {}
    uri = f"http://{spec.tracing.collector}:{spec.tracing.collector_port}/v1/traces"
    exporter = {"http_uri": {"uri": uri, "cluster": TRACING_CLUSTER, "timeout": "1s"}}
    provider = {
        "name": "envoy.tracers.opentelemetry",
        "typed_config": typed(
            "config.trace.v3.OpenTelemetryConfig", {"service_name": "tf-serving", "http_service": exporter}
        ),
    }
    return {
        "tracing": {
            # Else any client could have all of its requests traced.
            "client_sampling": {"value": 0},
            "random_sampling": {"value": spec.tracing.sample_percent},
            "overall_sampling": {"value": 100},
            "spawn_upstream_span": True,
            "provider": provider,
        }
    }


def tracing_clusters(spec: FrontEnd) -> list[Config]:
    """The cluster of the collector, where there is one."""
    if not spec.tracing:
        return []
    address = socket_address(spec.tracing.collector, spec.tracing.collector_port)
    return [
        {
            "name": TRACING_CLUSTER,
            "type": "STATIC" if _is_address(spec.tracing.collector) else "STRICT_DNS",
            "connect_timeout": "1s",
            "common_lb_config": {"healthy_panic_threshold": {"value": 1}},
            "load_assignment": load_assignment(TRACING_CLUSTER, [{"address": address}]),
        }
    ]


def _is_address(host: str) -> bool:
    try:
        IPv4Address(host)
    except AddressValueError:
        return False
    return True


def log_fields(spec: FrontEnd) -> Config:
    """What the access log says of who asked."""
    fields: Config = {}
    if spec.tls:
        fields["tls"] = "%DOWNSTREAM_TLS_VERSION%"
    if spec.auth:
        fields["client"] = f"%DYNAMIC_METADATA({':'.join(client_metadata(spec.auth))})%"
    return fields
