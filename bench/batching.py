"""Four instances that batch against one that does not, on a simulated GPU; what each batching setting does.

An execution takes a + b x (padded batch size) on the simulated GPU, one at a time. N clients, each with one
request at a time, are a closed system. Of the N / I at each of I instances no more than m = min(B, N / I) can
be in a batch, so I * m / (a + b * m) requests a second are the most there can be (the asymptotic bound of
operational analysis), and N / that is the least mean latency (Little's law). Measurements stand beside both.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.clients import Load, over_rest, require
from bench.pairs import table
from bench.part import Part
from bench.simulated import MAX_BATCH, MODEL, Setting, simulated
from toolchain.tools import Toolchain

A_MS, B_MS = 20.0, 2.0
_BODY = '{"instances": [1.0]}'
_SECONDS = 8
_SWEEP_SECONDS = 3
LEAST_OF_POSSIBLE = 0.95


def most(instances: int, setting: Setting, clients: int) -> float:
    """Requests a second that the model allows."""
    size = min(setting.max_batch or 1, clients / instances)
    return 1000 * instances * size / (A_MS + B_MS * setting.padded(size))


ALONE = Setting(max_batch=None)
_FULL = 4 * MAX_BATCH * 4  # for each batch that is computed there are three that wait
# Instances, setting, clients: what the articles compare, then each half of it.
COMPARED = (
    (1, ALONE, 8),
    (4, Setting(), _FULL),
    (4, Setting(), 8),
    (4, ALONE, 32),
    (1, Setting(), 32),
)


def ratio(_toolchain: Toolchain) -> Iterator[str]:
    """Four instances that batch, one that does not, and each half of the way."""
    require("wrk")
    yield f"Simulated: an execution takes {A_MS:g} ms + {B_MS:g} ms x padded batch; no GPU was used."
    yield ""
    measured = []
    for instances, setting, clients in COMPARED:
        with _deployed(instances, setting) as url:
            measured.append(_load(url, clients, _SECONDS))
    yield from compared(measured)


def compared(loads: Sequence[Load]) -> Iterator[str]:
    """The table over measurements of COMPARED, and what it says."""
    rows = []
    for (instances, setting, clients), load in zip(COMPARED, loads, strict=True):
        possible = most(instances, setting, clients)
        rows.append(
            [
                str(instances),
                f"up to {setting.max_batch}" if setting.max_batch else "none",
                str(clients),
                f"{load.rate:.0f}",
                f"{possible:.0f}",
                f"{load.rate / possible:.1%}",
                f"{load.p50_ms:.0f}",
                f"{load.p99_ms:.0f}",
                f"{1000 * clients / possible:.0f}",
                str(load.failed),
            ]
        )
    head = ("instances", "batching", "clients", "requests/s", "possible", "of it", "p50, ms", "p99, ms")
    yield from table([*head, "mean possible, ms", "failed"], rows)
    alone, full, few = loads[:3]
    possible = most(*COMPARED[1]) / most(*COMPARED[0])
    reached = full.rate / alone.rate
    short = "" if reached >= LEAST_OF_POSSIBLE * possible else "; missed"
    yield (
        f"Four instances that batch did {reached:.1f} x the requests/s of one that does not, "
        f"{reached / possible:.1%} of the {possible:.1f} x that are possible "
        f"(wanted: {LEAST_OF_POSSIBLE:.0%} or more{short}): I * B * (a + b) / (a + b * B). "
        f"For the same eight clients p50 was {100 * (1 - few.p50_ms / alone.p50_ms):.0f} % lower. "
        "Articles say 7 x and 60 % lower, and 2.1 x: such a ratio follows from a, b, B and the number of "
        "instances alone, and says nothing of another model."
    )


# One setting at a time, beside the first.
SWEPT = (
    Setting(),
    *(Setting(max_batch=size) for size in (1, 2, 4, 16, 32)),
    Setting(allowed=(MAX_BATCH,)),
    *(Setting(timeout_ms=timeout) for timeout in (0, 5, 20, 50)),
    *(Setting(threads=threads) for threads in (1, 4, 8)),
    Setting(timeout_ms=0, threads=8),
)
_FEW, _MANY = 4, 64


def sweep(_toolchain: Toolchain) -> Iterator[str]:
    """One instance, one setting changed at a time, with few and with many clients."""
    require("wrk")
    yield f"Simulated, one instance, {A_MS:g} ms + {B_MS:g} ms x padded batch, {_FEW} and {_MANY} clients:"
    yield ""
    rows = []
    for setting in SWEPT:
        with _deployed(1, setting) as url:
            few, many = (_load(url, clients, _SWEEP_SECONDS) for clients in (_FEW, _MANY))
        rows.append(
            [
                str(setting.max_batch),
                "any" if not setting.allowed else " ".join(map(str, setting.allowed)),
                f"{setting.timeout_ms:g}",
                str(setting.threads),
                *(f"{few.rate:.0f}", f"{few.p50_ms:.0f}", f"{few.p99_ms:.0f}"),
                *(f"{many.rate:.0f}", f"{many.rate / most(1, setting, _MANY):.0%}"),
                *(f"{many.p50_ms:.0f}", f"{many.p99_ms:.0f}"),
                str(few.failed + many.failed),
            ]
        )
    head = ("max_batch_size", "allowed", "timeout, ms", "threads", f"{_FEW} clients: per s", "p50", "p99")
    yield from table([*head, f"{_MANY} clients: per s", "of the possible", "p50", "p99", "failed"], rows)


@contextmanager
def _deployed(instances: int, setting: Setting) -> Iterator[str]:
    with simulated(instances, setting, base_ms=A_MS, per_example_ms=B_MS) as running:
        yield f"http://127.0.0.1:{running.plan.spec.rest_port}/v1/models/{MODEL}:predict"


def _load(url: str, clients: int, seconds: float) -> Load:
    # No warm-up before it: a server goes on with what a client no longer waits for.
    return over_rest(url, _BODY, clients=clients, seconds=seconds)


PARTS = {
    "batching-ratio": Part("Four instances that batch against one that does not, simulated", ratio),
    "batching-sweep": Part("What each batching setting does, simulated", sweep),
}
