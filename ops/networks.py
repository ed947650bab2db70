"""Which IPv4 blocks a private engine may use on this machine."""

import hashlib
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from ops.errors import UserError

_ADDRESS = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(/\d{1,2})?(?![\d.])")
_LOOPBACK = IPv4Network("127.0.0.0/8")
_EVERYWHERE = IPv4Network("0.0.0.0/0")
# Docker itself allocates from these; the second one is for machines whose routes fill the first.
_CANDIDATES = (IPv4Network("172.16.0.0/12"), IPv4Network("10.128.0.0/9"))


@dataclass(frozen=True)
class Block:
    """An engine's addresses: its default bridge's /24, and the pool of networks without a declared subnet."""

    bridge: IPv4Network
    pool: IPv4Network


def networks_in(text: str) -> list[IPv4Network]:
    """The IPv4 networks (and single addresses, as /32) that a text names; loopback and 0.0.0.0 left out."""
    found = []
    for address, prefix in _ADDRESS.findall(text):
        try:
            network = IPv4Network(f"{address}{prefix}", strict=False)
        except ValueError:
            continue
        if network != _EVERYWHERE and not network.subnet_of(_LOOPBACK) and address != "0.0.0.0":  # noqa: S104
            found.append(network)
    return found


def routed_networks() -> list[IPv4Network]:
    """What this machine has routes to, in every routing table (a VPN's are often not in the main one)."""
    shown = subprocess.run(
        ["ip", "-4", "route", "show", "table", "all"], capture_output=True, text=True, check=False
    )
    return networks_in(shown.stdout)


def choose_block(key: str, taken: Iterable[IPv4Network]) -> Block:
    """A /20 that overlaps nothing in `taken`; `key` says where to look first, so that two engines differ."""
    busy = list(taken)
    for candidate in _CANDIDATES:
        blocks = list(candidate.subnets(new_prefix=20))
        first = int(hashlib.sha256(key.encode()).hexdigest(), 16) % len(blocks)
        for block in (*blocks[first:], *blocks[:first]):
            if not _overlaps(block, busy):
                lower, upper = block.subnets(new_prefix=21)
                return Block(bridge=next(lower.subnets(new_prefix=24)), pool=upper)
    tried = " and ".join(str(candidate) for candidate in _CANDIDATES)
    raise UserError(
        f"No free /20 for a private Docker Engine: this machine's routes overlap all of {tried}. "
        "Point DOCKER_HOST at an engine that you run."
    )


def _overlaps(block: IPv4Network, busy: Sequence[IPv4Network]) -> bool:
    return any(block.overlaps(network) for network in busy)
