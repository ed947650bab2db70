"""A real private engine: what the local stack asks of one, beside another, and after it was killed."""

import io
import os
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.daemon import processes_with
from ops.engine import PrivateEngine
from ops.errors import UserError
from tests.envoy.harness import wait_for

pytestmark = pytest.mark.integration

GPU = "GPU-00000000-0000-4000-8000-000000000001"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    # A long path, with a space: sockets must not lie below it.
    folder = tmp_path_factory.mktemp("engine") / ("long folder name " * 8)
    made = PrivateEngine(folder)
    made.start()
    import_shell(made)
    yield made
    made.remove()


def docker(engine: PrivateEngine, *arguments: str) -> str:
    command = ["docker", "--host", engine.docker_host, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def import_shell(engine: PrivateEngine) -> None:
    """An image that holds this machine's `sh` and its libraries."""
    shell = Path("/bin/sh").resolve()
    listed = subprocess.run(["ldd", str(shell)], capture_output=True, text=True, check=True).stdout
    files = {word for word in listed.split() if word.startswith("/")}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(shell, "bin/sh")
        for file in sorted(files):
            archive.add(Path(file).resolve(), file.lstrip("/"))
    command = ["docker", "--host", engine.docker_host, "import", "-", "shell"]
    subprocess.run(command, input=packed.getvalue(), check=True, capture_output=True)


def rules() -> list[str]:
    saved = [
        subprocess.run(["iptables", "-t", table, "-S"], capture_output=True, text=True, check=True).stdout
        for table in ("filter", "nat")
    ]
    return "".join(saved).splitlines()


def test_a_process_is_shown_the_one_gpu_of_its_device_request(engine: PrivateEngine) -> None:
    script = "echo $NVIDIA_VISIBLE_DEVICES"
    shown = docker(
        engine, "run", "--rm", "--network=none", f"--gpus=device={GPU}", "shell", "/bin/sh", "-c", script
    )
    assert shown == GPU


def test_cpu_set_and_memory_without_swap_are_accepted(engine: PrivateEngine) -> None:
    name = docker(
        engine,
        "create",
        "--cpuset-cpus=0",
        "--memory=64m",
        "--memory-swap=64m",
        "shell",
        "/bin/sh",
        "-c",
        "exit",
    )
    docker(engine, "start", "--attach", name)
    form = "{{.HostConfig.CpusetCpus}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}}"
    assert docker(engine, "inspect", "--format", form, name) == "0 67108864 67108864"


def test_fixed_addresses_in_an_internal_network_of_a_declared_subnet(engine: PrivateEngine) -> None:
    docker(engine, "network", "create", "--internal", "--subnet=10.234.7.0/24", "inner")
    docker(
        engine, "run", "--detach", "--network=inner", "--ip=10.234.7.11", "--name=fixed", "--publish-all",
        "shell", "/bin/sh", "-c", "read forever </dev/zero",
    )  # fmt: skip
    form = "{{.NetworkSettings.Networks.inner.IPAddress}}"
    assert docker(engine, "inspect", "--format", form, "fixed") == "10.234.7.11"
    docker(engine, "rm", "--force", "fixed")
    docker(engine, "network", "rm", "inner")


def test_starting_a_running_engine_again_keeps_the_process(engine: PrivateEngine) -> None:
    before = engine.dockerd.pid()
    PrivateEngine(engine.folder).start()
    assert engine.dockerd.pid() == before is not None


def test_a_second_engine_leaves_the_first_ones_rules_and_containers_alone(
    engine: PrivateEngine, tmp_path: Path
) -> None:
    docker(
        engine, "run", "--detach", "--name=neighbour", "--publish=127.0.0.1::80",
        "shell", "/bin/sh", "-c", "read forever </dev/zero",
    )  # fmt: skip
    before = rules()
    second = PrivateEngine(tmp_path / "second")
    second.start()
    try:
        assert second.docker_host != engine.docker_host
        assert docker(second, "ps", "--all", "--quiet") == ""
        assert [rule for rule in before if rule not in rules()] == []
    finally:
        second.remove()
    assert rules() == before
    assert not second.run_dir.exists()
    assert docker(engine, "inspect", "--format", "{{.State.Running}}", "neighbour") == "true"
    docker(engine, "rm", "--force", "neighbour")


def test_a_stopped_engine_leaves_no_device_or_rule_of_its_networks(tmp_path: Path) -> None:
    other = PrivateEngine(tmp_path / "other")
    other.start()
    try:
        plain = docker(other, "network", "create", "plain")
        docker(other, "network", "create", "--opt=com.docker.network.bridge.name=tfs-named", "named")
        made = {other.bridge, f"br-{plain[:12]}", "tfs-named"}
        assert traces_of(made) >= made
        other.stop()
        assert traces_of(made) == set()
        other.start()
        assert traces_of(made) >= made
    finally:
        other.remove()
    assert traces_of(made) == set()


def traces_of(devices: set[str]) -> set[str]:
    """Those of the network devices that exist, and the firewall rules that name one of them."""
    existing = {name for name in devices if Path(f"/sys/class/net/{name}").exists()}
    return existing | {rule for rule in rules() if devices & set(rule.split())}


def test_an_engine_killed_with_its_containers_running_starts_again_with_its_images(
    engine: PrivateEngine,
) -> None:
    docker(engine, "run", "--detach", "--name=orphan", "shell", "/bin/sh", "-c", "read forever </dev/zero")
    for pid in (engine.dockerd.pid(), *processes_with(f"--address={engine.run_dir}")):
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    engine.start()
    assert docker(engine, "inspect", "--format", "{{.State.Running}}", "orphan") == "false"
    assert docker(engine, "images", "--quiet", "shell") != ""
    docker(engine, "rm", "orphan")


def test_an_engine_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    broken = PrivateEngine(tmp_path / "broken")
    broken.folder.mkdir()
    (broken.folder / "data").write_text("a file where a folder is due")
    with pytest.raises(UserError, match=r"(?s)dockerd ended at once.*dockerd\.log:\n  .*data"):
        broken.start()
    assert broken.dockerd.pid() is None
    assert not broken.run_dir.exists()
    assert processes_with(str(broken.run_dir)) == []


def test_an_engine_whose_containerd_died_is_made_whole_by_a_start(tmp_path: Path) -> None:
    engine = PrivateEngine(tmp_path)
    engine.start()
    try:
        pid = int((tmp_path / "containerd.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        wait_for("its end is seen", lambda: not engine.whole())
        engine.start()
        assert engine.whole()
    finally:
        engine.stop()
