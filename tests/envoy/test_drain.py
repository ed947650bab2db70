"""An instance is drained in a running Envoy while clients ask, by the script that its container runs."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.plan import Endpoint
from tests.envoy.ground import ROOT
from tests.envoy.harness import Site, free_ports, site, wait_for
from tests.envoy.load import load_on
from tests.envoy.pools import TWO_POOLS

pytestmark = pytest.mark.envoy

SCRIPT = ROOT / "components" / "data" / "drain.sh"
# Shorter than in the containers, where a server takes longer to come back.
ENVIRONMENT = {"MOST_S": "5", "BEFORE_S": "8", "STILL_THERE_S": "3", "AWAY_S": "20"}


@pytest.fixture
def made(envoy_binary: Path, tmp_path: Path) -> Iterator[Site]:
    """Pools `vision` and `text`, two instances each."""
    with site(envoy_binary, tmp_path, TWO_POOLS, {"request_timeout_s": 10}) as running:
        settle(running)
        yield running


def settle(made: Site, timeout_s: int = 10, envoy_port: int = 0) -> None:
    """What a publisher and the first acceptance leave behind."""
    (made.ground.folder / ".drains").mkdir(exist_ok=True)
    ports = f"{envoy_port or made.ground.status_port} {made.plan.spec.metrics_port}"
    lines = [f"envoy 127.0.0.1 {ports} {timeout_s}\n"]
    for pool in made.plan.pools:
        before = "-"
        for endpoint in pool.endpoints:
            lines.append(f"{endpoint.name} {endpoint.address} {before}\n")
            before = str(endpoint.address)
    (made.ground.folder / "drain.conf").write_text("".join(lines))


class Drain:
    """A run of the script for one instance."""

    def __init__(self, made: Site, endpoint: Endpoint, changed: Mapping[str, str]) -> None:
        self.made = made
        self.done = made.log.parent / f"done-{endpoint.name}-{time.monotonic_ns()}"
        self.began = time.monotonic()
        command = ["bash", "-c", f'. {SCRIPT}; drain "$@"', "drain"]
        self.process = subprocess.Popen(
            [*command, str(made.ground.folder), endpoint.name, str(self.done)],
            env={**os.environ, **ENVIRONMENT, **changed},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_done(self) -> float:
        """Until the instance may be stopped, or the script has ended; how long that took, in seconds."""
        wait_for("drained", lambda: self.done.exists() or self.process.poll() is not None)
        return time.monotonic() - self.began

    def said(self) -> str:
        """All that it said, once it has ended."""
        text, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, text
        return text


@contextmanager
def drain(made: Site, endpoint: Endpoint, **environment: str) -> Iterator[Drain]:
    run = Drain(made, endpoint, environment)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.communicate()


def end_drains(made: Site) -> None:
    """What the acceptance does first."""
    command = ["bash", "-c", f'set -euo pipefail; . {SCRIPT}; end_drains "$1"', "drain"]
    done = subprocess.run([*command, str(made.ground.folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def marked(made: Site) -> dict[str, int]:
    """How often each file of endpoints calls one drained."""
    files = sorted(made.ground.folder.glob("eds-*.yaml"))
    counted = {file.name: file.read_text().count('health_status: "DRAINING"\n') for file in files}
    return {name: count for name, count in counted.items() if count}


def eds(made: Site) -> dict[str, str]:
    return {file.name: file.read_text() for file in made.ground.folder.glob("eds-*.yaml")}


VISION = {"eds-grpc-vision.yaml": 1, "eds-rest-vision.yaml": 1}


def test_an_instance_is_replaced_and_no_request_is_lost_or_sent_twice(made: Site) -> None:
    first, second = made.plan.pools[0].endpoints
    before = eds(made)
    for backend in made.backends.values():
        backend.behave({"delay_s": 1})
    model = (("x-tf-model", "resnet"),)
    with load_on(made, "rest") as rest, load_on(made, "grpc", metadata=model) as over_grpc:
        wait_for("both are at work", lambda: made.stat("cluster.rest-vision.upstream_rq_active") == 8)
        with drain(made, first) as run:
            run.wait_done()
            made.backends[first.name].kill()
            rest.more(16)
            made.backends[first.name].start()
            said = run.said()
        assert "no request is in flight" in said
        ended = dict(rest.served)
        wait_for("it serves again", lambda: rest.served[first.name] > ended[first.name] + 4)
    for load in (rest, over_grpc):
        assert load.failures == []
        assert load.slowest_s < 1.9
        assert load.served[second.name] > 16
    assert made.stat("cluster.rest-vision.upstream_rq_retry") == 0
    assert made.stat("cluster.grpc-vision.upstream_rq_retry") == 0
    assert eds(made) == before
    assert list((made.ground.folder / ".drains").iterdir()) == []


def test_requests_that_take_too_long_are_not_waited_for(made: Site) -> None:
    settle(made, timeout_s=2)
    first, _ = made.plan.pools[0].endpoints
    made.backends[first.name].behave({"answer": "hang"})
    with load_on(made, "rest", clients=4):
        wait_for("some hang", lambda: made.stat("cluster.rest-vision.upstream_rq_active") >= 2)
        with drain(made, first) as run:
            assert 1 <= run.wait_done() < 6
            assert marked(made) == VISION
            assert "requests are still in flight after 2 s" in run.said()


def test_the_only_instance_of_a_pool_is_not_waited_for(made: Site) -> None:
    first, second = made.plan.pools[0].endpoints
    made.backends[second.name].kill()
    wait_for("the other is away", lambda: made.healthy("rest-vision") == 1)
    with load_on(made, "rest") as load:
        with drain(made, first) as run:
            assert run.wait_done() < 5
            load.more(50)
        assert load.failures == []


def test_an_instance_that_nobody_replaces_is_sent_to_again(made: Site) -> None:
    before = eds(made)
    first, _ = made.plan.pools[0].endpoints
    with drain(made, first) as run:
        run.wait_done()
        assert marked(made) == VISION
        assert "it is still there" in run.said()
    assert eds(made) == before


def test_an_instance_that_stays_away_is_left_to_envoys_own_check(made: Site) -> None:
    before = eds(made)
    first, _ = made.plan.pools[0].endpoints
    with drain(made, first, STILL_THERE_S="30") as run:
        run.wait_done()
        made.backends[first.name].kill()
        assert "Envoy sees that it is away" in run.said()
    assert eds(made) == before
    assert made.healthy("rest-vision") == 1


def test_a_drain_that_is_told_to_stop_puts_the_endpoints_back(made: Site) -> None:
    before = eds(made)
    with drain(made, made.plan.pools[0].endpoints[0], STILL_THERE_S="60") as run:
        run.wait_done()
        run.process.terminate()
        assert "it is still there" not in run.said()
    assert eds(made) == before


def test_one_that_was_killed_is_made_good_by_whoever_comes_next(made: Site) -> None:
    before = eds(made)
    first, second = made.plan.pools[0].endpoints
    makes_good: list[Callable[[], None]] = [lambda: end_drains(made), lambda: drained_after(made, second)]
    for make_good in makes_good:
        with drain(made, first) as run:
            run.wait_done()
        assert marked(made) == VISION
        make_good()
        assert eds(made) == before
    wait_for("both serve", lambda: len({made.predict().served_by for _ in range(4)}) == 2)


def test_an_instance_that_a_killed_drain_left_so_is_drained_and_sent_to_again_by_its_own_next(
    made: Site,
) -> None:
    before = eds(made)
    first, _ = made.plan.pools[0].endpoints
    with drain(made, first) as run:
        run.wait_done()
    assert marked(made) == VISION
    with drain(made, first) as run:
        said = run.said()
    assert "Envoy sends nothing" not in said
    assert eds(made) == before


def drained_after(made: Site, endpoint: Endpoint) -> None:
    """Its own mark is gone by then, and so is that of the one who was killed."""
    with drain(made, endpoint, BEFORE_S="20") as run:
        run.wait_done()
        assert "going on" not in run.said()


def test_two_may_be_drained_at_once_and_neither_forgets_the_other(made: Site) -> None:
    before = eds(made)
    settle(made)
    config = made.ground.folder / "drain.conf"
    alone = [" ".join([*line.split()[:2], "-\n"]) for line in config.read_text().splitlines()[1:]]
    config.write_text("".join([config.read_text().splitlines(keepends=True)[0], *alone]))
    both = made.plan.pools[0].endpoints
    for _ in range(5):
        with drain(made, both[0], STILL_THERE_S="2") as one, drain(made, both[1], STILL_THERE_S="2") as other:
            one.wait_done()
            other.wait_done()
            assert marked(made) == dict.fromkeys(VISION, 2)
            one.said()
            other.said()
        assert eds(made) == before


def test_the_next_is_not_drained_before_envoy_sends_to_the_one_before(made: Site) -> None:
    first, second = made.plan.pools[0].endpoints
    with drain(made, first, STILL_THERE_S="4") as run:
        run.wait_done()
        with drain(made, second) as following:
            run.process.wait()
            assert not following.done.exists()
            following.wait_done()
            assert marked(made) == VISION


def test_what_cannot_be_drained_keeps_nobody_waiting(made: Site) -> None:
    first, _ = made.plan.pools[0].endpoints
    before = eds(made)

    def said() -> str:
        with drain(made, first, MOST_S="2") as run:
            return run.said()

    settle(made, envoy_port=free_ports(1)[0])
    assert "does not answer: not drained" in said()
    settle(made)
    made.backends[first.name].kill()
    wait_for("Envoy sees it", lambda: made.healthy("rest-vision") + made.healthy("grpc-vision") == 2)
    assert f"Envoy sends nothing to {first.address}" in said()
    (made.ground.folder / ".drains").rmdir()
    assert "no Envoy has served yet" in said()
    (made.ground.folder / "drain.conf").unlink()
    assert "is not one of those that Envoy sends to" in said()
    assert eds(made) == before


def test_the_acceptance_ends_a_drain_that_still_runs(made: Site) -> None:
    before = eds(made)
    with drain(made, made.plan.pools[0].endpoints[0], STILL_THERE_S="60") as run:
        run.wait_done()
        end_drains(made)
        run.said()
    assert eds(made) == before
