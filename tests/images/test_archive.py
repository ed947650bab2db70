"""What the archives hold, without any engine."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from images.archive import Entry, Image, write_archive
from images.host_files import base_entries, libraries, merged_usr
from images.samples import write_sample_models
from toolchain.errors import ToolchainError

IMAGE = Image(
    name="example:1",
    entries=[Entry(path="usr/bin/tool", text="#!/bin/bash\n"), Entry(path="etc/tool", owner=101)],
    entrypoint=["/usr/bin/tool"],
    env={"A": "b"},
    labels={"l": "v"},
    user="101:101",
    ports=[8500],
)


def archive_of(image: Image) -> bytes:
    into = io.BytesIO()
    write_archive(image, "amd64", into)
    return into.getvalue()


def opened(image: Image) -> tuple[dict[str, Any], dict[str, Any], tarfile.TarFile, bytes]:
    """Manifest, configuration and layer of an archive, and the bytes of the layer."""
    with tarfile.open(fileobj=io.BytesIO(archive_of(image))) as archive:
        files = {name: archive.extractfile(name) for name in archive.getnames()}
        contents = {name: file.read() for name, file in files.items() if file is not None}
    (manifest,) = json.loads(contents["manifest.json"])
    layer = contents[manifest["Layers"][0]]
    return manifest, json.loads(contents[manifest["Config"]]), tarfile.open(fileobj=io.BytesIO(layer)), layer


def test_an_archive_names_its_image_and_holds_what_runs() -> None:
    manifest, config, _, layer = opened(IMAGE)
    assert manifest["RepoTags"] == ["example:1"]
    assert config["architecture"] == "amd64"
    assert config["config"]["Env"] == ["A=b"]
    assert config["config"]["Entrypoint"] == ["/usr/bin/tool"]
    assert config["config"]["User"] == "101:101"
    assert config["config"]["Labels"] == {"l": "v"}
    assert config["config"]["ExposedPorts"] == {"8500/tcp": {}}
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]


def test_equal_contents_give_equal_bytes() -> None:
    assert archive_of(IMAGE) == archive_of(IMAGE)


def test_folders_come_before_what_lies_in_them() -> None:
    _, _, layer, _ = opened(IMAGE)
    names = layer.getnames()
    assert names == ["etc", "etc/tool", "usr", "usr/bin", "usr/bin/tool"]
    assert layer.getmember("etc/tool").uid == 101
    assert layer.getmember("usr/bin/tool").mode == 0o755


def test_a_base_has_a_shell_with_all_that_it_loads() -> None:
    image = Image(name="base:1", entries=list(base_entries([("someone", 1000)])), entrypoint=["/bin/bash"])
    _, _, layer, _ = opened(image)
    members = {member.name: member for member in layer.getmembers()}
    assert members["bin"].linkname == "usr/bin"
    assert members["usr/bin/bash"].size > 100_000
    assert members["usr/bin/sh"].linkname == "bash"
    assert [name for name in members if "/libc.so" in name]
    assert [name for name in members if "/ld-linux" in name]
    assert members["tmp"].mode == 0o1777
    passwd = layer.extractfile("etc/passwd")
    assert passwd is not None
    assert passwd.read() == b"root:x:0:0:root:/:/bin/bash\nsomeone:x:1000:1000:someone:/:/bin/bash\n"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("/lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2"),
        ("/usr/lib/libtinfo.so.6", "usr/lib/libtinfo.so.6"),
        ("/opt/lib/libtinfo.so.6", "opt/lib/libtinfo.so.6"),
    ],
)
def test_libraries_lie_where_links_of_the_image_lead(path: str, expected: str) -> None:
    assert merged_usr(path) == expected


def test_what_is_no_program_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="ldd can't resolve"):
        list(libraries(tmp_path / "absent"))


def test_sample_models_appear_whole_and_only_once(tmp_path: Path) -> None:
    base = write_sample_models(tmp_path, versions=(1, 2))
    assert base == tmp_path / "half_plus_two"
    assert sorted(entry.name for entry in base.iterdir()) == ["1", "2"]
    assert (base / "1" / "saved_model.pb").stat().st_size > 0
    assert (base / "1" / "variables" / "variables.index").exists()
    (base / "1" / "mine").touch()
    write_sample_models(tmp_path, versions=(1, 2))
    assert (base / "1" / "mine").exists()


def test_what_a_killed_run_left_does_not_stop_the_next(tmp_path: Path) -> None:
    (tmp_path / "half_plus_two" / "1.unfinished" / "variables").mkdir(parents=True)
    assert (write_sample_models(tmp_path) / "1" / "saved_model.pb").exists()
