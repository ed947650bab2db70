"""The script that gives Envoy its files, with a status page in the place of Envoy."""

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.envoy.ground import run_script

FILES = ("eds-rest-main.yaml", "cds.yaml", "rds-rest.yaml", "lds.yaml")


class Page(http.server.BaseHTTPRequestHandler):
    """Says of no file that it was taken."""

    def do_GET(self) -> None:
        body = b'cluster_manager.cds.version_text: "other"\n'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def written(folder: Path, version: str) -> Path:
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text(f'version_info: "{version}"\nresources:\n')
    return folder


def test_all_steps_together_keep_to_the_time_that_they_have(tmp_path: Path, port: int) -> None:
    new, folder = written(tmp_path / "new", "new"), written(tmp_path / "config", "old")
    begin = time.monotonic()
    where = (new, folder, "127.0.0.1", port)
    said = run_script("apply", *where, work=tmp_path / "work", patience_s=3, put_back_s=2)
    took_s = time.monotonic() - begin
    assert said.code == 1
    assert "Envoy has not taken in time: eds-rest-main.yaml cds.yaml" in said.said
    assert "the files from before are back" in said.said
    assert took_s < 3 + 2 + 3
    assert {(folder / name).read_text() for name in FILES} == {'version_info: "old"\nresources:\n'}
