"""What breaks on a real engine: what still serves, what is said, and that the next `up` heals."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from images.build import ensure_images
from ops.engine import PrivateEngine
from ops.hosts import Host
from ops.unwell import report
from tests.integration.docker_cli import DockerCli
from tests.integration.drill import BackgroundUp, Drill, environment, heal, local_config, wait_until
from tests.pulumi_project import Project
from toolchain.tools import Toolchain

pytestmark = pytest.mark.integration

STACK = "broken"
PATIENCE_S = 10
DISK_MB = 400
_ROOM_FOR_NETWORKS = 2**17


@pytest.fixture(scope="module")
def own_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    made = PrivateEngine(tmp_path_factory.mktemp("engine"))
    made.start()
    try:
        ensure_images(made.docker_host)
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def own_project(
    tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain, own_engine: PrivateEngine
) -> Project:
    return Project(tmp_path_factory.mktemp("pulumi"), toolchain, environment(own_engine.docker_host))


@pytest.fixture
def drill(own_project: Project, own_engine: PrivateEngine, tmp_path: Path) -> Iterator[Drill]:
    made = Drill(own_project, DockerCli(own_engine.docker_host), STACK, _config(tmp_path))
    made.write()
    try:
        yield made
    finally:
        made.destroy()


def _config(folder: Path) -> dict[str, object]:
    """`main` on GPUs 0 and 1; `other`, whose model folder is a copy of its own, on GPU 2."""
    config = local_config(folder / "models")
    main = config["pools"][0]
    main["slots"] = [{"node": "local", "gpus": [0, 1]}]
    main["load_timeout_s"] = PATIENCE_S
    other = deepcopy(main)
    other["name"] = "other"
    other["slots"] = [{"node": "local", "gpus": [2]}]
    own = folder / "own"
    shutil.copytree(main["models"][0]["path"], own)
    other["models"] = [{"name": "other_model", "path": str(own)}]
    config["pools"] = [main, other]
    return config


def _own_folder(drill: Drill) -> Path:
    return Path(drill.config["pools"][1]["models"][0]["path"])


def _report(drill: Drill) -> str:
    return report(STACK, {"local": Host(drill.engine.docker_host)}, failed=True)


def test_a_missing_model_folder_fails_its_instance_by_name_and_the_others_serve(drill: Drill) -> None:
    folder = _own_folder(drill)
    folder.rename(folder.with_name("moved"))
    failed = drill.project.up(STACK, "--continue-on-error", "--suppress-outputs")
    assert failed.code != 0
    assert "(local-other-config-publisher)" in failed.output
    assert f"bind source path does not exist: {folder}" in failed.output
    assert drill.answers() == {"local-gpu0", "local-gpu1"}
    folder.with_name("moved").rename(folder)
    drill.up()


def test_an_empty_model_folder_is_said_with_the_servers_log_and_is_never_called_well(drill: Drill) -> None:
    version = _own_folder(drill) / "1"
    version.rename(drill.project.folder / "kept")
    failed = drill.project.up(STACK, "--continue-on-error", "--suppress-outputs")
    assert failed.code != 0
    assert "(local-gpu2-server)" in failed.output
    said = _report(drill)
    assert said.startswith(f"Not well:\n\n{STACK}.local-gpu2 on node local: runs, but its health is: ")
    assert "No versions of servable other_model found" in said
    assert drill.answers() == {"local-gpu0", "local-gpu1"}
    assert drill.project.up(STACK, "--continue-on-error", "--suppress-outputs").code != 0
    (drill.project.folder / "kept").rename(version)
    drill.up()
    assert drill.project.up(STACK, "--expect-no-changes").code == 0


def test_a_port_that_is_taken_is_said_and_the_front_end_comes_once_it_is_free(drill: Drill) -> None:
    port = drill.config["front_end"]["rest_port"]
    with socket.create_server(("127.0.0.1", port)):
        failed = drill.project.up(STACK, "--continue-on-error", "--suppress-outputs")
        assert failed.code != 0
        assert "(local-envoy-proxy)" in failed.output
        assert f"127.0.0.1:{port}" in failed.output
        assert "address already in use" in failed.output
        said = _report(drill)
        assert f"{STACK}.local-envoy on node local: created" in said
        assert f"{STACK}.local-gpu" not in said
    drill.up()
    assert drill.answers() == {"local-gpu0", "local-gpu1"}


def test_an_image_that_is_missing_is_named_and_what_runs_goes_on(drill: Drill) -> None:
    drill.up()
    before = drill.engine.ids()
    images = drill.config["images"]
    good = images["server"]
    # The loopback's port 1: refused at once, where a name would be looked up.
    images["server"] = "127.0.0.1:1/nobody/has-this:2.14.1-gpu"
    drill.write()
    failed = drill.project.up(STACK, "--continue-on-error", "--suppress-outputs")
    assert failed.code != 0
    assert "(local-server-image)" in failed.output
    assert "127.0.0.1:1/nobody/has-this:2.14.1-gpu" in failed.output
    assert drill.engine.ids() == before
    assert drill.answers() == {"local-gpu0", "local-gpu1"}
    images["server"] = good
    drill.write()
    drill.up()


def test_an_engine_that_is_killed_in_the_middle_of_an_up_comes_back_and_is_healed(
    drill: Drill, own_engine: PrivateEngine, tmp_path: Path
) -> None:
    with BackgroundUp(drill, tmp_path / "up.log") as running:
        wait_until(lambda: f"{STACK}.local-gpu0" in drill.engine.names("container"), "the first container")
        pid = own_engine.dockerd.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        code = running.process.wait(timeout=120)
        assert code != 0, running.said()
        assert f"{own_engine.run_dir.name}" in running.said()
    own_engine.start()
    # It may have made a container and died before it said so: `up` alone then meets a name that is taken.
    heal(drill)
    drill.up()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of its own; a machine that does not permit mounts skips what needs it."""
    image, folder = tmp_path / "disk.img", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_MB * 2**20)
    for command in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(folder)]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip(f"{command[0]} is not installed")
        if done.returncode != 0:
            pytest.skip(f"no mounts here: {' '.join(command)}: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_said_and_the_next_up_heals_once_there_is_room(
    small_disk: Path, tmp_path: Path, toolchain: Toolchain
) -> None:
    full = PrivateEngine(small_disk / "engine")
    full.start()
    try:
        ensure_images(full.docker_host)
        (tmp_path / "pulumi").mkdir()
        project = Project(tmp_path / "pulumi", toolchain, environment(full.docker_host))
        drill = Drill(project, DockerCli(full.docker_host), STACK, _config(tmp_path))
        drill.write()
        filler = small_disk / "filler"
        _fill(filler)
        failed = project.up(STACK)
        assert failed.code != 0
        assert "no space left on device" in failed.output
        filler.unlink()
        drill.up()
        drill.destroy()
    finally:
        full.remove()


def _fill(file: Path) -> None:
    """All but what networks need: one that an engine cannot write down it keeps until its next start."""
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"\0" * 2**16)
        except OSError:
            out.truncate(out.tell() - _ROOM_FOR_NETWORKS)
