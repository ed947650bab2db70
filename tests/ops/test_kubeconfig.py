"""Which API server a kubeconfig leads to, with a server on the loopback that answers who asked."""

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.cluster_certificates import Certificates
from ops.errors import UserError
from ops.kubeconfig import api_of

Json = dict[str, Any]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    made = Certificates(tmp_path / "certificates")
    made.make()
    return made


@pytest.fixture
def server(certificates: Certificates) -> Iterator[str]:
    """The URL of one that says who asked, by certificate or token, and for which path."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            peer = self.connection.getpeercert() or {}
            subject = dict(pair for (pair,) in peer.get("subject", ()))
            answer = {
                "path": self.path,
                "certificate": subject.get("commonName"),
                "token": self.headers.get("Authorization"),
            }
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.authority))
    tls.verify_mode = ssl.CERT_OPTIONAL
    tls.load_cert_chain(certificates.certificate("kube-apiserver"), certificates.key("kube-apiserver"))
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.socket = tls.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{listening.server_port}/below"
        listening.shutdown()
        thread.join()


def written(folder: Path, cluster: Json, user: Json) -> Path:
    file = folder / "kubeconfig"
    document = {
        "contexts": [
            {"name": "other", "context": {"cluster": "none", "user": "none"}},
            {"name": "gpus", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "current-context": "other",
    }
    file.write_text(yaml.safe_dump(document))
    return file


def data(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def test_certificates_are_taken_as_files_beside_it_or_in_place(
    certificates: Certificates, server: str, tmp_path: Path
) -> None:
    authority, own, key = (
        certificates.authority,
        certificates.certificate("admin"),
        certificates.key("admin"),
    )
    beside = {"client-certificate": str(own.relative_to(tmp_path)), "client-key": str(key)}
    in_place = {"client-certificate-data": data(own), "client-key-data": data(key)}
    for cluster, user in (
        ({"certificate-authority": str(authority)}, beside),
        ({"certificate-authority-data": data(authority)}, in_place),
    ):
        api = api_of(written(tmp_path, {"server": server, **cluster}, user), "gpus")
        answer = api.get("/api/v1/pods")
        assert answer["path"] == "/below/api/v1/pods"
        assert answer["certificate"]
        assert answer["token"] is None


def test_a_token_is_sent_from_in_place_a_file_or_a_command(
    certificates: Certificates, server: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    command = tmp_path / "login"
    command.write_text(
        "#!/bin/bash\n[[ $KUBERNETES_EXEC_INFO == *ExecCredential* ]] || exit 1\n"
        'printf \'{"status": {"token": "%s-%s"}}\' "$1" "$REALM"\n'
    )
    command.chmod(0o755)
    called = {"command": "./login", "args": ["from"], "env": [{"name": "REALM", "value": "command"}]}
    cluster = {"server": server, "certificate-authority": str(certificates.authority)}
    for user, token in (
        ({"token": "in-place"}, "in-place"),
        ({"tokenFile": "token"}, "from-file"),
        ({"exec": called}, "from-command"),
    ):
        answer = api_of(written(tmp_path, cluster, user), "gpus").get("/")
        assert answer["token"] == f"Bearer {token}"


def test_a_server_that_nobody_vouches_for_is_not_asked(server: str, tmp_path: Path) -> None:
    api = api_of(written(tmp_path, {"server": server}, {"token": "secret"}), "gpus")
    with pytest.raises(ssl.SSLCertVerificationError):
        api.get("/")


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"exec": {"command": "/no/such/program"}}, "/no/such/program gave no credentials"),
        ({"exec": {"command": "/bin/false"}}, "/bin/false gave no credentials"),
        ({"exec": {"command": "/bin/echo", "args": ["s3cret"]}}, "/bin/echo gave no credentials"),
    ],
)
def test_a_command_that_gives_nothing_is_named_without_what_it_printed(
    tmp_path: Path, user: Json, said: str
) -> None:
    with pytest.raises(UserError) as raised:
        api_of(written(tmp_path, {"server": "https://127.0.0.1:1"}, user), "gpus")
    assert said in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_a_context_or_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, {}, {})
    with pytest.raises(UserError, match="no context prod; there: other, gpus"):
        api_of(file, "prod")
    with pytest.raises(UserError, match="no cluster none; there: c"):
        api_of(file, "other")
    with pytest.raises(UserError, match="No such file"):
        api_of(tmp_path / "missing", "gpus")
