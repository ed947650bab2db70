"""The simulator of tensorflow_model_server: its binary, and the image in the place of tensorflow/serving."""

from pathlib import Path

from images.archive import Entry, Image
from images.host_files import base_entries
from images.inputs import HERE, REPOSITORY, fingerprint, machine, recipe_files
from toolchain.cache import build_once, published
from toolchain.errors import ToolchainError
from toolchain.golang import go_binary, go_env
from toolchain.process import run
from toolchain.progress import step

SOURCE = REPOSITORY / "simulator"
VERSION = "2.14.1"
NAME = f"tf-serving-simulator:{VERSION}-gpu"
BINARY = "tensorflow_model_server"
ENTRYPOINT = HERE / "tf_serving_entrypoint.sh"


def source_files() -> list[Path]:
    """Everything that the binary is built from, sorted."""
    go = [file for file in SOURCE.rglob("*.go") if not file.name.endswith("_test.go")]
    return sorted([*go, SOURCE / "go.mod", SOURCE / "go.sum"])


def simulator_binary() -> Path:
    """Path of the simulator's binary, built from this checkout unless that was done before.

    It simulates the version in $TF_SERVING_SIMULATED_VERSION, 2.14.1 when unset.
    """
    source = fingerprint(source_files())
    key = f"{source}-{machine()}"
    if not (folder := published("simulator", key)):
        with step("Build the TensorFlow Serving simulator", "10 s to 1 min"):
            folder = build_once("simulator", key, lambda target: _build(target, source))
    return folder / BINARY


def _build(target: Path, source: str) -> None:
    # The tag leaves out gRPC's tracing pages, which would pull in half of net/http's templates.
    arguments: list[str | Path] = [
        "build",
        "-tags",
        "grpcnotrace",
        "-ldflags",
        "-s -w",
        "-o",
        target / BINARY,
        ".",
    ]
    run([go_binary(), *arguments], what="build the simulator", env=go_env(), cwd=SOURCE)
    if fingerprint(source_files()) != source:  # what was built would lie under another source's name for ever
        raise ToolchainError(f"{SOURCE} changed while it was built: run the command again")


def inputs() -> str:
    """A hash of all that the image is made from."""
    return fingerprint([*source_files(), *recipe_files(Path(__file__)), ENTRYPOINT])


def image() -> Image:
    """The image, with the environment of tensorflow/serving's GPU image."""
    return Image(
        name=NAME,
        entries=[
            *base_entries([("model-server", 1000)]),
            Entry(path=f"usr/bin/{BINARY}", file=simulator_binary()),
            Entry(path="usr/bin/tf_serving_entrypoint.sh", file=ENTRYPOINT),
            Entry(path="models"),
        ],
        entrypoint=["/usr/bin/tf_serving_entrypoint.sh"],
        env={
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "MODEL_BASE_PATH": "/models",
            "MODEL_NAME": "model",
            "TF_SERVING_SIMULATED_VERSION": VERSION,
            # As the CUDA base image has it. A device request overrides it; without one the simulator refuses.
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        },
        ports=[8500, 8501],
    )
