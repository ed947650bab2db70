"""A running Envoy gets other files while clients ask, by the script that the containers run."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from components.plan import FrontEndPlan, PoolPlan
from tests.envoy.ground import SCRIPT, Said, run_script
from tests.envoy.harness import Site, free_ports, ground_below, site, wait_for
from tests.envoy.load import Load, load_on
from tests.envoy.pools import TWO_POOLS

pytestmark = pytest.mark.envoy

VISION, TEXT = "resnet", "bert"


@pytest.fixture
def made(envoy_binary: Path, tmp_path: Path) -> Iterator[Site]:
    """Pools `vision` and `text`, two instances each."""
    with site(envoy_binary, tmp_path, TWO_POOLS, {"request_timeout_s": 10}) as running:
        yield running


def with_pools(plan: FrontEndPlan, *names: str) -> FrontEndPlan:
    return replace(plan, pools=tuple(pool for pool in plan.pools if pool.name in names))


@contextmanager
def asked_all_the_time(made: Site) -> Iterator[Sequence[Load]]:
    """Clients of pool `vision` over both protocols: none may fail, and all are still served at the end."""
    with ExitStack() as stack:
        model = (("x-tf-model", VISION),)
        loads = [
            stack.enter_context(load_on(made, "rest")),
            stack.enter_context(load_on(made, "grpc", metadata=model)),
        ]
        for load in loads:
            load.more(100)
        yield loads
        for load in loads:
            load.more(100)
    for load in loads:
        assert load.failures == []


def files_of(made: Site) -> dict[str, str]:
    return {path.name: path.read_text() for path in made.ground.folder.iterdir() if path.is_file()}


def took(said: Said) -> None:
    assert said.code == 0, said.said
    assert "has taken it" in said.said


def test_a_pool_comes_and_goes_and_no_request_of_another_one_fails(made: Site) -> None:
    both, one = made.plan, with_pools(made.plan, "vision")
    with asked_all_the_time(made):
        for _ in range(5):
            took(made.publish(one))
            assert made.predict(TEXT).status == 404
            assert made.stat("cluster_manager.active_clusters") == len(made.clusters_of(one))
            took(made.publish(both))
            assert made.predict(TEXT).status == 200
    assert sorted(file.name for file in made.ground.folder.glob("eds-*")) == [
        f"eds-{protocol}-{pool}.yaml" for protocol in ("grpc", "rest") for pool in ("text", "vision")
    ]


def test_a_pool_that_takes_the_place_of_another_leaves_no_moment_without_either(made: Site) -> None:
    vision, text = (with_pools(made.plan, name) for name in ("vision", "text"))
    took(made.publish(vision))
    with load_on(made, "rest") as load:
        for _ in range(5):
            load.more(50)
            took(made.publish(text))
            assert made.predict(TEXT).status == 200
            took(made.publish(vision))
    # Its clients are served until nothing leads there any more: no route is left to a cluster that is gone.
    assert {failure[:3] for failure in load.failures} == {"404"}


def test_instances_come_and_go_and_no_request_fails(made: Site) -> None:
    vision, text = made.plan.pools
    with asked_all_the_time(made) as (rest, _):
        for position in (0, 1, 0, 1):
            alone = vision.endpoints[position]
            took(made.publish(replace(made.plan, pools=(replace(vision, endpoints=(alone,)), text))))
            before = dict(rest.served)
            rest.more(100)
            served = {name for name, count in rest.served.items() if count - before.get(name, 0) > 20}
            assert served == {alone.name}
        took(made.publish(made.plan))


def test_a_change_of_limits_routes_and_listeners_reaches_envoy(made: Site) -> None:
    for limit in (2, 3):
        spec = made.plan.spec.model_copy(update={"max_request_mib": limit, "max_concurrent": 100 * limit})
        with asked_all_the_time(made):
            took(made.publish(replace(made.plan, spec=spec)))
        path = f"/v1/models/{VISION}:predict"
        assert made.rest("POST", path, b"x" * (limit * 2**20 + 1)).status == 413
        assert made.rest("POST", path, b"x" * (limit * 2**20)).status == 200
        page = made.admin("/clusters").body.decode()
        assert f"rest-vision::default_priority::max_requests::{100 * limit}" in page


def test_the_whole_set_is_rewritten_many_times_and_no_request_fails(made: Site) -> None:
    with asked_all_the_time(made) as loads:
        for turn in range(20):
            spec = made.plan.spec.model_copy(update={"max_concurrent": 1000 + turn})
            took(made.publish(replace(made.plan, spec=spec)))
    assert sum(load.total for load in loads) > 1000


WRONG = {
    "a route to a cluster that is not there": ("rds-rest.yaml", 'cluster: "rest-vision"', 'cluster: "nope"'),
    "a route with a misspelt field": ("rds-grpc.yaml", 'timeout: "10s"', 'timeut: "10s"'),
    "a cluster with a misspelt field": ("cds.yaml", "connect_timeout", "conect_timeout"),
    "a listener with a misspelt field": ("lds.yaml", "server_name", "sever_name"),
    "a port that is none": ("eds-grpc-vision.yaml", "port_value: 8500\n", "port_value: 85000\n"),
    "a file that is cut off": ("cds.yaml", "resources:", "resources: ["),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_envoy_refuses_is_named_and_taken_back(made: Site, wrong: str) -> None:
    spec = made.plan.spec.model_copy(update={"max_concurrent": 123})
    before = files_of(made)
    with asked_all_the_time(made):
        said = made.publish(replace(made.plan, spec=spec), WRONG[wrong], patience_s=5)
        assert said.code == 1
        assert f"Envoy refused: {WRONG[wrong][0]}\n" in said.said
        assert "the files from before are back" in said.said
        assert files_of(made) == before
        assert made.predict(TEXT).status == 200
        assert "max_requests::123" not in made.admin("/clusters").body.decode()
        took(made.publish(replace(made.plan, spec=spec)))
    assert "rest-vision::default_priority::max_requests::123" in made.admin("/clusters").body.decode()


def test_a_publisher_that_was_killed_in_between_is_made_good_by_the_next(made: Site) -> None:
    spec = made.plan.spec.model_copy(update={"max_concurrent": 123})
    one = replace(with_pools(made.plan, "vision"), spec=spec)
    for written in (["cds"], ["eds-rest-text", "cds", "rds-rest"], ["lds", "cds"]):
        half = made.log.parent / "-".join(written)
        half.mkdir()
        made.ground.write(one, half)
        for name in written:
            if (file := half / f"{name}.yaml").exists():
                file.rename(made.ground.folder / file.name)
        took(made.publish(one))
        assert made.predict(VISION).status == 200
        assert made.predict(TEXT).status == 404
        took(made.publish(made.plan))
        assert made.predict(TEXT).status == 200


# Envoy 1.40.0 crashes at the second to seventh such change of an endpoint whose address stays, where its
# cluster has health checks and does not say ignore_health_on_host_removal.
def test_envoy_survives_instances_that_change_their_names_and_ports_but_not_their_addresses(
    made: Site,
) -> None:
    def renamed(pool: PoolPlan, turn: int) -> PoolPlan:
        endpoints = (replace(endpoint, name=f"{endpoint.name}-{turn}") for endpoint in pool.endpoints)
        return replace(pool, endpoints=tuple(endpoints))

    for turn in range(16):
        pools = tuple(renamed(pool, turn) for pool in made.plan.pools)
        took(made.publish(replace(made.plan, pools=pools)))
        wanted = {endpoint.name for pool in pools for endpoint in pool.endpoints}
        wait_for("the new name answers", lambda: made.predict().served_by in wanted)  # noqa: B023
        port = ("port_value: 8501\n", f"port_value: {18501 + turn}\n")
        took(made.publish(made.plan, ("eds-grpc-vision.yaml", *port)))
    took(made.publish(made.plan))
    made.settled()
    assert len(made.admin("/clusters").body.decode().split("rest-vision::127")) > 1


def draining(made: Site, name: str) -> list[tuple[str, str, str]]:
    """Edits that take an instance out of the balancing, and leave it what it is at."""
    [(pool, endpoint)] = [(p, e) for p in made.plan.pools for e in p.endpoints if e.name == name]
    inside = ["  address:", "    socket_address:", f'      address: "{endpoint.address}"']
    serving = "\n".join(["- endpoint:", *(f"            {line}" for line in inside)])
    drained = serving.replace("- endpoint:", '- health_status: "DRAINING"\n            endpoint:')
    return [(f"eds-{protocol}-{pool.name}.yaml", serving, drained) for protocol in ("rest", "grpc")]


def test_an_instance_that_is_drained_gets_no_new_request_and_ends_those_that_it_has(made: Site) -> None:
    drained, other = (endpoint.name for endpoint in made.plan.pools[0].endpoints)
    for backend in made.backends.values():
        backend.behave({"delay_s": 2})
    with load_on(made, "rest", clients=8) as load:
        wait_for("both are at work", lambda: made.stat("cluster.rest-vision.upstream_rq_active") == 8)
        took(made.publish(made.plan, *draining(made, drained)))
        load.more(16)  # what had begun before has ended by then
        ended = load.served[drained]
        load.more(16)
        assert load.served[drained] == ended
    assert load.failures == []
    assert made.stat("cluster.rest-vision.upstream_rq_retry") == 0
    took(made.publish(made.plan))
    wait_for("it serves again", lambda: {made.predict().served_by for _ in range(4)} == {drained, other})


def test_a_pool_whose_only_instance_is_drained_is_served_by_it(made: Site) -> None:
    vision, text = made.plan.pools
    alone = replace(made.plan, pools=(replace(vision, endpoints=vision.endpoints[:1]), text))
    took(made.publish(alone, *draining(made, vision.endpoints[0].name)))
    with load_on(made, "rest") as load:
        load.more(200)
    assert load.failures == []


def test_files_are_staged_for_an_envoy_that_runs_on_them_and_else_in_use_at_once(
    made: Site, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    new.mkdir()
    nowhere = ground_below(new)

    def staged(limit: int, port: int) -> tuple[str, bool, bool]:
        spec = made.plan.spec.model_copy(update={"max_concurrent": limit})
        made.ground.write(replace(made.plan, spec=spec), new)
        said = run_script("stage", new, nowhere.folder, "127.0.0.1", port, work=tmp_path / "work")
        assert said.code == 0, said.said
        in_use, kept = (folder / "cds.yaml" for folder in (nowhere.folder, nowhere.folder / ".next"))
        wanted = f"max_requests: {limit}\n"
        return said.said, wanted in in_use.read_text(), wanted in kept.read_text()

    running, nobody = made.ground.status_port, nowhere.status_port
    # As where a node is renamed: its Envoy still answers at the address, and has its files elsewhere.
    assert staged(101, running) == ("written; no Envoy runs on them yet\n", True, True)
    assert staged(102, running) == ("staged for the Envoy that runs at 127.0.0.1\n", False, True)
    assert staged(103, nobody) == ("written; no Envoy runs on them yet\n", True, True)


def test_files_that_envoy_has_taken_are_not_written_again(made: Site) -> None:
    def written() -> dict[str, int]:
        files = (path for path in made.ground.folder.iterdir() if path.is_file())
        return {path.name: path.stat().st_mtime_ns for path in files}

    before = written()
    took(made.publish(made.plan))
    assert written() == before


def test_what_is_put_back_is_what_envoy_took_last_and_not_what_a_killed_run_left_behind(made: Site) -> None:
    def limited(to: int) -> FrontEndPlan:
        return replace(made.plan, spec=made.plan.spec.model_copy(update={"max_concurrent": to}))

    took(made.publish(limited(101)))
    taken = files_of(made)
    # As where the next run was killed once it had written what Envoy refuses.
    routes = made.ground.folder / "rds-rest.yaml"
    _, _, text = routes.read_text().partition("\n")
    left = text.replace('cluster: "rest-vision"', 'cluster: "nope"')
    refused = made.stat("http.rest.rds.rest.update_rejected")
    (made.ground.folder / ".new").write_text(f'version_info: "left"\n{left}')
    (made.ground.folder / ".new").rename(routes)
    wait_for("the refusal", lambda: made.stat("http.rest.rds.rest.update_rejected") > refused)
    said = made.publish(limited(102), WRONG["a cluster with a misspelt field"], patience_s=10)
    assert said.code == 1
    assert files_of(made) == taken
    # And where the change is taken back in the stack file: Envoy's next start finds nothing refused.
    (made.ground.folder / ".new").write_text(f'version_info: "left"\n{left}')
    (made.ground.folder / ".new").rename(routes)
    took(made.publish(limited(101)))
    assert files_of(made) == taken
    assert made.predict(TEXT).status == 200


def test_an_envoy_that_does_not_answer_is_waited_for_and_then_said(made: Site, tmp_path: Path) -> None:
    [port] = free_ports(1)
    where = (made.ground.folder, made.ground.folder, "127.0.0.1", port)
    said = run_script("apply", *where, work=tmp_path / "there", patience_s=1)
    assert said == Said(1, f"no Envoy answers at 127.0.0.1:{port}\n")


def test_the_script_needs_only_what_the_images_have() -> None:
    words = set(re.findall(r"[a-z]+", SCRIPT.read_text()))
    assert {"cp", "mv", "rm", "sleep", "mkdir"} <= words
    assert not words & {"sed", "awk", "grep", "mktemp", "cut", "head", "diff", "curl", "dirname", "basename"}
