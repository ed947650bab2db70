"""Which instance each of many users is sent to by a real Envoy, and who moves when instances come and go.

`python -m tests.envoy.spread` prints the table of docs/traffic.md.
"""

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from images import envoy
from tests.envoy.harness import Site, site, wait_for
from tests.envoy.pools import STICKY

Homes = Mapping[str, str]
"""Each user's instance, or path."""


def users(count: int) -> list[str]:
    """Made-up user ids."""
    return [f"user-{number}" for number in range(count)]


def homes(made: Site, ids: Sequence[str], *, header: str = "x-user-id", in_flight: int = 1) -> Homes:
    """One REST request of each user, `in_flight` at a time, and who answered."""
    asked = asyncio.run(_asked(made.plan.spec.rest_port, ids, header, in_flight))
    return {user: str(answer["served_by"]) for user, answer in asked}


def paths(made: Site, ids: Sequence[str], *, header: str = "x-user-id") -> Homes:
    """One REST request of each user, and the path that reached an instance."""
    asked = asyncio.run(_asked(made.plan.spec.rest_port, ids, header, 4))
    return {user: str(answer["path"]) for user, answer in asked}


Asked = list[tuple[str, dict[str, object]]]


async def _asked(port: int, ids: Sequence[str], header: str, in_flight: int) -> Asked:
    shares = [ids[first::in_flight] for first in range(in_flight)]
    found = await asyncio.gather(*(_client(port, share, header) for share in shares))
    return [pair for pairs in found for pair in pairs]


async def _client(port: int, ids: Sequence[str], header: str) -> Asked:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    pairs = []
    for user in ids:
        writer.write(
            f"POST /v1/models/resnet:predict HTTP/1.1\r\nhost: x\r\n{header}: {user}\r\n"
            "content-length: 2\r\n\r\n{}".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        assert head[0].startswith("http/1.1 200"), head[0]
        fields = {name: value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        answer = json.loads(await reader.readexactly(int(fields["content-length"])))
        assert answer["served_by"] == fields["x-served-by"]
        pairs.append((user, answer))
    writer.close()
    return pairs


@dataclass(frozen=True, kw_only=True)
class Moves:
    """Users whose instance is another one than before, in percent of all."""

    spread: float
    """The fullest instance's users over the mean."""
    one_down: float
    """While one of four instances is gone."""
    needlessly: float
    """Of these, those whose instance was there."""
    returned: float
    """After it is back."""
    passed_on: float
    """Sent elsewhere because their instance is busy, with 24 requests of 20 ms in flight."""
    readdressed: float
    """When every instance has another address, under another Envoy."""


def moves(binary: Path, folder: Path, count: int) -> Moves:
    """What `count` users see; the last instance of four leaves and returns."""
    ids = users(count)
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    with site(binary, folder / "a", STICKY) as made:
        before = homes(made, ids)
        for backend in made.backends.values():
            backend.behave({"delay_s": 0.02})
        busy = homes(made, ids, in_flight=24)
        for backend in made.backends.values():
            backend.behave({"delay_s": 0})
        victim = list(made.backends.values())[-1]
        victim.kill()
        wait_for("it is out", lambda: made.healthy("rest-main_sticky") == 3)
        during = homes(made, ids)
        victim.start()
        wait_for("it answers", victim.is_up)
        made.settled()
        after = homes(made, ids)
    with site(binary, folder / "b", STICKY) as other:
        elsewhere = homes(other, ids)
    counts = Counter(before.values())
    assert len(counts) == 4
    moved = [user for user in ids if during[user] != before[user]]
    return Moves(
        spread=max(counts.values()) / (count / 4),
        one_down=_percent(len(moved), count),
        needlessly=_percent(sum(before[user] != victim.name for user in moved), count),
        returned=_percent(sum(after[user] != before[user] for user in ids), count),
        passed_on=_percent(sum(busy[user] != before[user] for user in ids), count),
        readdressed=_percent(sum(elsewhere[user] != before[user] for user in ids), count),
    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole


def main() -> None:
    """Print the table."""
    count = 10_000
    with tempfile.TemporaryDirectory() as folder:
        found = moves(envoy.envoy_binary(), Path(folder), count)
    print(f"{count:,} users, four instances, a real Envoy")
    print("| what | share of users |")
    print("|---|---|")
    print(f"| fullest instance over the mean | {found.spread:.3f} |")
    print(f"| moved while one of four is down | {found.one_down:.1f} % |")
    print(f"| of these, their instance was up | {found.needlessly:.2f} % |")
    print(f"| passed on by a busy instance, 24 requests of 20 ms in flight | {found.passed_on:.1f} % |")
    print(f"| elsewhere than before, after its return | {found.returned:.1f} % |")
    print(f"| elsewhere, when every address changed | {found.readdressed:.1f} % |")


if __name__ == "__main__":
    main()
