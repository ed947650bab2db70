"""Where secrets are read, and how they get into Envoy's files: as encrypted outputs all the way."""

import hashlib
from collections.abc import Mapping

import pulumi

from components.config_volume import PublishedFile
from components.envoy_edge import SecretFile, edge_files, filled, secret_files
from components.envoy_run import ENVOY_USER
from components.front_end_plan import FrontEndPlan
from components.settings import FrontEnd

CERTIFICATE_DIGEST = "certificate"
_OWN = 0o600

Secrets = Mapping[str, pulumi.Output[str]]
"""Secret values of the configuration, by key."""


def read_secrets(spec: FrontEnd) -> Secrets:
    """Every secret that the settings name, from the stack's configuration."""
    config = pulumi.Config()
    return {key: config.require_secret(key) for key in spec.secrets.values()}


def private_files(front_end: FrontEndPlan, secrets: Secrets) -> dict[str, PublishedFile]:
    """What Envoy's listeners read beside their own file; what holds a secret, Envoy alone can read."""
    own = {file.name: _private(file, secrets) for file in secret_files(front_end)}
    return {**{name: PublishedFile(text=text) for name, text in edge_files(front_end).items()}, **own}


def certificate_digest(front_end: FrontEndPlan, secrets: Secrets) -> dict[str, pulumi.Output[str]]:
    """A file that tells a certificate and its key from others; none where nothing is encrypted."""
    tls = front_end.spec.tls
    if not tls:
        return {}
    both = pulumi.Output.all(secrets[tls.certificate], secrets[tls.private_key])
    digest: pulumi.Output[str] = both.apply(
        lambda texts: hashlib.sha256("\n".join(texts).encode()).hexdigest() + "\n"
    )
    return {CERTIFICATE_DIGEST: pulumi.Output.secret(digest)}


def _private(file: SecretFile, secrets: Secrets) -> PublishedFile:
    values: pulumi.Output[dict[str, str]] = pulumi.Output.all(**{key: secrets[key] for key in file.names})
    text: pulumi.Output[str] = values.apply(lambda known: filled(file, known))
    return PublishedFile(text=pulumi.Output.secret(text), mode=_OWN, owner=ENVOY_USER)
