"""Pools that take over and pools for hot requests alone, on a real Envoy."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.envoy.harness import Site, site, wait_for
from tests.envoy.load import load_on
from tests.envoy.pools import SmallPool
from tests.envoy.spread import homes, users

pytestmark = pytest.mark.envoy

PREDICT = "/v1/models/resnet:predict"


def main(traffic: dict[str, Any], instances: int = 4, **more: Any) -> SmallPool:
    return SmallPool(instances=instances, models=["resnet"], more={"traffic": traffic, **more})


SPARE = SmallPool(name="spare", instances=1, models=["resnet"])


def kill(made: Site, count: int, cluster: str) -> None:
    """Ends the first instances of `main`, and waits until Envoy knows."""
    names = [endpoint.name for endpoint in made.plan.pool("main").endpoints]
    for name in names[:count]:
        made.backends[name].kill()
    left = len(names) + 1 - count
    wait_for("they are out", lambda: made.healthy(cluster) == left)


def to_spare(made: Site, ids: list[str], header: str) -> float:
    """Percent of requests that the standby answers."""
    served = Counter(homes(made, ids, header=header).values())
    return 100 * served[made.plan.pool("spare").endpoints[0].name] / len(ids)


@pytest.mark.parametrize(
    ("from_percent", "shares"), [(100, (0, 25, 50, 75)), (71, (0, 0, 29.6, 64.8)), (10, (0, 0, 0, 0))]
)
def test_a_standby_gets_what_healthy_instances_are_missing_for(
    envoy_binary: Path, tmp_path: Path, from_percent: int, shares: tuple[float, ...]
) -> None:
    standby = {"pool": "spare", "from_healthy_percent": from_percent}
    with site(envoy_binary, tmp_path, [main({"standby": standby}), SPARE]) as made:
        for down, share in enumerate(shares):
            kill(made, down, "rest-main")
            found = to_spare(made, users(800), "x-nobody")
            assert found == 0 if share == 0 else abs(found - share) < 6, (down, found)
        kill(made, 4, "rest-main")
        assert to_spare(made, users(100), "x-nobody") == 100


def test_no_request_fails_when_a_whole_pool_dies_that_has_a_standby(
    envoy_binary: Path, tmp_path: Path
) -> None:
    pools = [main({"standby": {"pool": "spare"}}, instances=2), SPARE]
    spare = "gpu-01-gpu2"
    with site(envoy_binary, tmp_path, pools) as made:
        for backend in made.backends.values():
            backend.behave({"delay_s": 0.01})
        with load_on(made, "rest", clients=8) as load, load_on(made, "grpc", clients=8) as grpc_load:
            load.more(200)
            assert spare not in load.served
            for name in ("gpu-01-gpu0", "gpu-01-gpu1"):
                made.backends[name].kill()
                load.more(200)
            served = load.served[spare]
            load.more(200)
            assert load.served[spare] > served
            grpc_load.more(100)
            # It goes back to work alone once the pool is well again.
            for name in ("gpu-01-gpu0", "gpu-01-gpu1"):
                made.backends[name].start()
            made.settled()
            before = load.served["gpu-01-gpu0"]
            load.more(200)
            assert load.served["gpu-01-gpu0"] > before
    assert load.failures == []
    assert grpc_load.failures == []
    assert spare in grpc_load.served


def test_a_standby_moves_no_user_whose_instance_is_there(envoy_binary: Path, tmp_path: Path) -> None:
    pools = [main({"standby": {"pool": "spare"}}, balancing={"sticky": True}), SPARE]
    ids = users(2000)
    with site(envoy_binary, tmp_path, pools) as made:
        before = homes(made, ids)
        spare = made.plan.pool("spare").endpoints[0].name
        assert spare not in before.values()
        kill(made, 1, "rest-main_sticky")
        during = homes(made, ids)
        gone = made.plan.pool("main").endpoints[0].name
        assert spare not in during.values()
        moved = [user for user in ids if during[user] != before[user] and before[user] != gone]
        assert len(moved) < 20


def test_with_nobody_left_everybody_is_asked(envoy_binary: Path, tmp_path: Path) -> None:
    # The panic threshold: a wrong health check must not refuse what would be answered.
    with site(envoy_binary, tmp_path, [main({"standby": {"pool": "spare"}}, instances=1), SPARE]) as made:
        for backend in made.backends.values():
            backend.behave({"states": {"resnet": ["LOADING"]}})
        wait_for("none healthy", lambda: made.healthy("rest-main") == 0)
        assert made.rest("POST", PREDICT, b"{}").status == 200


# Dedicated pools

HOT = SmallPool(name="hot", instances=1, models=["resnet"])
DEDICATED = [
    {"pool": "hot", "header": {"name": "x-class", "value": "hot"}},
    {"pool": "hot", "path": "/v1/models/resnet:classify"},
]


@pytest.fixture(scope="module")
def dedicated(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("envoy")
    with site(envoy_binary, folder, [main({"dedicated": DEDICATED}, instances=2), HOT]) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "headers", "hot"),
    [
        (PREDICT, {"x-class": "hot"}, True),
        (PREDICT, {"x-class": "hotter"}, False),
        (PREDICT, {}, False),
        ("/v1/models/resnet:classify", {}, True),
        ("/v1/models/resnet/versions/3:predict", {"x-class": "hot"}, True),
        ("/v1/models/resnet/versions/3:classify", {}, False),
        (PREDICT, {"x-class": "hot", "x-tf-model-version": "3"}, True),
        (PREDICT, {"x-tf-model-version": "3"}, False),
    ],
)
def test_hot_requests_go_to_their_own_pool_and_no_others_do(
    dedicated: Site, path: str, headers: dict[str, str], hot: bool
) -> None:
    served = {dedicated.rest("POST", path, b"{}", headers).served_by for _ in range(20)}
    assert served == {"gpu-01-gpu2"} if hot else "gpu-01-gpu2" not in served


def test_hot_requests_over_grpc_go_by_the_header(dedicated: Site) -> None:
    for metadata, hot in (([("x-class", "hot")], True), ([], False)):
        served = {dedicated.grpc(metadata=metadata)[1] for _ in range(10)}
        assert (served == {"gpu-01-gpu2"}) == hot
        assert ("gpu-01-gpu2" in served) == hot


def test_hot_requests_are_served_by_the_others_when_their_pool_is_down(
    envoy_binary: Path, tmp_path: Path
) -> None:
    with site(envoy_binary, tmp_path, [main({"dedicated": DEDICATED}, instances=2), HOT]) as made:
        with load_on(made, "rest", clients=4, headers={"x-class": "hot"}) as load:
            load.more(100)
            assert set(load.served) == {"gpu-01-gpu2"}
            made.backends["gpu-01-gpu2"].kill()
            load.more(300)
        assert load.failures == []
        assert len(load.served) == 3


def test_a_dedicated_pool_for_a_model_among_several(envoy_binary: Path, tmp_path: Path) -> None:
    traffic = {"dedicated": [{"pool": "hot", "models": ["bert"]}]}
    pools = [
        SmallPool(instances=1, models=["resnet", "bert"], more={"traffic": traffic}),
        SmallPool(name="hot", instances=1, models=["bert"]),
    ]
    with site(envoy_binary, tmp_path, pools) as made:
        assert made.predict("bert").served_by == "gpu-01-gpu1"
        assert made.predict("resnet").served_by == "gpu-01-gpu0"
        assert made.grpc(metadata=[("x-tf-model", "bert")])[1] == "gpu-01-gpu1"
        assert made.grpc(metadata=[("x-tf-model", "resnet")])[1] == "gpu-01-gpu0"
        # Its model is not to be seen.
        assert made.grpc()[1] == "gpu-01-gpu0"
