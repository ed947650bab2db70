"""Reads a kubeconfig: which API server a context leads to, and as whom. Runs in the virtual environment."""

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ops.errors import UserError
from ops.kube_api import Json, KubeApi

_EXEC_S = 60


def api_of(kubeconfig: Path, context: str) -> KubeApi:
    """The API server of a context, as the user that it names. Raises UserError for what cannot be used.

    Certificates, tokens and commands (`exec`) are understood, as files or in place; proxies are not.
    """
    document = _read(kubeconfig)
    chosen = _named(document, "contexts", "context", context, kubeconfig)
    cluster = _named(document, "clusters", "cluster", str(chosen.get("cluster")), kubeconfig)
    user = _named(document, "users", "user", str(chosen.get("user")), kubeconfig)
    if cluster.get("proxy-url"):
        raise UserError(f"{kubeconfig}: {context} goes through a proxy, which is not understood here")
    credentials = {**user, **_from_command(user, kubeconfig)}
    with tempfile.TemporaryDirectory() as folder:
        files = _Files(kubeconfig.parent, Path(folder))
        authority = files.path(cluster, "certificate-authority")
        tls = ssl.create_default_context(cafile=str(authority) if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        certificate = files.path(credentials, "client-certificate")
        if certificate:
            tls.load_cert_chain(certificate, files.path(credentials, "client-key"))
    return KubeApi(
        str(cluster.get("server")), tls, token=_token(credentials, kubeconfig.parent), host=_name(cluster)
    )


class _Files:
    """A thing that a kubeconfig holds as a path, relative to itself, or in place as `<name>-data`."""

    def __init__(self, beside: Path, folder: Path) -> None:
        self._beside = beside
        self._folder = folder

    def path(self, holder: Mapping[str, object], name: str) -> Path | None:
        data, path = holder.get(f"{name}-data"), holder.get(name)
        if isinstance(data, str):
            file = self._folder / name
            file.touch(mode=0o600)
            file.write_bytes(base64.b64decode(data))
            return file
        return self._beside / path if isinstance(path, str) else None


def _read(kubeconfig: Path) -> Json:
    import yaml

    try:
        document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{kubeconfig}: {str(error).splitlines()[0]}") from error
    return document if isinstance(document, dict) else {}


def _named(document: Json, section: str, kind: str, name: str, kubeconfig: Path) -> Json:
    entries = document.get(section) or []
    found: list[Json] = [each.get(kind) or {} for each in entries if each.get("name") == name]
    if not found:
        known = ", ".join(str(each.get("name")) for each in entries) or "none"
        raise UserError(f"{kubeconfig}: no {kind} {name}; there: {known}")
    return found[0]


def _name(cluster: Mapping[str, object]) -> str | None:
    """What the server's certificate is to say, where that is not its address."""
    name = cluster.get("tls-server-name")
    return name if isinstance(name, str) else None


def _token(credentials: Mapping[str, object], beside: Path) -> str | None:
    file = credentials.get("tokenFile")
    if isinstance(file, str):
        return (beside / file).read_text(encoding="utf-8").strip()
    token = credentials.get("token")
    return token if isinstance(token, str) else None


def _from_command(user: Mapping[str, object], kubeconfig: Path) -> Json:
    """What the command of a user prints (client.authentication.k8s.io), as the kubeconfig would say it."""
    how = user.get("exec")
    if not isinstance(how, dict):
        return {}
    own = {str(each["name"]): str(each["value"]) for each in how.get("env") or []}
    asked = {"apiVersion": how.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    command = [str(how.get("command")), *map(str, how.get("args") or [])]
    try:
        done = subprocess.run(
            command,
            cwd=kubeconfig.parent,
            env={**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_EXEC_S,
            check=True,
        )
        status: Json = json.loads(done.stdout)["status"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise UserError(f"{kubeconfig}: {command[0]} gave no credentials ({type(error).__name__})") from error
    found = {"token": status.get("token")} if status.get("token") else {}
    pairs = {"client-certificate": "clientCertificateData", "client-key": "clientKeyData"}
    for name, given in pairs.items():
        if status.get(given):
            found[f"{name}-data"] = base64.b64encode(status[given].encode()).decode()
    return found
