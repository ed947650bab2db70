"""Route 2: the official download, in the layout of Pulumi's own releases."""

import hashlib
import os
import platform
import re
import socket
import sys
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path, PurePosixPath
from typing import IO

from toolchain.cache import build_once, published
from toolchain.errors import ToolchainError
from toolchain.progress import note, step
from toolchain.tools import Toolchain, own_environment
from toolchain.versions import versions

BASE_VARIABLE = "PULUMI_DOWNLOAD_URL"
DEFAULT_BASE = "https://get.pulumi.com/releases/sdk"
CACHE_NAME = "pulumi-official"
# A machine without a way out must fall through to the next route in seconds, even where packets vanish.
CONNECT_TIMEOUT_S = 4
READ_TIMEOUT_S = 60
CHUNK = 1 << 20


class UnreachableError(Exception):
    """The download server could not be reached, or has no such file."""


def find() -> Toolchain | None:
    """The official CLI from an earlier download, or None."""
    try:
        folder = published(CACHE_NAME, _key())
    except UnreachableError:
        return None
    return _toolchain(folder) if folder else None


def get() -> Toolchain:
    """Download the official CLI, unless that was done before.

    Raises UnreachableError when the server can't be reached, ToolchainError when it sent something wrong.
    """
    if found := find():
        return found
    archive = archive_url()
    _probe(archive)
    with step(f"Download Pulumi v{versions().pulumi} from {archive.rpartition('/')[0]}", "10 to 60 s"):
        return _toolchain(build_once(CACHE_NAME, _key(), lambda folder: _download(archive, folder)))


def archive_url() -> str:
    """Where the release for this machine is."""
    return f"{_base()}/pulumi-v{_key()}.tar.gz"


def _base() -> str:
    return os.environ.get(BASE_VARIABLE, DEFAULT_BASE).rstrip("/")


def _key() -> str:
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(
        platform.machine().lower()
    )
    if machine is None:
        raise UnreachableError(f"there is no official Pulumi for {platform.machine()}")
    system = "darwin" if sys.platform == "darwin" else "linux"
    return f"{versions().pulumi}-{system}-{machine}"


def _toolchain(folder: Path) -> Toolchain:
    return Toolchain(
        pulumi=folder / "bin" / "pulumi",
        version=versions().pulumi,
        origin="official",
        env=own_environment(folder / "bin"),
    )


def _probe(url: str) -> None:
    """Find out in seconds whether the server is there; a proxy is left to urllib and its timeout."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.hostname or ""):
        return
    address = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    try:
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise UnreachableError(f"{parts.hostname}: {error}") from error


def _download(url: str, folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder.parent) as archive:
        digest = hashlib.sha256()
        with _open(url) as response:
            while chunk := response.read(CHUNK):
                digest.update(chunk)
                archive.write(chunk)
        _check(url, digest.hexdigest())
        archive.seek(0)
        _unpack(archive, folder / "bin", url)


def _open(url: str) -> IO[bytes]:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ToolchainError(f"{BASE_VARIABLE}={_base()}: an http or https address is needed")
    try:
        opened: IO[bytes] = urllib.request.urlopen(url, timeout=READ_TIMEOUT_S)  # noqa: S310 the scheme was checked
    except (urllib.error.URLError, OSError) as error:
        raise UnreachableError(f"{url}: {error}") from error
    return opened


def _check(url: str, digest: str) -> None:
    """Compare with the checksums that Pulumi publishes beside the archives."""
    name = url.rpartition("/")[2]
    checksums = f"{_base()}/pulumi-{versions().pulumi}-checksums.txt"
    try:
        with _open(checksums) as response:
            listed = response.read(CHUNK).decode("utf-8", "replace")
    except UnreachableError as error:
        note(f"no checksum to compare with ({error})")
        return
    match = re.search(rf"^([0-9a-f]{{64}}) [ *]{re.escape(name)}$", listed, flags=re.MULTILINE)
    if match is None:
        raise ToolchainError(f"{checksums} does not list {name}")
    if match.group(1) != digest:
        raise ToolchainError(f"{url} has SHA-256 {digest}, and {checksums} says {match.group(1)}: not used")


def _unpack(archive: IO[bytes], target: Path, url: str) -> None:
    """Write the files of `pulumi/` and nothing else: a release has no folders below it, and no links."""
    target.mkdir()
    try:
        with tarfile.open(fileobj=archive, mode="r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if member.isdir() and path.parts == ("pulumi",):
                    continue
                content = tar.extractfile(member) if member.isfile() else None
                if content is None or len(path.parts) != 2 or path.parts[0] != "pulumi" or path.name == "..":
                    raise ToolchainError(
                        f"{url}: unexpected entry {member.name!r}; a release holds pulumi/<file> only"
                    )
                with (target / path.name).open("wb") as out:
                    while chunk := content.read(CHUNK):
                        out.write(chunk)
                (target / path.name).chmod(0o755 if member.mode & 0o100 else 0o644)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ToolchainError(f"{url} is not a release of Pulumi: {error}") from error
    if not (target / "pulumi").is_file():
        raise ToolchainError(f"{url} holds no pulumi/pulumi")
