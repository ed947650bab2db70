"""The machine's iptables around the start and stop of an engine: our rules go, everybody else's stay.

A dockerd empties the chains whose names begin with DOCKER as it starts, also where another engine's published
ports and network isolation stand in them. So what was there before is put back.
"""

import fcntl
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAMS = ("iptables", "ip6tables")
_TABLES = ("filter", "nat", "raw")
_LOCK = Path("/run/tf-serving-firewall.lock")
_PATIENCE = ("--wait", "10")  # for whoever else changes rules at this moment

# Rules of one program and table, as `iptables -S` writes them and in its order.
Rules = Mapping[tuple[str, str], list[str]]


def provide_iptables(folder: Path) -> bool:
    """Make `folder` hold what dockerd's PATH needs to find a working iptables; False where there is none.

    Debian's `iptables` speaks nftables, which some kernels lack while its legacy variant works.
    """
    if _run("iptables", "nat", "-S") is not None:
        return True
    if _run("iptables-legacy", "nat", "-S") is None:
        return False
    for name in _PROGRAMS:
        link = folder / name
        link.unlink(missing_ok=True)
        target = shutil.which(f"{name}-legacy", path=SYSTEM_PATH)
        if target:
            link.symlink_to(target)
    return True


@contextmanager
def others_kept() -> Iterator[None]:
    """Put the rules of Docker's chains that vanish meanwhile back where they stood.

    One start at a time on a machine: two would each take what the other one empties for lost, or not see it.
    """
    with _LOCK.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        before = _rules()
        try:
            yield
        finally:
            _put_back(before, _rules())


def _put_back(before: Rules, after: Rules) -> None:
    for (program, table), lines in before.items():
        left = set(after.get((program, table), []))
        lost = lost_docker_rules(lines, left, _device_exists)
        if lost:
            text = "\n".join([f"*{table}", *lost, "COMMIT", ""])
            subprocess.run(
                [f"{program}-restore", "--noflush", *_PATIENCE],
                input=text,
                text=True,
                check=False,
                capture_output=True,
                env=system_env(),
            )


def lost_docker_rules(before: list[str], after: set[str], exists: Callable[[str], bool]) -> list[str]:
    """What brings the missing rules back: each is put first in its chain, so the last one comes first.

    Left out are those of a network device that no longer `exists`: their own engine took them away.
    """
    lost = [line for line in before if line.startswith("-A DOCKER") and line not in after]
    kept = [line for line in lost if all(map(exists, _devices(line.split())))]
    return [f"-I{line.removeprefix('-A')}" for line in reversed(kept)]


def _devices(words: list[str]) -> list[str]:
    return [name for option, name in pairwise(words) if option in ("-i", "-o")]


def _device_exists(name: str) -> bool:
    return Path(f"/sys/class/net/{name}").exists()


def drop_rules_of(*devices: str) -> None:
    """Delete every rule that names one of the network devices: dockerd leaves its bridges' as it ends."""
    for (program, table), lines in _rules().items():
        for words in map(shlex.split, lines):
            if words[0] == "-A" and not set(devices).isdisjoint(words):
                _run(program, table, "-D", *words[1:])


def system_env() -> dict[str, str]:
    """The environment with the system's folders on PATH, which a user's may lack."""
    return {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"}


def _rules() -> Rules:
    found = {}
    for program in _PROGRAMS:
        for table in _TABLES:
            shown = _run(program, table, "-S")
            if shown is not None:
                found[program, table] = shown.splitlines()
    return found


def _run(program: str, table: str, *arguments: str) -> str | None:
    command = [program, *_PATIENCE, "-t", table, *arguments]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=system_env(), timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
