from ipaddress import IPv4Network

import pytest

from ops.errors import UserError
from ops.networks import choose_block, networks_in

ROUTES = """default via 192.0.2.1 dev eth0
192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.7
10.8.0.0/16 via 10.9.0.1 dev tun0 table 220
local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1
broadcast 192.0.2.255 dev eth0 table local
"""


def test_every_network_and_address_of_a_route_listing_counts_as_taken() -> None:
    assert set(map(str, networks_in(ROUTES))) == {
        "192.0.2.1/32",
        "192.0.2.0/24",
        "192.0.2.7/32",
        "10.8.0.0/16",
        "10.9.0.1/32",
        "192.0.2.255/32",
    }


def test_text_that_only_looks_like_an_address_is_no_network() -> None:
    assert networks_in("version 1.2.3.4.5, 999.1.1.1, 10.0.0.0/40, 0.0.0.0/0, 535.129.03") == []


def test_a_block_overlaps_nothing_that_is_routed() -> None:
    taken = [IPv4Network("172.16.0.0/13"), IPv4Network("172.24.0.0/14")]
    for key in ("a", "b", "c"):
        block = choose_block(key, taken)
        assert not any(block.pool.overlaps(n) or block.bridge.overlaps(n) for n in taken)
        assert not block.pool.overlaps(block.bridge)


def test_two_keys_get_two_blocks_and_one_key_always_the_same() -> None:
    assert choose_block("one", []) == choose_block("one", [])
    assert not choose_block("one", []).pool.overlaps(choose_block("two", []).pool)


def test_a_machine_whose_172_range_is_full_gets_addresses_below_10() -> None:
    assert choose_block("a", [IPv4Network("172.16.0.0/12")]).bridge.subnet_of(IPv4Network("10.128.0.0/9"))


def test_a_machine_without_free_addresses_is_told_what_to_do() -> None:
    with pytest.raises(UserError, match="DOCKER_HOST"):
        choose_block("a", [IPv4Network("172.16.0.0/12"), IPv4Network("10.0.0.0/8")])
