"""Digests from a registry: against a stub that answers as one must, and refuses everything else."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ops.errors import UserError
from ops.registry import Reference, digest_of, parse

DIGEST = "sha256:" + "0f" * 32


class Stub:
    """A registry with one image. `login` is what it wants before it gives a token; `token` may be off."""

    def __init__(self) -> None:
        self.digest = DIGEST
        self.bearer = False
        self.login: str | None = None
        self.asked: list[str] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                stub.asked.append(self.path)
                authorization = self.headers.get("Authorization")
                if stub.bearer and authorization != "Bearer t0ken":
                    realm = f"http://{stub.host}/token"
                    challenge = f'Bearer realm="{realm}",service="stub",scope="repository:team/server:pull"'
                    return self._answer(401, {"WWW-Authenticate": challenge})
                if self.path != "/v2/team/server/manifests/2.14.1-gpu":
                    return self._answer(404, {})
                if "application/vnd.oci.image.index.v1+json" not in self.headers.get("Accept", ""):
                    return self._answer(406, {})
                return self._answer(200, {"Docker-Content-Digest": stub.digest})

            def do_GET(self) -> None:
                wanted = stub.login and f"Basic {base64.b64encode(stub.login.encode()).decode()}"
                right = self.path == "/token?service=stub&scope=repository%3Ateam%2Fserver%3Apull"
                if not right or (wanted and self.headers.get("Authorization") != wanted):
                    return self._answer(401, {})
                return self._answer(200, {}, json.dumps({"token": "t0ken"}).encode())

            def _answer(self, code: int, headers: dict[str, str], body: bytes = b"") -> None:
                self.send_response(code)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.stop()


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("tensorflow/serving:2.14.1-gpu", ("registry-1.docker.io", "tensorflow/serving", "2.14.1-gpu")),
        ("debian:12", ("registry-1.docker.io", "library/debian", "12")),
        ("ghcr.example/a/b:v1", ("ghcr.example", "a/b", "v1")),
        ("localhost:5000/a:v1", ("localhost:5000", "a", "v1")),
        (f"a/b:v1@{DIGEST}", ("registry-1.docker.io", "a/b", "v1")),
    ],
)
def test_an_image_comes_from_docker_hub_unless_it_names_a_host(
    image: str, found: tuple[str, str, str]
) -> None:
    assert parse(image) == Reference(*found)


def test_only_this_machine_is_asked_without_tls() -> None:
    assert [
        parse(image).scheme for image in ("127.0.0.1:5000/a:b", "localhost:5000/a:b", "10.0.0.1:5000/a:b")
    ] == [
        "http",
        "http",
        "https",
    ]


@pytest.mark.parametrize("bearer", [False, True])
def test_the_registrys_own_digest_is_found(stub: Stub, tmp_path: Path, bearer: bool) -> None:
    stub.bearer = bearer
    assert digest_of(f"{stub.host}/team/server:2.14.1-gpu", tmp_path / "none.json") == DIGEST


def test_a_private_image_is_found_with_the_login_of_docker_login(stub: Stub, tmp_path: Path) -> None:
    stub.bearer, stub.login = True, "me:secret"
    config = tmp_path / "config.json"
    auth = base64.b64encode(b"me:secret").decode()
    config.write_text(json.dumps({"auths": {stub.host: {"auth": auth}}}))
    assert digest_of(f"{stub.host}/team/server:2.14.1-gpu", config) == DIGEST


def test_a_private_image_without_a_login_says_how_to_log_in(stub: Stub, tmp_path: Path) -> None:
    stub.bearer, stub.login = True, "me:secret"
    with pytest.raises(UserError, match="`docker login 127"):
        digest_of(f"{stub.host}/team/server:2.14.1-gpu", tmp_path / "none.json")


def test_a_tag_that_is_not_there_is_told(stub: Stub, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no .*:2\.99\.0-gpu"):
        digest_of(f"{stub.host}/team/server:2.99.0-gpu", tmp_path / "none.json")


def test_an_answer_without_a_digest_is_never_completed_by_one_of_ours(stub: Stub, tmp_path: Path) -> None:
    stub.digest = "sha256:short"
    with pytest.raises(UserError, match="named no digest"):
        digest_of(f"{stub.host}/team/server:2.14.1-gpu", tmp_path / "none.json")


def test_a_registry_that_cannot_be_reached_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"127\.0\.0\.1:1 cannot be reached"):
        digest_of("127.0.0.1:1/team/server:2.14.1-gpu", tmp_path / "none.json")
