from ops.firewall import lost_docker_rules

BEFORE = [
    "-P FORWARD DROP",
    "-N DOCKER",
    "-A FORWARD -o br-1 -j DOCKER",
    "-A DOCKER -i br-1 -j RETURN",
    "-A DOCKER ! -i br-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.2:80",
    "-A DOCKER-USER -j RETURN",
]


def always(_device: str) -> bool:
    return True


def test_rules_of_dockers_chains_that_vanished_come_back_in_their_order() -> None:
    after = {"-N DOCKER", "-A DOCKER -i br-2 -j RETURN", "-A DOCKER-USER -j RETURN"}
    # Each is inserted first in its chain, so the last inserted one ends up first.
    assert lost_docker_rules(BEFORE, after, exists=always) == [
        "-I DOCKER ! -i br-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.2:80",
        "-I DOCKER -i br-1 -j RETURN",
    ]


def test_nothing_is_put_back_when_nothing_is_lost() -> None:
    assert lost_docker_rules(BEFORE, set(BEFORE), exists=always) == []


def test_rules_of_chains_that_are_not_dockers_are_left_alone() -> None:
    assert lost_docker_rules(["-A INPUT -j DROP"], set(), exists=always) == []


def test_rules_of_an_engine_that_took_its_bridge_away_meanwhile_stay_away() -> None:
    assert lost_docker_rules(BEFORE, set(), exists=lambda device: device != "br-1") == [
        "-I DOCKER-USER -j RETURN"
    ]
