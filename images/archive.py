"""Writes a container image as an archive for `docker load`: one layer, and equal bytes for equal contents."""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

# A fixed time of making: an image that is made again from the same contents gets the same ID.
CREATED = "2000-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One path of an image, without its leading slash: a file, text, a link, else a folder."""

    path: str
    file: Path | None = None
    text: str | None = None
    link: str | None = None
    mode: int = 0o755
    owner: int = 0


@dataclass(frozen=True, kw_only=True)
class Image:
    """What `docker run` finds in an image, and what it starts."""

    name: str
    entries: Sequence[Entry]
    entrypoint: Sequence[str]
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    ports: Sequence[int] = ()


def write_archive(image: Image, architecture: str, into: IO[bytes]) -> None:
    """Write the archive; `architecture` is as Go names it (amd64, arm64)."""
    with tempfile.TemporaryFile() as layer:
        write_layer(image.entries, layer)
        layer.seek(0)
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
        config = json.dumps(_config(image, architecture, digest), sort_keys=True).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = [{"Config": config_name, "RepoTags": [image.name], "Layers": ["layer.tar"]}]
        size = layer.tell()
        layer.seek(0)
        with tarfile.open(fileobj=into, mode="w", format=tarfile.GNU_FORMAT) as archive:
            _add(archive, "layer.tar", layer, size)
            _add(archive, config_name, io.BytesIO(config), len(config))
            text = json.dumps(manifest).encode()
            _add(archive, "manifest.json", io.BytesIO(text), len(text))


def write_layer(entries: Iterable[Entry], into: IO[bytes]) -> None:
    """Write the file system of an image, sorted, with a folder before what lies in it."""
    by_path = {entry.path: entry for entry in entries}
    for path in list(by_path):
        for parent in Path(path).parents:
            if str(parent) != ".":
                by_path.setdefault(str(parent), Entry(path=str(parent)))
    with tarfile.open(fileobj=into, mode="w", format=tarfile.GNU_FORMAT) as layer:
        for _, entry in sorted(by_path.items()):
            _add_entry(layer, entry)


def _add_entry(layer: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path)
    info.mode, info.uid, info.gid = entry.mode, entry.owner, entry.owner
    if entry.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        layer.addfile(info)
    elif entry.file is not None:
        with entry.file.open("rb") as content:
            info.size = entry.file.stat().st_size
            layer.addfile(info, content)
    elif entry.text is not None:
        encoded = entry.text.encode()
        info.size = len(encoded)
        layer.addfile(info, io.BytesIO(encoded))
    else:
        info.type = tarfile.DIRTYPE
        layer.addfile(info)


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    archive.addfile(info, content)


def _config(image: Image, architecture: str, layer_digest: str) -> dict[str, object]:
    return {
        "architecture": architecture,
        "os": "linux",
        "created": CREATED,
        "config": {
            "Env": [f"{name}={value}" for name, value in image.env.items()],
            "Entrypoint": list(image.entrypoint),
            "Cmd": list(image.command),
            "Labels": dict(image.labels),
            "User": image.user,
            "ExposedPorts": {f"{port}/tcp": {} for port in image.ports},
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created": CREATED, "created_by": "images/build.py"}],
    }
