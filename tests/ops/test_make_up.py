"""`make up` to `make down` in a copy of the checkout, whose path has a space: all real but the GPUs."""

import json
import os
import shlex
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.daemon import children, command_line
from tests.ops.checkout import Checkout, copy_checkout, free_subnet

pytestmark = pytest.mark.integration

INSTANCES = [f"local-gpu{index}" for index in range(4)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    folder = tmp_path_factory.mktemp("make up")
    made = copy_checkout(folder / "a checkout", folder / "home", free_subnet())
    yield made
    made.engine().remove()


@pytest.fixture(scope="module")
def deployed(checkout: Checkout) -> str:
    """What `make up` said on a machine where nothing was deployed."""
    done = checkout.make("up")
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = 120) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def containers(checkout: Checkout) -> list[str]:
    host = checkout.engine().docker_host
    form = ["--format", "{{.Names}}"]
    listed = subprocess.run(
        ["docker", "--host", host, "ps", "--all", *form], capture_output=True, text=True, check=False
    )
    return sorted(listed.stdout.split())


def pulumi_below(pid: int) -> int | None:
    """The Pulumi process that a make process runs."""
    for child in children(pid):
        if any(word.endswith("/pulumi") for word in command_line(child)[:1]):
            return child
        if found := pulumi_below(child):
            return found
    return None


def test_every_instance_answers_with_its_gpu_and_the_next_steps_are_shown(deployed: str) -> None:
    for index, name in enumerate(INSTANCES):
        line = next(line for line in deployed.splitlines() if line.startswith(f"  {name} "))
        assert f"local  gpu{index}  GPU-00000000-0000-4000-8000-00000000000{index}" in line
        assert int(line.split()[-1]) >= 1
    assert "curl -d " in deployed
    assert deployed.strip().endswith("make down")


def test_the_printed_curl_line_is_answered(deployed: str, checkout: Checkout) -> None:
    url = f"http://127.0.0.1:{checkout.rest_port}/v1/models/half_plus_two:predict"
    assert url in deployed
    with urllib.request.urlopen(url, b'{"instances": [1.0, 2.0, 5.0]}', timeout=10) as answer:
        assert json.load(answer) == {"predictions": [2.5, 3.0, 4.5]}


def test_the_printed_next_steps_work_as_they_stand(deployed: str, checkout: Checkout) -> None:
    steps = [line.strip() for line in deployed.partition("Next:")[2].splitlines() if line]
    logs = [line for line in steps if " logs local.local-" in line]
    metrics = [line for line in steps if line.startswith("curl http")]
    assert len(logs) == 2
    assert len(metrics) == 1
    for line in (*logs, *metrics):
        done = subprocess.run(shlex.split(line), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout + done.stderr != ""


def test_the_checkout_stays_clean(deployed: str, checkout: Checkout) -> None:
    assert checkout.git_status() == ""


def test_a_second_up_changes_nothing(deployed: str, checkout: Checkout) -> None:
    done = checkout.make("up", "ARGS=--color never --expect-no-changes")
    assert done.returncode == 0, done.stdout[-3000:]
    assert " unchanged" in done.stdout


def test_pulumi_commands_reach_the_stack(deployed: str, checkout: Checkout) -> None:
    done = checkout.make("pulumi", "ARGS=stack output rest_url")
    assert done.stdout.strip() == f"http://127.0.0.1:{checkout.rest_port}"


def test_a_stack_that_is_deployed_is_not_cleaned_away(deployed: str, checkout: Checkout) -> None:
    done = checkout.make("clean")
    assert done.returncode != 0
    assert "still deployed" in done.stderr
    # Servers, what drains each, and Envoy; their publishers, and what saw to it that Envoy took its files.
    assert len(containers(checkout)) == 4 + 4 + 1 + 3


def test_an_engine_that_was_killed_comes_back_with_the_stack(deployed: str, checkout: Checkout) -> None:
    pid = checkout.engine().dockerd.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    done = checkout.make("up")
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_heal_takes_away_what_the_state_does_not_know_and_nothing_else(
    deployed: str, checkout: Checkout
) -> None:
    before = containers(checkout)
    image = "tf-serving-simulator:2.14.1-gpu"
    for name, stack in (("stray", "local"), ("another", "other")):
        labels = [f"--label=tf-serving.stack={stack}", "--label=tf-serving.node=local"]
        command = ["docker", "--host", checkout.engine().docker_host, "create", f"--name={name}", *labels]
        subprocess.run([*command, image, "x"], capture_output=True, check=True)
    done = checkout.make("heal")
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "Removed: container stray on node local" in done.stderr
    assert containers(checkout) == sorted([*before, "another"])
    assert checkout.make("up", "ARGS=--expect-no-changes").returncode == 0


def test_down_leaves_no_container_no_state_and_no_engine_and_can_be_repeated(
    deployed: str, checkout: Checkout
) -> None:
    first = checkout.make("down")
    assert first.returncode == 0, first.stderr
    assert "The private Docker Engine is stopped" in first.stdout
    assert checkout.engine().dockerd.pid() is None
    assert not checkout.engine().run_dir.exists()
    assert not (checkout.folder / ".local" / "state").exists()
    assert not (checkout.folder / ".local" / "passphrase").exists()
    assert checkout.git_status() == ""
    again = checkout.make("down")
    assert again.returncode == 0
    assert "not deployed from this checkout" in again.stdout
    assert "`pulumi stack rm local` is done as well" in first.stdout


def test_an_interrupted_up_says_so_in_a_line_and_a_killed_one_is_picked_up(checkout: Checkout) -> None:
    # Make itself passes SIGTERM on to what it runs; Ctrl-C at a terminal goes to all of them at once.
    with start_up(checkout) as running:
        wait_until(lambda: "local.local-gpu0" in containers(checkout), "the first container")
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=120)[1]
    assert "make up: interrupted. What was made so far is in the stack's state" in said
    assert "Traceback" not in said

    with start_up(checkout) as running:
        wait_until(lambda: pulumi_below(running.pid) is not None, "pulumi running")
        busy = checkout.make("up")
        assert busy.returncode != 0
        assert "`make up` (process" in busy.stderr
        pulumi = pulumi_below(running.pid)
        assert pulumi is not None
        wait_until(lambda: "local.local-gpu1" in containers(checkout), "a container more")
        for pid in (*children(running.pid), running.pid):
            os.kill(pid, signal.SIGKILL)
        orphaned = checkout.make("up")
        assert f"Pulumi (process {pulumi}) is at work on stack local" in orphaned.stderr
        # Its plugins would outlive it for some minutes.
        for pid in (*children(pulumi), pulumi):
            os.kill(pid, signal.SIGKILL)
        running.communicate(timeout=60)

    done = checkout.make("up")
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert all(f"  {name} " in done.stdout for name in INSTANCES)
    assert checkout.make("down").returncode == 0


def start_up(checkout: Checkout) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        checkout.command("up"),
        cwd=checkout.folder,
        env=checkout.env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_clean_takes_away_all_that_set_up_made_in_the_checkout(checkout: Checkout) -> None:
    done = checkout.make("clean")
    assert done.returncode == 0, done.stderr
    left = {path.name for path in Path(checkout.folder).iterdir()}
    assert not left & {".local", ".venv", ".pytest_cache"}
    assert checkout.git_status() == ""
