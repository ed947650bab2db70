"""The way in on a real Envoy: TLS, API keys, tokens, rate limits, request ids, tracing."""

import contextlib
import http.server
import socket
import ssl
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from components.envoy_edge import filled, secret_files
from tests.envoy import stand_ins
from tests.envoy.harness import PREDICT, Site, site, wait_for
from tests.envoy.pools import SmallPool

pytestmark = pytest.mark.envoy

ONE = [SmallPool(instances=1, models=["resnet"])]
PATH = "/v1/models/resnet:predict"
KEYS = {"auth": {"api_keys": [{"client": "team-a", "key": "key_a"}, {"client": "team-b", "key": "key_b"}]}}
TOKENS = {
    "auth": {
        "jwt": {"issuer": stand_ins.ISSUER, "audiences": [stand_ins.AUDIENCE], "keys": [stand_ins.jwk()]}
    }
}


@pytest.fixture(scope="module")
def keyed(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    settings = {**KEYS, "tls": {}, "rate_limit": {"per_second": 1000, "burst": 1000}}
    with site(envoy_binary, tmp_path_factory.mktemp("envoy"), ONE, settings) as made:
        yield made


@pytest.fixture(scope="module")
def tokens(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(envoy_binary, tmp_path_factory.mktemp("envoy"), ONE, TOKENS) as made:
        yield made


def asked(made: Site, headers: Mapping[str, str] | None = None, path: str = PATH) -> int:
    return made.rest("POST", path, b"{}", headers).status


# TLS


def handshake(made: Site, version: ssl.TLSVersion, port: int) -> str | None:
    context = ssl.create_default_context(cadata=stand_ins.certificate()[0])
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):  # an old version is what is asked for
        context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", port), 10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as wrapped,
    ):
        return wrapped.version()


def test_both_ports_speak_tls_1_2_and_newer_and_nothing_older(keyed: Site) -> None:
    for port in (keyed.plan.spec.rest_port, keyed.plan.spec.grpc_port):
        assert handshake(keyed, ssl.TLSVersion.TLSv1_2, port) == "TLSv1.2"
        assert handshake(keyed, ssl.TLSVersion.TLSv1_3, port) == "TLSv1.3"
        with pytest.raises(ssl.SSLError):
            handshake(keyed, ssl.TLSVersion.TLSv1_1, port)


def test_a_client_that_does_not_encrypt_gets_no_answer(keyed: Site) -> None:
    with socket.create_connection(("127.0.0.1", keyed.plan.spec.rest_port), 10) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert not client.recv(100)


def test_a_new_certificate_is_served_without_a_restart_or_a_lost_request(
    envoy_binary: Path, tmp_path: Path
) -> None:
    with site(envoy_binary, tmp_path, ONE, {"tls": {}}) as made:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE

        def served() -> str:
            port = made.plan.spec.rest_port
            with (
                socket.create_connection(("127.0.0.1", port), 10) as raw,
                context.wrap_socket(raw) as wrapped,
            ):
                certificate = wrapped.getpeercert(binary_form=True)
                assert certificate
                return ssl.DER_cert_to_PEM_cert(certificate).strip()

        assert served() == stand_ins.certificate()[0].strip()
        renewed = stand_ins.secrets("renewed")
        # As the publisher does it: each file whole, by a rename.
        for file in secret_files(made.plan):
            fresh = made.ground.folder / f".{file.name}"
            fresh.write_text(filled(file, renewed))
            fresh.replace(made.ground.folder / file.name)
        wait_for("the new certificate", lambda: served() == renewed["tls_certificate"].strip())


# API keys


@pytest.mark.parametrize("key", stand_ins.API_KEYS.values())
def test_a_clients_key_lets_it_in_and_goes_no_further(keyed: Site, key: str) -> None:
    [backend] = keyed.backends.values()
    backend.seen()
    assert asked(keyed, {"x-api-key": key}) == 200
    [request] = backend.seen()
    assert "x-api-key" not in request
    assert keyed.grpc(PREDICT, b"", [("x-api-key", key)])[1] == backend.name


@pytest.mark.parametrize(
    "key", [None, "", "0123456789abcdeF", "0123456789abcdef0", "(secret key_b)", "key_b"]
)
def test_anything_else_is_refused_and_reaches_no_instance(keyed: Site, key: str | None) -> None:
    headers = {} if key is None else {"x-api-key": key}
    [backend] = keyed.backends.values()
    backend.seen()
    answer = keyed.rest("POST", PATH, b"{}", headers)
    assert answer.status == 403
    assert list(answer.json()) == ["error"]
    with pytest.raises(grpc.RpcError) as denied:
        keyed.grpc(PREDICT, b"", list(headers.items()))
    assert denied.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert backend.seen() == []


def test_a_key_opens_no_path_that_is_closed(keyed: Site) -> None:
    headers = {"x-api-key": stand_ins.API_KEYS["key_b"]}
    assert asked(keyed, headers, "/monitoring/prometheus/metrics") == 404
    # What a balancer asks needs no key.
    assert keyed.rest("GET", "/healthz").status == 200


def test_the_log_names_the_client_and_holds_no_key(keyed: Site) -> None:
    asked(keyed, {"x-api-key": stand_ins.API_KEYS["key_a"]}, f"{PATH}?logged")

    def logged() -> list[dict[str, object]]:
        return [line for line in keyed.log_lines() if line["path"] == f"{PATH}?logged"]

    wait_for("the line", lambda: logged() != [])
    assert (logged()[0]["client"], str(logged()[0]["tls"])[:5]) == ("team-a", "TLSv1")
    text = keyed.log.read_text()
    assert not [key for key in stand_ins.API_KEYS.values() if key in text]


def test_without_its_file_of_keys_nothing_passes(envoy_binary: Path, tmp_path: Path) -> None:
    with site(envoy_binary, tmp_path, ONE, KEYS) as made:
        key = {"x-api-key": stand_ins.API_KEYS["key_b"]}
        assert asked(made, key) == 200
        # A new file lets in who is in it, and shuts out who is not.
        [file] = secret_files(made.plan)
        fresh = made.ground.folder / ".fresh"
        fresh.write_text(filled(file, {"key_a": "another-key-of-a", "key_b": "another-key-of-b"}))
        fresh.replace(made.ground.folder / file.name)
        wait_for("the old key is out", lambda: asked(made, key) == 403)
        assert asked(made, {"x-api-key": "another-key-of-b"}) == 200


# Tokens


def bearer(**claims: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {stand_ins.token(**claims)}"}


def test_a_token_of_the_issuer_lets_in_and_goes_no_further(tokens: Site) -> None:
    [backend] = tokens.backends.values()
    backend.seen()
    headers = bearer()
    assert asked(tokens, headers) == 200
    [request] = backend.seen()
    assert "authorization" not in request
    assert tokens.grpc(PREDICT, b"", list(headers.items()))[1] == backend.name


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"exp": 1_700_000_000}, 401),
        ({"exp": None}, 401),
        ({"nbf": 4_000_000_000}, 401),
        ({"aud": "elsewhere"}, 403),
        ({"iss": "https://elsewhere.example.com"}, 401),
    ],
)
def test_a_token_that_does_not_hold_is_refused(tokens: Site, claims: dict[str, Any], status: int) -> None:
    assert asked(tokens, bearer(**claims)) == status


def test_without_a_token_or_with_a_forged_one_nobody_passes(tokens: Site) -> None:
    head, body, signature = stand_ins.token().split(".")
    other = stand_ins.token(sub="admin").split(".")[1]
    for value in ("", "Bearer", "Bearer x", f"Bearer {head}.{other}.{signature}", f"Bearer {head}.{body}."):
        assert asked(tokens, {"authorization": value}) == 401
    assert asked(tokens) == 401
    with pytest.raises(grpc.RpcError) as denied:
        tokens.grpc()
    assert denied.value.code() is grpc.StatusCode.UNAUTHENTICATED


# Rate limits


def burst(made: Site, headers: Mapping[str, str], count: int = 60) -> Counter[int]:
    return Counter(asked(made, headers) for _ in range(count))


def grpc_burst(made: Site, key: str, count: int = 60) -> set[grpc.StatusCode]:
    codes = set()
    for _ in range(count):
        try:
            made.grpc(PREDICT, b"", [("x-api-key", key)])
        except grpc.RpcError as error:
            codes.add(error.code())
    return codes


def test_each_client_has_its_own_limit(envoy_binary: Path, tmp_path: Path) -> None:
    settings = {**KEYS, "rate_limit": {"per_second": 1, "burst": 10}}
    with site(envoy_binary, tmp_path, ONE, settings) as made:
        started = time.monotonic()
        first = burst(made, {"x-api-key": stand_ins.API_KEYS["key_a"]})
        took = time.monotonic() - started
        assert set(first) == {200, 429}
        assert 10 <= first[200] <= 11 + took
        assert burst(made, {"x-api-key": stand_ins.API_KEYS["key_b"]}, 10)[200] >= 10
        # Who has no key uses up nobody's share.
        assert burst(made, {}, 5) == Counter({403: 5})
        assert grpc.StatusCode.RESOURCE_EXHAUSTED in grpc_burst(made, stand_ins.API_KEYS["key_a"])


def test_tokens_are_limited_by_their_claim(envoy_binary: Path, tmp_path: Path) -> None:
    settings = {**TOKENS, "rate_limit": {"per_second": 1, "burst": 5}}
    with site(envoy_binary, tmp_path, ONE, settings) as made:
        assert 429 in burst(made, bearer(sub="a"), 30)
        assert burst(made, bearer(sub="b"), 5) == Counter({200: 5})
        # Who has none of the claim shares one limit.
        assert 429 in burst(made, bearer(sub=None), 30)


def test_without_keys_an_address_is_a_client_and_all_have_a_limit_too(
    envoy_binary: Path, tmp_path: Path
) -> None:
    with site(envoy_binary, tmp_path, ONE, {"rate_limit": {"per_second": 1, "burst": 5}}) as made:
        assert 429 in burst(made, {}, 30)
        # A header makes nobody another client.
        assert set(burst(made, {"x-forwarded-for": "192.0.2.1"}, 10)) == {429}
    (folder := tmp_path / "all").mkdir()
    limit = {"per_second": 1000, "burst": 1000, "total_per_second": 3}
    with site(envoy_binary, folder, ONE, {"rate_limit": limit}) as made:
        assert 429 in burst(made, {}, 40)


# Request ids and tracing


def test_every_answer_has_an_id_and_a_clients_own_is_kept_only_on_request(
    envoy_binary: Path, tmp_path: Path
) -> None:
    own = {"x-request-id": "mine"}
    for name, settings, kept in (("a", {}, False), ("b", {"request_ids": {"from_clients": True}}, True)):
        (folder := tmp_path / name).mkdir()
        with site(envoy_binary, folder, ONE, settings) as made:
            answer = made.rest("POST", PATH, b"{}", own)
            assert (answer.headers["x-request-id"] == "mine") == kept
            assert len(made.rest("POST", PATH, b"{}").headers["x-request-id"]) == 36
    (folder := tmp_path / "c").mkdir()
    with site(envoy_binary, folder, ONE, {"request_ids": {"in_answers": False}}) as made:
        assert "x-request-id" not in made.rest("POST", PATH, b"{}").headers


def test_a_sampled_log_leaves_out_what_went_well_and_nothing_else(envoy_binary: Path, tmp_path: Path) -> None:
    with site(envoy_binary, tmp_path, ONE, {"access_log": {"sample_percent": 0}}) as made:
        assert asked(made, path=f"{PATH}?well") == 200
        made.grpc(PREDICT)
        made.rest("GET", "/healthz")
        assert asked(made, path="/nowhere?wrong") == 404
        with pytest.raises(grpc.RpcError):
            made.grpc("/tensorflow.serving.ModelService/HandleReloadConfigRequest")
        wait_for("both that went wrong", lambda: len(made.log_lines()) == 2)
        assert {(line["path"], line["status"]) for line in made.log_lines()} == {
            ("/nowhere?wrong", 404),
            ("/tensorflow.serving.ModelService/HandleReloadConfigRequest", 200),
        }


class Collector(http.server.ThreadingHTTPServer):
    """Counts what is sent to it as OTLP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Collected)
        self.bodies: list[bytes] = []


class Collected(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        assert self.path == "/v1/traces"
        assert self.headers["transfer-encoding"] == "chunked"
        while size := int(self.rfile.readline(), 16):
            self.server.bodies.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.parametrize(("percent", "traced"), [(100, True), (0, False)])
def test_spans_reach_the_collector_and_no_client_can_ask_for_them(
    envoy_binary: Path, tmp_path: Path, percent: int, traced: bool
) -> None:
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever, daemon=True)
    thread.start()
    settings = {
        "tracing": {
            "collector": "127.0.0.1",
            "collector_port": collector.server_port,
            "sample_percent": percent,
        }
    }
    try:
        with site(envoy_binary, tmp_path, ONE, settings) as made:
            forcing = {"x-client-trace-id": "please", "x-envoy-force-trace": "1"}
            for _ in range(20):
                assert asked(made, forcing) == 200
            if traced:
                wait_for("a span", lambda: any(b"tf-serving" in body for body in collector.bodies))
            else:
                wait_for(
                    "Envoy has decided on each", lambda: made.stat("http.rest.tracing.not_traceable") >= 20
                )
                assert made.stat("http.rest.tracing.client_enabled") == 0
                assert made.stat("tracing.opentelemetry.spans_sent") == 0
                assert collector.bodies == []
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()
