"""Both images in a real engine: GPU, entrypoints, users, signals."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.build import ensure_images
from images.samples import write_sample_models
from images.simulator import NAME as SIMULATOR
from ops.engine import PrivateEngine

pytestmark = pytest.mark.integration
ENVOY = "tf-serving-envoy:1.40.0"
GPU = "GPU-00000000-1111-2222-3333-444444444444"
# The health check of the containers: nothing but bash.
ASK = (
    "exec 3<>/dev/tcp/127.0.0.1/8501; "
    "printf 'GET /v1/models/half_plus_two/metadata HTTP/1.1\\r\\nHost: h\\r\\n' >&3; "
    "printf 'Connection: close\\r\\n\\r\\n' >&3; "
    "read -r line <&3; [[ $line == *' 200 '* ]]"
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    engine = PrivateEngine(tmp_path_factory.mktemp("images-engine"))
    engine.start()
    try:
        ensure_images(engine.docker_host)
        yield engine
    finally:
        engine.remove()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_sample_models(folder)
    return folder


def docker(engine: PrivateEngine, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["docker", "--host", engine.docker_host, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def server(engine: PrivateEngine, models: Path) -> Iterator[str]:
    """A container of the simulator as the stock image is run, answering."""
    options = ["--network", "none", "--gpus", f'"device={GPU}"', "--env", "MODEL_NAME=half_plus_two"]
    mount = ["--volume", f"{models}:/models:ro", "--read-only", "--cap-drop", "ALL"]
    container = docker(engine, "run", "--detach", *options, *mount, SIMULATOR).stdout.strip()
    try:
        deadline = time.monotonic() + 20
        while docker(engine, "exec", container, "bash", "-c", ASK).returncode != 0:
            assert time.monotonic() < deadline, docker(engine, "logs", container).stderr
            time.sleep(0.1)
        yield container
    finally:
        docker(engine, "rm", "--force", container)


def test_images_that_are_there_are_left_alone(
    engine: PrivateEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    def identities() -> set[str]:
        return set(docker(engine, "images", "--quiet", "--no-trunc").stdout.split())

    before = identities()
    ensure_images(engine.docker_host)
    assert identities() == before
    assert capsys.readouterr().err == ""


def test_the_server_sees_the_gpu_of_its_device_request(engine: PrivateEngine, server: str) -> None:
    assert f'on GPU "{GPU}"' in docker(engine, "logs", server).stderr


def test_without_a_device_request_the_server_does_not_start(engine: PrivateEngine) -> None:
    done = docker(engine, "run", "--rm", "--network", "none", SIMULATOR)
    assert done.returncode == 64
    assert 'NVIDIA_VISIBLE_DEVICES="all"' in done.stderr


def test_the_stock_script_swallows_the_stop_signal(engine: PrivateEngine, server: str) -> None:
    started = time.monotonic()
    docker(engine, "stop", "--time", "2", server)
    assert time.monotonic() - started >= 2
    assert docker(engine, "inspect", "--format", "{{.State.ExitCode}}", server).stdout.strip() == "137"


def test_an_init_process_and_an_own_entrypoint_stop_at_once(engine: PrivateEngine, models: Path) -> None:
    run = ["run", "--detach", "--init", "--network", "none", "--gpus", f'"device={GPU}"']
    flags = ["--port=8500", "--model_base_path=/models/half_plus_two"]
    own = ["--entrypoint", "tensorflow_model_server", "--volume", f"{models}:/models:ro", SIMULATOR, *flags]
    container = docker(engine, *run, *own).stdout.strip()
    try:
        deadline = time.monotonic() + 20
        while "Running gRPC" not in docker(engine, "logs", container).stderr:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        started = time.monotonic()
        docker(engine, "stop", "--time", "10", container)
        assert time.monotonic() - started < 5
    finally:
        docker(engine, "rm", "--force", container)


def test_envoy_runs_without_rights_and_takes_options_or_a_command(engine: PrivateEngine) -> None:
    def run(*arguments: str) -> str:
        return docker(engine, "run", "--rm", "--network", "none", *arguments).stdout

    assert "/1.40.0/" in run(ENVOY, "--version")
    assert "/1.40.0/" in run(ENVOY, "envoy", "--version")
    assert (
        run("--entrypoint", "bash", ENVOY, "-c", "echo $UID; command -v envoy")
        == "101\n/usr/local/bin/envoy\n"
    )


def test_one_shot_jobs_find_what_they_need_to_rename_a_file(engine: PrivateEngine) -> None:
    script = "mkdir -p /tmp/v && cd /tmp/v && echo new > .f && chmod 644 .f && mv .f f && cat f"
    for image in (SIMULATOR, ENVOY):
        done = docker(engine, "run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", script)
        assert (done.returncode, done.stdout) == (0, "new\n"), done.stderr
