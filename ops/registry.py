"""Asks a container registry which digest a tag stands for (OCI distribution specification, version 2)."""

import base64
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from ops.errors import UserError

_DOCKER_HUB = "registry-1.docker.io"
_HUB_LOGIN = "https://index.docker.io/v1/"
_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TIMEOUT_S = 20


@dataclass(frozen=True)
class Reference:
    """`repository:tag` as a registry knows it."""

    host: str
    repository: str
    tag: str

    @property
    def scheme(self) -> str:
        """Plain HTTP for this machine alone, as the engine does it."""
        return "http" if re.match(r"(localhost|127\.)", self.host) else "https"


def parse(image: str) -> Reference:
    """Where an image comes from: Docker Hub unless its first part names a host."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    first, _, rest = name.partition("/")
    if rest and (re.search(r"[.:]", first) or first == "localhost"):
        return Reference(first, rest, tag)
    return Reference(_DOCKER_HUB, name if rest else f"library/{name}", tag)


def digest_of(image: str, docker_config: Path) -> str:
    """The digest of `repository:tag` now; `docker_config` has the logins of `docker login`.

    Raises UserError where the registry cannot be reached, refuses, or knows no such tag.
    """
    found = parse(image)
    url = f"{found.scheme}://{found.host}/v2/{found.repository}/manifests/{found.tag}"
    basic = _login(found.host, docker_config)
    try:
        return _ask(url, image, f"Basic {basic}" if basic else None)
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "")
        if error.code != http.HTTPStatus.UNAUTHORIZED or not challenge.lower().startswith("bearer "):
            raise UserError(_refusal(image, found.host, error.code)) from None
    try:
        return _ask(url, image, f"Bearer {_token(challenge, basic)}")
    except urllib.error.HTTPError as error:
        raise UserError(_refusal(image, found.host, error.code)) from None


def _ask(url: str, image: str, authorization: str | None) -> str:
    request = urllib.request.Request(url, method="HEAD", headers={"Accept": _ACCEPT})  # noqa: S310 - http(s) only
    if authorization:
        request.add_header("Authorization", authorization)
    answer = _open(request)
    digest = answer.headers.get("Docker-Content-Digest", "")
    if not _DIGEST.fullmatch(digest):
        raise UserError(
            f"{urllib.parse.urlsplit(url).netloc} named no digest for {image}: {digest or 'nothing'}"
        )
    return digest


def _token(challenge: str, basic: str | None) -> str:
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    realm = fields.get("realm", "")
    if not realm.startswith(("https://", "http://localhost", "http://127.")):
        raise UserError(f"The registry asks for a token from {realm or 'nowhere'}, which is not https://.")
    request = urllib.request.Request(f"{realm}?{query}")  # noqa: S310 - checked above
    if basic:
        request.add_header("Authorization", f"Basic {basic}")
    answer = json.loads(_open(request).read())
    return str(answer.get("token") or answer.get("access_token"))


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310 - http(s)
    except urllib.error.HTTPError:
        raise
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UserError(f"{request.host} cannot be reached: {reason}") from None
    return answer


def _refusal(image: str, host: str, code: int) -> str:
    if code == http.HTTPStatus.NOT_FOUND:
        return f"{host} has no {image}."
    if code in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        return (
            f"{host} does not show you {image}: `docker login {host}` first; credential helpers are not read."
        )
    return f"{host} answered {code} for {image}; try again later."


def _login(host: str, docker_config: Path) -> str | None:
    try:
        logins = json.loads(docker_config.read_text(encoding="utf-8")).get("auths", {})
    except (OSError, ValueError, AttributeError):
        return None
    entry = logins.get(_HUB_LOGIN if host == _DOCKER_HUB else host, {})
    if entry.get("auth"):
        return str(entry["auth"])
    if entry.get("username"):
        return base64.b64encode(f"{entry['username']}:{entry.get('password', '')}".encode()).decode()
    return None
