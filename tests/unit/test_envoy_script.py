"""The script that gives Envoy its files, with a status page in the place of Envoy."""

import http.server
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.envoy_delivery import Delivery
from components.scripts import script
from tests import stacks
from tests.envoy.ground import SCRIPT, run_script

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
    assert "Envoy does not say that it has taken the files from before again" in said.said
    assert took_s < 3 + 2 + 3
    assert {(folder / name).read_text() for name in FILES} == {'version_info: "old"\nresources:\n'}


def test_a_trial_that_takes_all_of_its_time_leaves_the_publisher_some_for_what_comes_after() -> None:
    plan = stacks.plan(stacks.one_node()).nodes[0].front_end
    published = Delivery(plan=plan, network="n", secrets={}, image=None).publisher()
    steps = (published.then or "").replace(script("envoy_upgrade.sh"), "")
    stand_ins = "stage() { echo $((deadline - SECONDS)); }; stage_run() { :; }; volume=/nowhere"
    run = ["bash", "-c", f". {SCRIPT}; {stand_ins}; deadline=$((SECONDS - 1)); {steps}"]
    left = int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    whole = int(subprocess.run(["bash", "-c", f". {SCRIPT}; echo $deadline"], capture_output=True).stdout)
    # A page that does not answer is asked for 5 s more, in each part.
    assert 15 <= left <= published.patience_s - whole - 2 * 5


def test_an_instance_is_away_only_once_each_cluster_has_seen_it() -> None:
    def away(rest: str, grpc: str) -> bool:
        hosts = f'["rest-main 10.0.0.2"]={rest} ["grpc-main 10.0.0.2"]={grpc} ["rest-main 10.0.0.3"]=healthy'
        asked = f"declare -A flags=({hosts}); all_say 10.0.0.2 failed_active_hc"
        command = ["bash", "-c", f". {SCRIPT.with_name('drain.sh')}; {asked}"]
        return subprocess.run(command, check=False).returncode == 0

    assert away("/failed_active_hc", "/failed_active_hc/eds")
    assert not away("/failed_active_hc", "healthy")
    assert not away("healthy", "/failed_active_hc")


@pytest.fixture
def flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is synced, with the text that it had then, a line each."""
    tools, log = tmp_path / "tools", tmp_path / "flushed"
    tools.mkdir()
    (tools / "sync").write_text(
        f'#!/bin/bash\nfor f; do [[ -d $f ]] || echo "${{f##*/}} $(<"$f")" >>{log}; done\n'
    )
    (tools / "sync").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return log


def test_what_is_renamed_into_use_is_on_the_disk_before(tmp_path: Path, flushed: Path) -> None:
    new, folder = written(tmp_path / "new", "new"), written(tmp_path / "config", "old")
    assert run_script("give", folder, new / "cds.yaml", work=tmp_path).code == 0
    assert flushed.read_text() == '.new version_info: "new"\nresources:\n'
    flushed.unlink()
    assert run_script("keep_good", new, folder, work=tmp_path).code == 0
    assert {line.split()[0] for line in flushed.read_text().splitlines()[::2]} == set(FILES)
    assert (folder / ".good" / "cds.yaml").read_text() == (new / "cds.yaml").read_text()
