"""Instances are drained before they are replaced: slow requests are neither cut off nor sent twice."""

import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration import predict
from tests.integration.docker_cli import DockerCli
from tests.integration.drill import BackgroundUp, Drill, prepare_as_make_up_does, wait_until
from tests.integration.small_stack import free_subnets, small_stack
from tests.pulumi_project import Project
from tests.stacks import changed

pytestmark = pytest.mark.integration

STACK = "drained"
SERVERS = tuple(f"here-gpu{gpu}" for gpu in range(4))
# A batch never fills here, so that a request takes as long as its batch waits.
SERVICE_S = 2.0
TIMEOUT = "pools[0].batching.batch_timeout_micros"


@dataclass
class Slow:
    """Clients that ask one slow request after the other, and how each ended."""

    port: int
    outcomes: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        while not self._stop.is_set():
            try:
                answer = predict.rest(self.port)
                outcome = "answered" if answer.prediction == 2.5 else f"status {answer.status}"
            except (OSError, http.client.HTTPException) as error:
                outcome = repr(error)
            self.outcomes.append(outcome)

    @contextmanager
    def clients(self, count: int) -> Iterator[None]:
        threads = [threading.Thread(target=self.ask) for _ in range(count)]
        for number, thread in enumerate(threads):
            thread.start()
            time.sleep(SERVICE_S / count if number < count - 1 else 0)  # not all in one batch
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()


@dataclass
class Deployed:
    """A stack of four instances, and what its Envoy says of them."""

    drill: Drill

    @property
    def engine(self) -> DockerCli:
        return self.drill.engine

    @property
    def rest_port(self) -> int:
        return int(self.drill.config["front_end"]["rest_port"])

    def change(self, path: str, value: object) -> None:
        """Edit the stack file."""
        config = changed(self.drill.config, path, value)
        self.drill.config.clear()
        self.drill.config.update(config)
        self.drill.write()

    def metric(self, name: str, absent: int = 0) -> int:
        """A number of Envoy's about the pool's cluster over REST."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", int(self.drill.config["front_end"]["metrics_port"]), timeout=10
        )
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        found = re.search(
            rf'^envoy_cluster_{name}{{envoy_cluster_name="rest-main"}} (\d+)$', text, re.MULTILINE
        )
        return int(found[1]) if found else absent

    def drained(self) -> set[str]:
        """Addresses that the files of Envoy call drained."""
        text = self.envoy("cat", "/config/eds-rest-main.yaml", "/config/eds-grpc-main.yaml")
        pattern = r'health_status: "DRAINING"\n *endpoint:\n *address:\n *socket_address:\n *address: "(.*)"'
        return set(re.findall(pattern, text))

    def envoy(self, *command: str) -> str:
        return self.engine.run("exec", f"{STACK}.here-envoy", *command)

    def ids(self) -> dict[str, str]:
        return {name.removeprefix(f"{STACK}."): made for name, made in self.engine.ids().items()}

    def serving(self) -> set[str]:
        """Who answers; each takes its time, so all are asked at once."""
        found: set[str] = set()
        threads = [
            threading.Thread(target=lambda: found.add(predict.rest(self.rest_port).served_by))
            for _ in range(24)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


@pytest.fixture(scope="module")
def deployed(
    project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    [subnet] = free_subnets(1)
    config = small_stack(tmp_path_factory.mktemp("models"), subnet=subnet, gpus=range(4))
    config["pools"][0]["load_timeout_s"] = 20
    config["pools"][0]["batching"] |= {"max_batch_size": 64, "batch_timeout_micros": int(SERVICE_S * 10**6)}
    found = Deployed(Drill(project, engine, STACK, config))
    found.drill.write()
    try:
        first = project.up(STACK, "--suppress-outputs")
        assert first.code == 0, first.output
        again = project.up(STACK, "--refresh", "--expect-no-changes")
        assert again.code == 0, again.output
        yield found
    finally:
        project.destroy(STACK)


def _most_away(lives: list[tuple[str, str]]) -> int:
    """How many servers were away at the same time, from their deaths to when they were healthy."""
    away: set[str] = set()
    most = 0
    for container, action in lives:
        if (name := container.removeprefix(f"{STACK}.")) in SERVERS:
            (away.add if action == "die" else away.discard)(name)
            most = max(most, len(away))
    return most


def test_a_roll_under_slow_requests_cuts_none_off_and_sends_none_twice(deployed: Deployed) -> None:
    deployed.change(TIMEOUT, int(SERVICE_S * 10**6) - 1)
    before = deployed.ids()
    load = Slow(deployed.rest_port)
    with deployed.engine.lives() as lives, load.clients(12):
        done = deployed.drill.project.up(STACK, "--suppress-outputs")
    assert done.code == 0, done.output
    # Servers, what drained them, what published their file, and what saw that nobody is left drained.
    assert done.changes()["replaced"] == 4 + 4 + 1 + 1
    after = deployed.ids()
    assert {name for name in SERVERS if after[name] != before[name]} == set(SERVERS)
    assert after["here-envoy"] == before["here-envoy"]
    assert set(load.outcomes) == {"answered"}, load.outcomes
    assert len(load.outcomes) > 60
    assert deployed.metric("upstream_rq_retry") == 0
    assert _most_away(lives) == 1
    assert deployed.drained() == set()
    assert deployed.serving() == set(SERVERS)
    for name in SERVERS:
        assert "no request is in flight" in deployed.engine.run("logs", f"{STACK}.{name}-drain")
    again = deployed.drill.project.up(STACK, "--refresh", "--expect-no-changes")
    assert again.code == 0, again.output


def test_what_is_changed_in_place_drains_nobody(deployed: Deployed) -> None:
    before = deployed.ids()
    deployed.change("pools[0].memory.container_mib", 160)
    done = deployed.drill.project.up(STACK, "--suppress-outputs")
    assert (done.code, done.changes().get("updated")) == (0, 4), done.output
    assert deployed.ids() == before
    # Nor does the time that draining may take, which is a line of a file.
    deployed.change("rollout", {**deployed.drill.config["rollout"], "drain_timeout_s": 20})
    done = deployed.drill.project.up(STACK, "--suppress-outputs")
    assert (done.code, done.changes().get("replaced")) == (0, 1), done.output
    assert {name for name, made in deployed.ids().items() if made != before[name]} == {"here-envoy-publisher"}


def test_two_may_be_away_at_once_and_never_three(deployed: Deployed) -> None:
    deployed.change("pools[0].max_unavailable", 2)
    deployed.change(TIMEOUT, int(SERVICE_S * 10**6) - 2)
    load = Slow(deployed.rest_port)
    fewest: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            fewest.append(deployed.metric("membership_healthy", absent=4))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with deployed.engine.lives() as lives, load.clients(12):
            done = deployed.drill.project.up(STACK, "--suppress-outputs")
    finally:
        stop.set()
        watching.join()
    assert done.code == 0, done.output
    assert _most_away(lives) == 2
    assert min(fewest) == 2, Counter(fewest)
    assert set(load.outcomes) == {"answered"}, load.outcomes
    assert deployed.metric("upstream_rq_retry") == 0
    deployed.change("pools[0].max_unavailable", 1)
    assert deployed.drill.project.up(STACK, "--suppress-outputs").code == 0


def test_a_roll_that_is_killed_while_it_drains_is_finished_by_the_next_up(
    deployed: Deployed, tmp_path: Path
) -> None:
    deployed.change(TIMEOUT, int(SERVICE_S * 10**6) - 3)
    before = deployed.ids()
    load = Slow(deployed.rest_port)
    with load.clients(8):
        with BackgroundUp(deployed.drill, tmp_path / "up.log") as running:
            wait_until(
                lambda: bool(deployed.drained()) and deployed.ids().get(SERVERS[0]) != before[SERVERS[0]],
                "the second is drained, or the first still",
            )
            assert running.process.poll() is None, running.said()
        prepare_as_make_up_does(deployed.drill)
        done = deployed.drill.project.up(STACK, "--suppress-outputs")
    assert done.code == 0, done.output
    assert set(load.outcomes) == {"answered"}, load.outcomes
    assert deployed.drained() == set()
    assert deployed.serving() == set(SERVERS)
    deployed.drill.assert_whole()


def test_a_drain_that_is_killed_stops_nothing_and_leaves_nobody_drained(
    deployed: Deployed, tmp_path: Path
) -> None:
    deployed.change(TIMEOUT, int(SERVICE_S * 10**6) - 4)
    before = deployed.ids()
    with BackgroundUp(deployed.drill, tmp_path / "up.log") as running:
        old = before[SERVERS[0]]
        wait_until(lambda: deployed.ids().get(SERVERS[0], old) != old, "replaced")
        deployed.engine.run("kill", f"{STACK}.{SERVERS[0]}-drain")
        wait_until(lambda: running.process.poll() is not None, "it ends", 180)
        assert running.process.returncode == 0, running.said()
    assert deployed.drained() == set()
    assert deployed.serving() == set(SERVERS)


def test_a_roll_that_fails_stops_at_its_first_instance_and_reverting_or_mending_heals(
    deployed: Deployed,
) -> None:
    first, *others = SERVERS
    before = deployed.ids()
    [model] = deployed.drill.config["pools"][0]["models"]
    broken = Path(model["path"]) / "1" / "simulator_load_error"
    micros = int(SERVICE_S * 10**6)
    for mend in ("revert", "again"):
        broken.write_text("out of memory")
        deployed.change(TIMEOUT, micros - 5)
        failed = deployed.drill.project.up(STACK, "--suppress-outputs")
        assert failed.code != 0
        assert f"({first}-server)" in failed.output or f"{first}-server" in failed.output
        after = deployed.ids()
        assert {name: after[name] for name in others} == {name: before[name] for name in others}
        assert deployed.serving() == set(others)
        broken.unlink()
        if mend == "revert":
            deployed.change(TIMEOUT, micros - 4)
        healed = deployed.drill.project.up(STACK, "--suppress-outputs")
        assert healed.code == 0, healed.output
        assert deployed.serving() == set(SERVERS)
        assert deployed.drained() == set()
        before = deployed.ids()
