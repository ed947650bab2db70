"""The official download, against a local stub of its server that knows two paths and no others."""

import hashlib
import io
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from toolchain import official, pulumi
from toolchain.errors import ToolchainError
from toolchain.versions import versions

CLI = f"#!/bin/sh\necho v{versions().pulumi}\n"


class Server(ThreadingHTTPServer):
    """Serves what `content` holds, and remembers what it was asked for."""

    content: dict[str, bytes]
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = self.server.content.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the name is the base class's
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    stub = Server(("127.0.0.1", 0), Handler)
    stub.content, stub.asked = {}, []
    thread = threading.Thread(target=stub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv(official.BASE_VARIABLE, f"http://127.0.0.1:{stub.server_port}/releases/sdk/")
    monkeypatch.setenv("TF_SERVING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOOLCHAIN", "official")
    for variable in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    yield stub
    stub.shutdown()
    thread.join()
    stub.server_close()


def release(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in names or ("pulumi/pulumi", "pulumi/pulumi-language-python", "pulumi/LICENSE"):
            member = tarfile.TarInfo(name)
            member.size = len(CLI)
            member.mode = 0o644 if name.endswith("LICENSE") else 0o755
            tar.addfile(member, io.BytesIO(CLI.encode()))
    return buffer.getvalue()


def paths() -> tuple[str, str]:
    archive = official.archive_url().partition("/releases/")[2]
    return f"/releases/{archive}", f"/releases/sdk/pulumi-{versions().pulumi}-checksums.txt"


def serve(stub: Server, archive: bytes, *, digest: str | None = None, listed: str | None = None) -> None:
    archive_path, checksums_path = paths()
    name = listed or archive_path.rpartition("/")[2]
    stub.content[archive_path] = archive
    stub.content[checksums_path] = f"{digest or hashlib.sha256(archive).hexdigest()}  {name}\n".encode()


def test_the_release_for_this_machine_is_downloaded_checked_and_runs(server: Server) -> None:
    serve(server, release())
    found = pulumi.ensure(plugins=["docker"])
    assert server.asked == list(paths())
    assert found.origin == "official"
    assert (
        subprocess.run([found.pulumi], capture_output=True, text=True, check=True).stdout
        == f"v{found.version}\n"
    )
    assert found.env["PATH"].startswith(f"{found.pulumi.parent}:")
    assert found.env["PULUMI_HOME"].endswith("/.local/pulumi-home")


def test_the_executables_are_executable_and_the_rest_is_not(server: Server) -> None:
    serve(server, release())
    folder = pulumi.ensure(plugins=["docker"]).pulumi.parent
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in folder.iterdir()} == {
        "pulumi": "0o755",
        "pulumi-language-python": "0o755",
        "LICENSE": "0o644",
    }


def test_a_second_run_downloads_nothing(server: Server) -> None:
    serve(server, release())
    first = pulumi.ensure(plugins=["docker"])
    server.asked.clear()
    assert pulumi.ensure(plugins=["docker"]) == first
    assert server.asked == []


def test_an_archive_that_differs_from_the_published_checksum_is_not_used(
    server: Server, tmp_path: Path
) -> None:
    serve(server, release(), digest="0" * 64)
    with pytest.raises(ToolchainError, match=r"has SHA-256 .* says 0000"):
        pulumi.ensure(plugins=["docker"])
    assert official.find() is None
    assert [entry for entry in (tmp_path / "cache").rglob("*") if entry.name == "pulumi"] == []


def test_a_checksum_file_without_the_archive_is_an_error(server: Server) -> None:
    serve(server, release(), listed="pulumi-v0.0.1-linux-x64.tar.gz")
    with pytest.raises(ToolchainError, match="does not list pulumi-v"):
        pulumi.ensure(plugins=["docker"])


def test_a_mirror_without_checksums_is_used_with_a_word(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.content[paths()[0]] = release()
    assert pulumi.ensure(plugins=["docker"]).origin == "official"
    assert "no checksum to compare with" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../evil", "pulumi/../evil", "pulumi/deep/file", "/etc/evil", "pulumi/.."])
def test_an_archive_with_another_layout_is_refused(server: Server, name: str) -> None:
    serve(server, release("pulumi/pulumi", name))
    with pytest.raises(ToolchainError, match="unexpected entry"):
        pulumi.ensure(plugins=["docker"])
    assert official.find() is None


@pytest.mark.parametrize("archive", [b"", b"<html>sign in</html>", release()[:100]])
def test_something_that_is_no_archive_is_refused(server: Server, archive: bytes) -> None:
    serve(server, archive)
    with pytest.raises(ToolchainError, match="is not a release of Pulumi"):
        pulumi.ensure(plugins=["docker"])


def test_a_server_without_the_release_counts_as_unreachable(server: Server) -> None:
    with pytest.raises(official.UnreachableError, match="404"):
        official.get()


def test_an_unreachable_server_is_given_up_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(official.BASE_VARIABLE, "http://127.0.0.1:1/releases/sdk")
    with pytest.raises(official.UnreachableError, match="Connection refused"):
        official.get()
    assert server.asked == []
