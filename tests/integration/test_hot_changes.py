"""Routes, shares, limits and pools change on a real engine while clients ask: what serves is not replaced."""

import copy
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration import predict
from tests.integration.docker_cli import DockerCli
from tests.integration.drill import wait_until
from tests.integration.small_stack import free_subnets, small_stack
from tests.pulumi_project import Project, Run
from tests.stacks import Config, changed, without

pytestmark = pytest.mark.integration

STACK = "hot"
ENVOY = f"{STACK}.here-envoy"
IMAGE = "tf-serving-envoy:1.40.0"
SERVES = ("here-gpu0", "here-gpu1", "here-envoy")
# Stands before the program: what Envoy is given is then not what it can take.
SABOTAGE = """
from components import envoy_delivery
rendered = envoy_delivery.envoy_files
envoy_delivery.envoy_files = lambda plan: {
    name: text.replace('cluster: "rest-main"', 'cluster: "nobody"') if name == "rds-rest.yaml" else text
    for name, text in rendered(plan).items()
}
"""


@dataclass
class Deployed:
    """A running stack of two instances, and what its file says now."""

    project: Project
    engine: DockerCli
    config: Config

    @property
    def rest_port(self) -> int:
        return int(self.config["front_end"]["rest_port"])

    def up(self, *options: str) -> Run:
        self.project.write_stack(STACK, self.config)
        return self.project.up(STACK, "--suppress-outputs", *options)

    def change(self, config: Config) -> Run:
        """The stack file becomes `config` under load: no request may fail, nothing that serves replaced."""
        self.config = config
        before = self.ids()
        with self.asked():
            done = self.up()
        assert done.code == 0, done.output
        after = self.ids()
        assert {name: after[name] for name in SERVES} == {name: before[name] for name in SERVES}
        return done

    def ids(self) -> dict[str, str]:
        return {name.removeprefix(f"{STACK}."): made for name, made in self.engine.ids().items()}

    @contextmanager
    def asked(self) -> Iterator[None]:
        grpc_port = int(self.config["front_end"]["grpc_port"])
        with (
            predict.Load(lambda: predict.rest(self.rest_port), clients=4) as rest,
            predict.Load(lambda: predict.over_grpc(grpc_port), clients=2) as over_grpc,
        ):
            yield
        for load in (rest, over_grpc):
            assert load.outcomes.keys() == {"answered"}, load.outcomes
            assert load.outcomes["answered"] > 50

    @property
    def runs(self) -> str:
        """What the front end says that it runs."""
        return self.engine.run("exec", ENVOY, "cat", "/config/.said/envoy")

    def front_end_is_well(self) -> bool:
        return self.engine.run("inspect", "--format", "{{.State.Health.Status}}", ENVOY) == "healthy"

    def shares(self, requests: int = 200) -> dict[str, int]:
        answers = [predict.rest(self.rest_port).served_by for _ in range(requests)]
        return {name: answers.count(name) for name in set(answers)}

    def log(self, container: str) -> str:
        command = ["docker", "--host", self.engine.docker_host, "logs", f"{STACK}.{container}"]
        shown = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
        return shown.stdout


@pytest.fixture(scope="module")
def deployed(
    project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    [subnet] = free_subnets(1)
    found = Deployed(project, engine, small_stack(tmp_path_factory.mktemp("models"), subnet=subnet))
    try:
        first = found.up()
        assert first.code == 0, first.output
        yield found
    finally:
        project.destroy(STACK)


def test_a_limit_changes_and_only_what_brings_the_files_is_replaced(deployed: Deployed) -> None:
    done = deployed.change(changed(deployed.config, "front_end.max_concurrent", 77))
    assert done.changes()["replaced"] == 2
    assert "max_requests: 77" in deployed.engine.run("exec", f"{STACK}.here-envoy", "cat", "/config/cds.yaml")
    again = deployed.up("--refresh", "--expect-no-changes")
    assert again.code == 0, again.output


def test_a_pool_is_added_as_a_canary_its_share_changes_and_it_is_taken_away(deployed: Deployed) -> None:
    [main] = deployed.config["pools"]
    newer = {**copy.deepcopy(main), "name": "newer", "slots": [{"node": "here", "gpus": [2]}]}
    canary = {**main, "traffic": {"canary": {"pool": "newer", "percent": 50}}}
    deployed.change(changed(deployed.config, "pools", [canary, newer]))
    # Of 200 requests, 50 % is 58 to 142 but for one run in a billion.
    assert 58 <= deployed.shares()["here-gpu2"] <= 142

    deployed.change(changed(deployed.config, "pools[0].traffic.canary.percent", 100))
    assert deployed.shares() == {"here-gpu2": 200}

    deployed.change(changed(deployed.config, "pools[0].traffic.canary.percent", 0))
    assert deployed.shares().keys() == {"here-gpu0", "here-gpu1"}

    deployed.change(changed(deployed.config, "pools", [main]))
    assert deployed.shares().keys() == {"here-gpu0", "here-gpu1"}
    assert "here-gpu2" not in deployed.ids()


def test_an_instance_is_added_and_taken_away(deployed: Deployed) -> None:
    slots = "pools[0].slots[0].gpus"
    deployed.change(changed(deployed.config, slots, [0, 1, 3]))
    assert deployed.shares().keys() == {"here-gpu0", "here-gpu1", "here-gpu3"}
    deployed.change(changed(deployed.config, slots, [0, 1]))
    assert deployed.shares().keys() == {"here-gpu0", "here-gpu1"}


def test_what_envoy_does_not_take_fails_up_with_envoys_reason_and_changes_nothing(
    deployed: Deployed,
) -> None:
    program = deployed.project.folder / "__main__.py"
    sound = program.read_text()
    docstring, rest = sound.split("\n", 1)
    before = deployed.ids()
    program.write_text(f"{docstring}\n{SABOTAGE}{rest}")
    try:
        with deployed.asked():
            failed = deployed.up()
    finally:
        program.write_text(sound)
    assert failed.code != 0
    assert "(here-envoy-config-publisher)" in failed.output
    log = deployed.log("here-envoy-publisher")
    assert "Envoy refused: rds-rest.yaml" in log
    assert "route: unknown cluster 'nobody'" in log
    assert "FAILED: Envoy does not take these files; nothing was changed" in log
    after = deployed.ids()
    assert {name: after[name] for name in SERVES} == {name: before[name] for name in SERVES}
    assert deployed.up().code == 0
    assert deployed.up("--expect-no-changes").code == 0


def test_what_envoy_reads_as_it_starts_reaches_the_next_one_which_takes_over(deployed: Deployed) -> None:
    config = without(changed(deployed.config, "front_end.memory_mib", 600), "front_end.max_concurrent")
    deployed.change(changed(config, "front_end.workers", 2))
    assert deployed.runs.splitlines()[:2] == ["serves", IMAGE]
    assert "--concurrency\n2\n" in deployed.runs
    assert deployed.engine.inspect(ENVOY)["HostConfig"]["Memory"] == 2 * 600 * 2**20
    assert "max_requests: 4096" in deployed.engine.run("exec", ENVOY, "cat", "/config/cds.yaml")
    assert deployed.up("--refresh", "--expect-no-changes").code == 0


def test_another_image_of_envoy_takes_over_and_no_request_fails(deployed: Deployed) -> None:
    other = with_binary(deployed.engine, "other", lambda binary: binary + b"another one")
    hashes = []
    for image in (other, IMAGE):
        done = deployed.change(changed(deployed.config, "images.envoy", image))
        # The pull of the image, the two containers that bring it, and no other.
        assert done.changes()["replaced"] == 3
        said, runs, binary, *_ = deployed.runs.splitlines()
        assert (said, runs) == ("serves", image)
        assert deployed.engine.run("exec", ENVOY, "ls", "/config").split().count(binary) == 1
        hashes.append(binary)
        again = deployed.up("--refresh", "--expect-no-changes")
        assert again.code == 0, again.output
        # Whatever starts it again: it is the one that was to run.
        deployed.engine.run("restart", ENVOY)
        wait_until(deployed.front_end_is_well, "it serves")
        assert deployed.runs.splitlines()[:2] == ["serves", image]
        assert deployed.shares(20).keys() == {"here-gpu0", "here-gpu1"}
    assert hashes[0] != hashes[1]


def test_an_envoy_that_does_not_run_in_the_front_ends_container_fails_up_with_its_words(
    deployed: Deployed,
) -> None:
    # It runs where it is tried, as root, and not where it is to serve.
    only_root = b'#!/bin/bash\n[[ $UID != 0 ]] || exec /envoy "$@"\necho GLIBC_2.99 not found >&2; exit 1\n'
    other = with_binary(deployed.engine, "foreign", lambda _: only_root)
    good, before = deployed.config, deployed.ids()
    deployed.config = changed(good, "images.envoy", other)
    with deployed.asked():
        failed = deployed.up()
    assert failed.code != 0
    log = deployed.log("here-envoy-acceptance")
    assert "the next Envoy does not run in the front end's container:\nGLIBC_2.99 not found" in log
    assert "FAILED: another Envoy did not take over" in log
    assert {name: deployed.ids()[name] for name in SERVES} == {name: before[name] for name in SERVES}
    assert deployed.runs.splitlines()[:2] == ["serves", IMAGE]
    deployed.change(good)
    assert deployed.up("--refresh", "--expect-no-changes").code == 0


def with_binary(engine: DockerCli, tag: str, edit: Callable[[bytes], bytes]) -> str:
    """An image like Envoy's with another binary; the one that it had is at /envoy there."""
    name = f"{tag}/tf-serving-envoy:1.40.0"
    made = engine.run("create", IMAGE).strip()
    with tempfile.TemporaryDirectory() as folder:
        binary, first = Path(folder, "envoy"), Path(folder, "first")
        engine.run("cp", f"{made}:/usr/local/bin/envoy", str(first))
        binary.write_bytes(edit(first.read_bytes()))
        for file, place in ((binary, "/usr/local/bin/envoy"), (first, "/envoy")):
            file.chmod(0o755)
            engine.run("cp", str(file), f"{made}:{place}")
    engine.run("commit", made, name)
    engine.run("rm", made)
    return name
