"""Instances die, hang, fill up and load while clients ask a real Envoy."""

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.envoy.backend import POISON
from tests.envoy.harness import Site, site, wait_for
from tests.envoy.load import load_on
from tests.envoy.pools import SmallPool

pytestmark = pytest.mark.envoy

both_protocols = pytest.mark.parametrize("protocol", ["rest", "grpc"])


@pytest.fixture
def four(envoy_binary: Path, tmp_path: Path) -> Iterator[Site]:
    with site(envoy_binary, tmp_path, settings={"request_timeout_s": 5}) as made:
        yield made


@both_protocols
@pytest.mark.parametrize("clients", [8, 100])
def test_no_request_fails_when_an_instance_is_killed(four: Site, protocol: str, clients: int) -> None:
    for backend in four.backends.values():
        backend.behave({"delay_s": 0.01 if clients == 8 else 0.2})
    victim = four.backends["gpu-01-gpu1"]
    with load_on(four, protocol, clients=clients) as load:
        load.more(400)
        victim.kill()
        load.more(800)
    assert load.failures == []
    assert set(load.served) == set(four.backends)


def test_a_large_request_is_sent_again_whole_when_its_instance_is_killed(four: Site) -> None:
    for backend in four.backends.values():
        backend.behave({"delay_s": 0.1})
    with load_on(four, "rest", clients=8, body=b"x" * 2_000_000) as load:
        load.more(40)
        four.backends["gpu-01-gpu1"].kill()
        load.more(100)
    assert load.failures == []


@both_protocols
def test_no_request_fails_when_inference_hangs_on_one_instance(four: Site, protocol: str) -> None:
    victim = four.backends["gpu-01-gpu2"]
    with load_on(four, protocol) as load:
        load.more(200)
        victim.behave({"answer": "hang"})
        load.more(800)
        wait_for(
            "the ejection",
            lambda: four.stat(f"cluster.{protocol}-main.outlier_detection.ejections_active") == 1,
        )
    assert load.failures == []
    assert load.slowest_s < 4.5  # one try of 2 s was lost, a second one answered


@pytest.mark.parametrize("instances", [2, 4])
def test_a_rolled_pool_loses_no_request(envoy_binary: Path, tmp_path: Path, instances: int) -> None:
    pool = SmallPool(instances=instances, models=["resnet"])
    with site(envoy_binary, tmp_path, [pool]) as made:
        for backend in made.backends.values():
            backend.behave({"delay_s": 0.02})
        with load_on(made, "rest", clients=20) as load, load_on(made, "grpc", clients=20) as grpc_load:
            for backend in made.backends.values():
                load.more(200)
                backend.kill()
                load.more(200)
                backend.start()
                # The next one goes as soon as this one answers, whatever Envoy knows by then.
                wait_for(f"{backend.name} answers", backend.is_up)
            load.more(200)
            grpc_load.more(200)
    assert load.failures == []
    assert grpc_load.failures == []


@both_protocols
def test_a_killed_instance_serves_again_after_it_returns(four: Site, protocol: str) -> None:
    victim = four.backends["gpu-01-gpu3"]
    with load_on(four, protocol, clients=2) as load:
        victim.kill()
        load.more(200)
        victim.start()
        wait_for(f"{victim.name} answers", victim.is_up)
        before = load.served[victim.name]
        wait_for("it serves", lambda: load.served[victim.name] > before, 40)
    assert load.failures == []


def test_a_full_queue_is_passed_on_and_ejects_nobody(four: Site) -> None:
    for backend in four.backends.values():
        backend.behave({"answer": "full"})
    for _ in range(20):
        answer = four.predict()
        assert answer.status == 503
        assert answer.json() == {"error": "The batch scheduling queue is full"}
        with pytest.raises(grpc.RpcError) as refused:
            four.grpc()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert refused.value.details() == "The batch scheduling queue is full"
    for cluster in ("rest-main", "grpc-main"):
        assert four.healthy(cluster) == 4
        assert four.stat(f"cluster.{cluster}.outlier_detection.ejections_enforced_total") == 0


@both_protocols
def test_no_request_fails_when_an_instance_fails_every_prediction(four: Site, protocol: str) -> None:
    victim = four.backends["gpu-01-gpu2"]
    with load_on(four, protocol) as load:
        load.more(200)
        victim.behave({"answer": "broken"})
        load.more(800)
        victim.behave({"answer": "ok"})
        before = load.served[victim.name]
        wait_for("it serves", lambda: load.served[victim.name] > before, 40)
    assert load.failures == []


@both_protocols
def test_an_instance_that_fails_every_prediction_is_ejected(four: Site, protocol: str) -> None:
    victim = four.backends["gpu-01-gpu2"]
    with load_on(four, protocol, clients=16) as load:
        victim.behave({"answer": "broken"})
        ejected = f"cluster.{protocol}-main.outlier_detection.ejections_active"
        wait_for("the ejection", lambda: four.stat(ejected) == 1)
        victim.seen()
        load.more(400)
        assert len(victim.seen()) < 20  # at its return a few, before it is ejected again
    assert load.failures == []


def test_an_instance_whose_queue_is_full_most_of_the_time_is_not_ejected_over_grpc(four: Site) -> None:
    victim = four.backends["gpu-01-gpu2"]
    victim.behave({"answer": "mostly full"})
    with load_on(four, "grpc", clients=16) as load:
        victim.seen()
        load.more(2000)
        assert len(victim.seen()) > 200
    assert load.failures == []
    assert four.stat("cluster.grpc-main.outlier_detection.ejections_enforced_total") == 0


@both_protocols
def test_what_a_client_did_wrong_is_passed_on_at_once_and_ejects_nobody(four: Site, protocol: str) -> None:
    for backend in four.backends.values():
        backend.behave({"answer": "refuse"})
    for _ in range(30):
        if protocol == "rest":
            assert four.predict().status == 400
        else:
            with pytest.raises(grpc.RpcError) as refused:
                four.grpc()
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sum(len(backend.seen()) for backend in four.backends.values()) == 30
    assert four.stat(f"cluster.{protocol}-main.outlier_detection.ejections_enforced_total") == 0


@both_protocols
def test_a_request_that_no_instance_can_answer_takes_the_pool_from_nobody(four: Site, protocol: str) -> None:
    with load_on(four, protocol, clients=4) as sound, load_on(four, protocol, body=POISON) as poison:
        sound.more(300)
        poison.more(300)
        sound.more(300)
    assert sound.failures == []
    assert not poison.served
    # Poison alone ejects every instance; then all are asked as if none were.
    with load_on(four, protocol, body=POISON) as poison:
        poison.more(300)
    with load_on(four, protocol, clients=4) as sound:
        sound.more(300)
    assert sound.failures == []


@both_protocols
def test_a_request_that_meets_full_queues_finds_an_instance_with_room(four: Site, protocol: str) -> None:
    full = ["gpu-01-gpu0", "gpu-01-gpu1"]
    for name in full:
        four.backends[name].behave({"answer": "full"})
    with load_on(four, protocol, clients=4) as load:
        load.more(200)
    assert load.failures == []
    assert set(load.served) == set(four.backends) - set(full)
    assert all(four.backends[name].seen() for name in full)


def test_the_header_names_the_instance_that_answered_after_a_retry(
    envoy_binary: Path, tmp_path: Path
) -> None:
    two = SmallPool(instances=2, models=["resnet"])
    with site(envoy_binary, tmp_path, [two]) as made:
        broken, sound = made.backends.values()
        broken.behave({"answer": "reset"})
        for _ in range(10):
            answer = made.predict()
            assert (answer.status, answer.served_by) == (200, sound.name)
        assert broken.seen()

        def retried() -> bool:
            return any(line["attempts"] == 2 and line["instance"] == sound.name for line in made.log_lines())

        wait_for("the retry in the log", retried)


def test_an_instance_serves_only_while_every_model_has_a_loaded_version(
    envoy_binary: Path, tmp_path: Path
) -> None:
    pool = SmallPool(instances=4, models=["resnet", "bert"])
    with site(envoy_binary, tmp_path, [pool]) as made:
        loading, ended, newer, last = made.backends.values()
        loading.behave({"states": {"bert": ["LOADING"]}})
        ended.behave({"states": {"resnet": ["END"]}})
        newer.behave({"states": {"bert": ["AVAILABLE", "LOADING"]}})
        well = {newer.name, last.name}
        wait_for("two are left, REST", lambda: {made.predict().served_by for _ in range(30)} == well)
        wait_for("two are left, gRPC", lambda: {made.grpc()[1] for _ in range(30)} == well)
        assert made.rest("GET", "/healthz").status == 200

        for backend in (newer, last):
            backend.behave({"states": {"resnet": ["START"]}})
        wait_for("none healthy", lambda: made.rest("GET", "/healthz").status == 503)
        # With nobody well, asking is better than refusing: the state may be wrong, the answer is not.
        assert made.predict().status == 200

        loading.behave({"states": {}})
        wait_for("one healthy", lambda: made.rest("GET", "/healthz").status == 200)
        wait_for("it alone serves", lambda: {made.predict().served_by for _ in range(30)} == {loading.name})


def test_a_request_that_nobody_answers_ends_at_the_timeout(envoy_binary: Path, tmp_path: Path) -> None:
    with site(envoy_binary, tmp_path, settings={"request_timeout_s": 1}) as made:
        for backend in made.backends.values():
            backend.behave({"answer": "hang"})
        for ends in (_ends_over_rest, _ends_over_grpc):
            started = time.monotonic()
            ends(made)
            # Its timer is rounded to a millisecond. Where Envoy does not end it, the client does, after 30 s.
            assert 0.9 < time.monotonic() - started < 15


def _ends_over_rest(made: Site) -> None:
    answer = made.predict()
    assert answer.status == 504
    assert list(answer.json()) == ["error"]


def _ends_over_grpc(made: Site) -> None:
    with pytest.raises(grpc.RpcError) as late:
        made.grpc()
    assert late.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
