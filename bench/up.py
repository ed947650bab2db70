"""`make up` of the local stack with nothing to change, against `pulumi up` alone on the same stack."""

import os
import statistics
import subprocess
from collections.abc import Iterator

from bench.measure import ratio, run
from bench.part import Part
from ops.setup import LOCAL_STACK
from ops.state import local_backend
from tests.pulumi_project import CHECKOUT
from toolchain.tools import Toolchain

_PAIRS = 5


def report(_toolchain: Toolchain) -> Iterator[str]:
    """Deploys the local stack of this checkout first, and leaves it deployed only if it was."""
    # Of the `make bench` that runs this, nothing may reach the `make up` that it times.
    env = {
        name: value for name, value in os.environ.items() if name not in ("ARGS", "MAKEFLAGS", "MAKELEVEL")
    }
    make = ["make", "up"]
    pulumi = ["make", "pulumi", "ARGS=up --yes --skip-preview --non-interactive"]
    was_deployed = local_backend().has_stack(LOCAL_STACK)
    with_make, alone = [], []
    try:
        subprocess.run(make, cwd=CHECKOUT, env=env, check=True, stdout=subprocess.DEVNULL)
        for pair in range(_PAIRS + 1):
            first = run(make, cwd=CHECKOUT, env=env)
            second = run(pulumi, cwd=CHECKOUT, env=env)
            if pair:
                with_make.append(first.wall_s)
                alone.append(second.wall_s)
    finally:
        if not was_deployed:
            subprocess.run(["make", "down"], cwd=CHECKOUT, env=env, check=True, stdout=subprocess.DEVNULL)
    added = statistics.median(a - b for a, b in zip(with_make, alone, strict=True))
    yield "| `make up`, s | `pulumi up` through make, s | added, s | ratio |"
    yield "|---|---|---|---|"
    yield (
        f"| {statistics.median(with_make):.2f} | {statistics.median(alone):.2f} | {added:.2f} "
        f"| {ratio(with_make, alone):.3f} |"
    )
    yield ""
    yield "The added time holds preflight and the sample requests too."


PARTS = {"up": Part("`make up` with nothing to change, against `pulumi up`", report)}
