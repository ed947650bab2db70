"""How a real Envoy shares requests out, and that a user stays with an instance."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.envoy.harness import Site, site
from tests.envoy.load import load_on
from tests.envoy.pools import STICKY, SmallPool
from tests.envoy.spread import homes, moves, users

pytestmark = pytest.mark.envoy


@pytest.fixture(scope="module")
def sticky(envoy_binary: Path) -> Iterator[Site]:
    with (
        tempfile.TemporaryDirectory() as folder,
        site(envoy_binary, Path(folder), STICKY, {"user_header": "x-account"}) as made,
    ):
        yield made


def test_users_are_spread_evenly_stay_when_others_leave_and_return_home(
    envoy_binary: Path, tmp_path: Path
) -> None:
    found = moves(envoy_binary, tmp_path, 2000)
    assert found.spread < 1.15
    # One of four instances has a quarter of the users: those move, and next to nobody else.
    assert found.one_down < 28
    assert found.needlessly < 0.5
    assert found.returned == 0
    assert found.readdressed == 0


def test_the_header_that_names_the_user_is_a_setting(sticky: Site) -> None:
    ids = users(40)
    assert homes(sticky, ids, header="x-account") == homes(sticky, ids, header="x-account")
    assert len(set(homes(sticky, ids, header="x-account").values())) == 4
    same = ["one"] * 40
    assert len({home for _ in same for home in homes(sticky, ["one"], header="x-account").values()}) == 1


def test_requests_without_a_user_are_balanced_as_if_nobody_stuck(sticky: Site) -> None:
    answered = Counter(
        home for user in users(60) for home in homes(sticky, [user], header="x-user-id").values()
    )
    assert len(answered) == 4
    assert sticky.stat("cluster.rest-main.upstream_rq_200") >= 60


def test_a_user_is_on_the_same_instance_over_grpc_and_rest(sticky: Site) -> None:
    ids = users(20)
    rest = homes(sticky, ids, header="x-account")
    for user in ids:
        assert sticky.grpc(metadata=[("x-account", user)])[1] == rest[user]


def test_a_users_requests_fail_over_when_their_instance_dies(envoy_binary: Path, tmp_path: Path) -> None:
    with site(envoy_binary, tmp_path, STICKY) as made:
        [home] = set(homes(made, ["u"]).values())
        with load_on(made, "rest", clients=8, headers={"x-user-id": "u"}) as load:
            load.more(200)
            made.backends[home].kill()
            load.more(400)
    assert load.failures == []
    assert load.served[home]
    assert len(load.served) > 1


def test_round_robin_takes_instances_in_turn(envoy_binary: Path, tmp_path: Path) -> None:
    pool = SmallPool(instances=4, models=["resnet"], more={"balancing": {"policy": "round_robin"}})
    with site(envoy_binary, tmp_path, [pool], {"workers": 1}) as made:
        answered = Counter(homes(made, users(400)).values())
    # Envoy's workers each count for themselves; over one connection there is one.
    assert set(answered.values()) == {100}
