"""Our Envoy before simulated servers."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.plan import Endpoint
from components.server_spec import GRPC_PORT, REST_PORT
from images.envoy import envoy_binary
from images.simulator import simulator_binary
from tests.envoy.harness import Site, site
from tests.envoy.pools import SmallPool

MODEL = "resnet"
MAX_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A batching file in short; None for `max_batch` is a server without batching."""

    max_batch: int | None = MAX_BATCH
    allowed: tuple[int, ...] = ()
    timeout_ms: float = 2
    threads: int = 2

    def padded(self, size: float) -> float:
        """What a batch of this size is executed as."""
        return min((allowed for allowed in self.allowed if allowed >= size), default=size)

    def text(self) -> str:
        """The batching file."""
        return (
            f"max_batch_size {{ value: {self.max_batch} }}\n"
            f"batch_timeout_micros {{ value: {round(self.timeout_ms * 1000)} }}\n"
            f"num_batch_threads {{ value: {self.threads} }}\n"
            "max_enqueued_batches { value: 100 }\n"
            + "".join(f"allowed_batch_sizes: {size}\n" for size in self.allowed)
        )


@contextmanager
def simulated(instances: int, setting: Setting, *, base_ms: float, per_example_ms: float) -> Iterator[Site]:
    """Our Envoy before simulators of the server, on whose GPU an execution takes base + per example."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        version = folder / "model" / "1"
        version.mkdir(parents=True)
        (version / "saved_model.pb").write_text("simulated")
        options = [f"--model_name={MODEL}", f"--model_base_path={version.parent}"]
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
                    "SIM_BASE_MS": f"{base_ms:g}",
                    "SIM_PER_EXAMPLE_MS": f"{per_example_ms:g}",
                    "NVIDIA_VISIBLE_DEVICES": "0",
                },
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        pools = [SmallPool(instances=instances, models=[MODEL])]
        with site(envoy_binary(), folder, pools, launch=launch) as running:
            yield running
