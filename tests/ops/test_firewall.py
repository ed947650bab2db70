import fcntl
import os
from pathlib import Path

import pytest

from ops import firewall
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


FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
case "$(basename "$0")" in
*-restore) cat >>"$LOG" ;;
iptables) [ -e "$LOG.started" ] || echo "-A DOCKER -p tcp -j ACCEPT" ;;
esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What was asked of iptables, which stands in here; `<log>.started` makes its rules vanish."""
    for name in ("iptables", "ip6tables", "iptables-restore", "ip6tables-restore"):
        (tmp_path / name).write_text(FAKE)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setattr(firewall, "_LOCK", tmp_path / "lock")
    return tmp_path / "log"


def test_lost_rules_are_put_back_also_where_somebody_changes_others_at_that_moment(log: Path) -> None:
    with firewall.others_kept():
        Path(f"{log}.started").touch()
    lines = log.read_text().splitlines()
    assert lines.count("iptables-restore --noflush --wait 10") == 3
    assert lines.count("-I DOCKER -p tcp -j ACCEPT") == 3
    assert all("--wait 10" in line for line in lines if line.startswith("ip"))


def test_lost_rules_are_put_back_also_where_the_start_is_interrupted(log: Path) -> None:
    def start() -> None:
        with firewall.others_kept():
            Path(f"{log}.started").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start()
    assert "-I DOCKER -p tcp -j ACCEPT" in log.read_text()


def test_one_engine_starts_at_a_time(log: Path, tmp_path: Path) -> None:
    with firewall.others_kept(), (tmp_path / "lock").open("a") as second, pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
