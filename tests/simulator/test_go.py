"""The simulator's own Go checks, and that its generated code is the one of its .proto files."""

import subprocess
from pathlib import Path

import pytest

from images.simulator import SOURCE
from toolchain.golang import go_binary, go_env

pytestmark = pytest.mark.simulator


@pytest.mark.parametrize("command", [["vet", "./..."], ["test", "./..."]])
def test_go_finds_nothing(command: list[str]) -> None:
    done = subprocess.run(
        [go_binary(), *command], cwd=SOURCE, env=go_env(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_is_formatted() -> None:
    listed = subprocess.run(
        [go_binary(), "env", "GOROOT"], env=go_env(), capture_output=True, text=True, check=True
    )
    gofmt = Path(listed.stdout.strip()) / "bin" / "gofmt"
    if not gofmt.exists():
        pytest.skip("this Go came without gofmt")
    done = subprocess.run([gofmt, "-l", "."], cwd=SOURCE, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_the_generated_code_has_every_message_of_its_proto() -> None:
    for proto in (SOURCE / "proto").glob("*.proto"):
        generated = (SOURCE / "internal" / "wire" / f"{proto.stem}.pb.go").read_text()
        for line in proto.read_text().splitlines():
            words = line.split()
            if words[:1] in (["message"], ["enum"]):
                assert f"{words[1]} " in generated, (
                    f"run simulator/proto/generate.sh: {words[1]} of {proto.name}"
                )
