"""Where a front end can be published: addresses that a node's machine has, ports that others have already."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from ops.hosts import Host

_INET = re.compile(r"\binet (\d+\.\d+\.\d+\.\d+)")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_MAPPING = re.compile(r"(\S+):(\d+)(?:-(\d+))?->")
_STACK = '{{.Label "tf-serving.stack"}}'
_LISTENS = "0A"
_SOCKETS = ["cat", "/proc/net/tcp", "/proc/net/tcp6"]
# A machine of a pair may publish on an address that is the other one's at the moment (keepalived).
_NONLOCAL = ["cat", "/proc/sys/net/ipv4/ip_nonlocal_bind"]


@dataclass(frozen=True)
class Published:
    """A port that a container has of the machine; `stack` is empty for one that is not of ours."""

    stack: str
    container: str
    address: str


def addresses(host: Host) -> frozenset[str] | None:
    """The IPv4 addresses of a machine; None where it does not tell."""
    answer = host.run(["ip", "-o", "-4", "addr", "show"])
    found = _INET.findall(answer.stdout) if answer.code == 0 else []
    if not found:
        answer = host.run(["hostname", "-I"])
        found = _ADDRESS.findall(answer.stdout) if answer.code == 0 else []
    return frozenset(found) or None


def may_take_others(host: Host) -> bool:
    """Whether a program there may listen on an address that the machine does not have."""
    return host.run(_NONLOCAL).stdout.strip() == "1"


def published(host: Host, port: int) -> list[Published]:
    """Which containers of the engine have a port, and on which address."""
    form = f"{_STACK}\t{{{{.Names}}}}\t{{{{.Ports}}}}"
    answer = host.docker("ps", "--filter", f"publish={port}", "--format", form)
    found = []
    for line in answer.stdout.splitlines() if answer.code == 0 else []:
        stack, container, ports = line.split("\t")
        for address, first, last in _MAPPING.findall(ports):
            if int(first) <= port <= int(last or first):
                found.append(Published(stack, container, address.strip("[]")))
    return found


def listeners(host: Host) -> frozenset[tuple[str, int]] | None:
    """Address and port of every socket of a machine that listens; None where it does not tell."""
    answer = host.run(_SOCKETS)
    rows = [line.split() for line in answer.stdout.splitlines()]
    # /proc/net/tcp6 is not there where IPv6 is off: what was read counts.
    sockets = [row[1] for row in rows if len(row) > 3 and row[3] == _LISTENS]
    return frozenset(_socket(text) for text in sockets) if rows else None


def _socket(text: str) -> tuple[str, int]:
    """`0B00140A:1F90` as the kernel writes it: each group of four bytes backwards."""
    digits, _, port = text.partition(":")
    raw = bytes.fromhex(digits)
    ordered = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    if len(ordered) == 4:
        return str(IPv4Address(ordered)), int(port, 16)
    address = IPv6Address(ordered)
    return str(address.ipv4_mapped or address), int(port, 16)


def clash(one: str, other: str) -> bool:
    """Whether two programs cannot listen on a port of these addresses at once."""
    everywhere = {"0.0.0.0", "::"}  # noqa: S104 - what is looked for
    return one == other or bool(everywhere & {one, other})
