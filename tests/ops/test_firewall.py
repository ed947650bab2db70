from ops.firewall import lost_docker_rules

BEFORE = [
    "-P FORWARD DROP",
    "-N DOCKER",
    "-A FORWARD -o br-1 -j DOCKER",
    "-A DOCKER -i br-1 -j RETURN",
    "-A DOCKER ! -i br-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.2:80",
    "-A DOCKER-USER -j RETURN",
]


def test_rules_of_dockers_chains_that_vanished_come_back_in_their_order() -> None:
    after = {"-N DOCKER", "-A DOCKER -i br-2 -j RETURN", "-A DOCKER-USER -j RETURN"}
    # Each is inserted first in its chain, so the last inserted one ends up first.
    assert lost_docker_rules(BEFORE, after) == [
        "-I DOCKER ! -i br-1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.2:80",
        "-I DOCKER -i br-1 -j RETURN",
    ]


def test_nothing_is_put_back_when_nothing_is_lost() -> None:
    assert lost_docker_rules(BEFORE, set(BEFORE)) == []


def test_rules_of_chains_that_are_not_dockers_are_left_alone() -> None:
    assert lost_docker_rules(["-A INPUT -j DROP"], set()) == []
