"""A key or a token that clients show travels encrypted: whoever listens would have it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pack.kubernetes import config_map
from pack.rule import Finding, Params, Rule
from pack.stack import Stack
from pack.workload import LABEL
from pack.yaml_text import parsed

NAME = "credentials-need-tls"
_IN_FRONT = f"{LABEL}tls-in-front"
_FIX = (
    "give its filter chain a transport_socket for TLS (front_end.tls; tls_secret on Kubernetes); or say that "
    f"something before it speaks TLS: the label {_IN_FRONT}: 'true'"
)
# Filters of Envoy that ask for a credential, or the header of one, which a general filter compares.
_CREDENTIAL = re.compile(r"jwt_authn|basic_auth|oauth2|api[-_]keys?|\bauthorization\b", re.IGNORECASE)
_ENCRYPTS = re.compile(r"tls|quic", re.IGNORECASE)


def check(stack: Stack, _params: Params) -> Iterator[Finding]:
    """The listeners in files: of Envoy itself, of what publishes them for it, of a ConfigMap."""
    for workload in stack.workloads:
        if not workload.says("tls-in-front") and not workload.is_exempt_from(NAME):
            for path, text in workload.files.items():
                for what in _open(text):
                    named = f"{workload.name}: {path}: {what}"
                    yield Finding(resource=workload.resource, what=named, fix=_FIX)
    for resource in stack.resources:
        found = config_map(resource)
        if found and not _is_behind_tls(resource.props):
            name, texts = found
            for path, text in texts.items():
                for what in _open(text):
                    yield Finding(resource=resource, what=f"{name}: data.{path}: {what}", fix=_FIX)


def _is_behind_tls(config_map: Mapping[str, object]) -> bool:
    metadata = config_map.get("metadata")
    parts = [metadata.get(part) for part in ("labels", "annotations")] if isinstance(metadata, dict) else []
    return any(isinstance(part, dict) and part.get(_IN_FRONT) == "true" for part in parts)


def _open(text: str) -> Iterator[str]:
    """Each listener of a file that asks for credentials without encryption."""
    if "filter_chain" not in text or not _CREDENTIAL.search(text):
        return
    try:
        document = parsed(text)
    except yaml.YAMLError:
        return  # no configuration of Envoy's
    for listener in _listeners(document):
        for chain in _chains(listener):
            asked = _credential(chain)
            if asked and not _ENCRYPTS.search(json.dumps(chain.get("transport_socket"), default=str)):
                yield f"listener {listener.get('name', 'without a name')}: {asked}: travels in the open"


def _listeners(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a file: what has no filter chain is none, and yields nothing further."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _listeners(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _listeners(inner)


def _chains(listener: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    several = listener.get("filter_chains")
    for chain in (*(several if isinstance(several, list) else ()), listener.get("default_filter_chain")):
        if isinstance(chain, dict):
            yield chain


def _credential(value: Any) -> str | None:
    """The first HTTP filter below that asks for a credential."""
    if isinstance(value, dict):
        filters = value.get("http_filters")
        for each in filters if isinstance(filters, list) else ():
            if _CREDENTIAL.search(json.dumps(each, default=str)):
                return str(each.get("name", "a filter")) if isinstance(each, dict) else "a filter"
        value = list(value.values())
    inner = value if isinstance(value, list) else ()
    return next((found for each in inner if (found := _credential(each)) is not None), None)


RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="No API key or token of a client travels in the open",
        severity="high",
        steps=(
            "Set `front_end.tls` (on Kubernetes `tls_secret`), or end TLS before the front end and say so: "
            "`auth.tls_in_front`, or the label `tf-serving.tls-in-front: 'true'`."
        ),
        why=(
            "https://github.com/formancehq/ledger/pull/1605",
            "https://github.com/kubernetes-sigs/gateway-api/pull/3500",
        ),
        exempt=(
            "Where something before the front end speaks TLS: the label `tf-serving.tls-in-front: 'true'` on "
            "what holds its listeners (the container, the one that publishes its files, the ConfigMap)."
        ),
        levels={"local": "disabled", "staging": "advisory", "prod": "mandatory"},
        check=check,
    ),
)
