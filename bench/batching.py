"""Four instances that batch against one that does not, on a simulated GPU; what each batching setting does.

An execution takes a + b x (padded batch size) on the simulated GPU, one at a time. In a closed system of N
clients that keep every batch full, the most that I instances can do is I * B / (a + b * B) requests a second,
and Little's law gives the mean latency, N / throughput. These are what the measurements stand beside.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.clients import Load, over_rest, require
from bench.part import Part
from components.plan import GRPC_PORT, REST_PORT, Endpoint
from images.envoy import envoy_binary
from images.simulator import simulator_binary
from tests.envoy.harness import site
from tests.envoy.pools import SmallPool
from toolchain.tools import Toolchain

A_MS, B_MS = 20.0, 2.0
MAX_BATCH = 8
_MODEL = "resnet"
_BODY = '{"instances": [1.0]}'
_SECONDS = 8.0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A batching file in short; None for `max_batch` is a server without batching."""

    max_batch: int | None = MAX_BATCH
    timeout_ms: float = 2
    threads: int = 2

    def text(self) -> str:
        """The batching file."""
        return (
            f"max_batch_size {{ value: {self.max_batch} }}\n"
            f"batch_timeout_micros {{ value: {round(self.timeout_ms * 1000)} }}\n"
            f"num_batch_threads {{ value: {self.threads} }}\n"
            "max_enqueued_batches { value: 100 }\n"
        )


def most(instances: int, max_batch: int) -> float:
    """Requests a second when every batch is full."""
    return 1000 * instances * max_batch / (A_MS + B_MS * max_batch)


def report(_toolchain: Toolchain) -> Iterator[str]:
    """The comparison at saturation and at one offered load, then one setting at a time."""
    require("wrk")
    yield f"Simulated: an execution takes {A_MS:g} ms + {B_MS:g} ms x padded batch; no GPU was used."
    yield ""
    yield "| instances | batching | clients | requests/s | of the most | p50, ms | p99, ms | N / rate, ms |"
    yield "|---|---|---|---|---|---|---|---|"
    alone = _measured(1, Setting(max_batch=None), clients=8)
    yield _row("1", "none", 8, alone, most(1, 1))
    full = 4 * MAX_BATCH * 4
    batched = _measured(4, Setting(), clients=full)
    yield _row("4", f"up to {MAX_BATCH}", full, batched, most(4, MAX_BATCH))
    few = _measured(4, Setting(), clients=8)
    yield _row("4", f"up to {MAX_BATCH}", 8, few, None)
    yield ""
    yield (
        f"Throughput: {batched.rate / alone.rate:.1f} x (possible: {most(4, MAX_BATCH) / most(1, 1):.1f} x, "
        "I * B * (a + b) / (a + b * B)). "
        f"The same eight clients: p50 {100 * (1 - few.p50_ms / alone.p50_ms):.0f} % lower. "
        "Articles claim 7 x and 60 % lower, and 2.1 x: the ratio follows from a, b and the batch size alone."
    )
    yield ""
    yield from _sweep()


def _row(instances: str, batching: str, clients: int, load: Load, possible: float | None) -> str:
    share = f"{load.rate / possible:.1%}" if possible else ""
    return (
        f"| {instances} | {batching} | {clients} | {load.rate:.0f} | {share} "
        f"| {load.p50_ms:.0f} | {load.p99_ms:.0f} | {1000 * clients / load.rate:.0f} |"
    )


def _sweep() -> Iterator[str]:
    """One instance, one setting changed at a time, with few and with many clients."""
    few_and_many = "4 clients: per s | p50 | p99 | 64 clients: per s | p50 | p99 | failed"
    yield f"| max_batch_size | timeout, ms | threads | {few_and_many} |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    settings = [
        *(Setting(max_batch=size) for size in (1, 2, 4, 8, 16, 32)),
        *(Setting(timeout_ms=timeout) for timeout in (0, 5, 20, 50)),
        *(Setting(threads=threads) for threads in (1, 4, 8)),
    ]
    for setting in settings:
        few, many = (_measured(1, setting, clients=clients, seconds=4) for clients in (4, 64))
        yield (
            f"| {setting.max_batch} | {setting.timeout_ms:g} | {setting.threads} "
            f"| {few.rate:.0f} | {few.p50_ms:.0f} | {few.p99_ms:.0f} "
            f"| {many.rate:.0f} | {many.p50_ms:.0f} | {many.p99_ms:.0f} | {few.failed + many.failed} |"
        )


def _measured(instances: int, setting: Setting, *, clients: int, seconds: float = _SECONDS) -> Load:
    with _deployed(instances, setting) as url:
        over_rest(url, _BODY, clients=clients, seconds=1)  # connections are made, batches are full
        return over_rest(url, _BODY, clients=clients, seconds=seconds)


@contextmanager
def _deployed(instances: int, setting: Setting) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        version = folder / "model" / "1"
        version.mkdir(parents=True)
        (version / "saved_model.pb").write_text("simulated")
        options = [f"--model_name={_MODEL}", f"--model_base_path={version.parent}"]
        if setting.max_batch is not None:
            (folder / "batching.config").write_text(setting.text())
            options += ["--enable_batching=true", f"--batching_parameters_file={folder / 'batching.config'}"]
        binary = simulator_binary()

        def launch(endpoint: Endpoint) -> "subprocess.Popen[bytes]":
            return subprocess.Popen(
                [
                    *(str(binary), f"--port={GRPC_PORT}", f"--rest_api_port={REST_PORT}"),
                    *("--rest_api_num_threads=512", *options),
                ],
                env={
                    "SIM_BIND_ADDRESS": str(endpoint.address),
                    "SIM_BASE_MS": f"{A_MS:g}",
                    "SIM_PER_EXAMPLE_MS": f"{B_MS:g}",
                    "NVIDIA_VISIBLE_DEVICES": "0",
                },
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        pools = [SmallPool(instances=instances, models=[_MODEL])]
        with site(envoy_binary(), folder, pools, launch=launch) as running:
            yield f"http://127.0.0.1:{running.plan.spec.rest_port}/v1/models/{_MODEL}:predict"


PARTS = {"batching": Part("Four instances that batch against one that does not, simulated", report)}
