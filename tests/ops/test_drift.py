import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ops import inspection, nodes, setup
from ops.drift import Look, drift, look, report
from ops.errors import UserError
from ops.hosts import Host, Result
from ops.inspection import Container, Difference, differences
from ops.stack import Stack

TEXT = "max_batch_size { value: 32 }\n"
RESOURCE: Mapping[str, Any] = {
    "type": "docker:index/container:Container",
    "id": "c" * 64,
    "inputs": {
        "name": "prod.gpu-01-gpu0",
        "envs": ["LEVEL=1"],
        "labels": [
            {"label": "tf-serving.node", "value": "gpu-01"},
            {"label": "tf-serving.stack", "value": "prod"},
        ],
        "mounts": [{"type": "bind", "source": "/srv", "target": "/models/a", "readOnly": True}],
        "uploads": [{"file": "/etc/batching", "content": TEXT}],
    },
}


def there() -> dict[str, Any]:
    """What an engine says of the container as it was made; its image has a variable, a label and a volume."""
    return {
        "Id": "c" * 64,
        "Name": "/prod.gpu-01-gpu0",
        "Image": "sha256:1",
        "Config": {
            "Env": ["LEVEL=1", "PATH=/bin"],
            "Labels": {"tf-serving.node": "gpu-01", "tf-serving.stack": "prod", "maintainer": "x"},
        },
        "Mounts": [
            {"Type": "bind", "Source": "/srv", "Destination": "/models/a", "RW": False},
            {"Type": "volume", "Name": "f00", "Source": "/var/f00", "Destination": "/data", "RW": True},
        ],
    }


IMAGE = [{"Config": {"Env": ["PATH=/bin"], "Labels": {"maintainer": "x"}, "Volumes": {"/data": {}}}}]


@dataclass(frozen=True)
class FakeEngine(Host):
    """Answers as `docker` does for one container, whose file has `text`; `listed` is what `ps` says."""

    container: Mapping[str, Any] | None = field(default_factory=there)
    text: str | None = TEXT
    listed: str = ""
    silent: bool = False

    def docker(self, *arguments: str) -> Result:
        if self.silent:
            return Result(1, "", "Cannot connect to the Docker daemon")
        match arguments[:2]:
            case ("inspect", _) if self.container is None:
                return Result(1, "[]", "Error: No such container: prod.gpu-01-gpu0")
            case ("inspect", _):
                return Result(0, json.dumps([self.container]), "")
            case ("image", "inspect"):
                return Result(0, json.dumps(IMAGE), "")
            case ("cp", "prod.gpu-01-gpu0:/etc/batching"):
                return _archive(self.text)
            case ("ps", _):
                return Result(0, self.listed, "")
            case _:
                return Result(0, "", "")


def _archive(text: str | None) -> Result:
    if text is None:
        return Result(1, "", "Could not find the file /etc/batching")
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        member = tarfile.TarInfo("batching")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))
    return Result(0, raw.getvalue().decode(), "")


def found(engine: FakeEngine) -> list[tuple[str, str, str]]:
    return [(one.what, one.state, one.found) for one in differences(inspection.declared(RESOURCE), engine)]


def altered(path: str, value: object) -> FakeEngine:
    container = there()
    *parents, last = path.split(".")
    inside = container
    for name in parents:
        inside = inside[name]
    inside[last] = value
    return FakeEngine("default", container=container)


def test_a_container_as_it_was_made_shows_no_difference_and_what_its_image_brings_is_none() -> None:
    assert found(FakeEngine("default")) == []


@pytest.mark.parametrize(
    ("engine", "difference"),
    [
        (altered("Config.Env", ["LEVEL=2", "PATH=/bin"]), ("environment LEVEL", "1", "another value")),
        (altered("Config.Env", ["PATH=/bin"]), ("environment LEVEL", "1", "not set")),
        (
            altered("Config.Env", ["LEVEL=1", "KEY=secret", "PATH=/bin"]),
            ("environment KEY", "not set", "another value"),
        ),
        (
            altered("Config.Env", ["LEVEL=1", "PATH=/sbin"]),
            ("environment PATH", "the image's", "another value"),
        ),
        (
            altered(
                "Config.Labels", {"tf-serving.node": "gpu-02", "tf-serving.stack": "prod", "maintainer": "x"}
            ),
            ("label tf-serving.node", "'gpu-01'", "'gpu-02'"),
        ),
        (
            altered("Config.Labels", {"tf-serving.stack": "prod", "maintainer": "x"}),
            ("label tf-serving.node", "'gpu-01'", "none"),
        ),
        (altered("Mounts", []), ("mount /models/a", "bind /srv", "not so")),
        (altered("Id", "d" * 64), ("container", "c" * 12, f"another one, {'d' * 12}")),
        (FakeEngine("default", container=None), ("container", "is there", "is not there")),
    ],
)
def test_each_thing_that_the_provider_never_reads_back_is_noticed(
    engine: FakeEngine, difference: tuple[str, str, str]
) -> None:
    assert found(engine) == [difference]


def test_a_mount_that_can_be_written_is_another_one() -> None:
    writable = [{"Type": "bind", "Source": "/srv", "Destination": "/models/a", "RW": True}]
    assert found(altered("Mounts", writable)) == [
        ("mount /models/a", "bind /srv", "not so"),
        ("mount /models/a", "none", "bind /srv, writable"),
    ]


def test_a_publishers_files_are_looked_for_on_its_volume_too() -> None:
    uploads = [{"file": "/publish/files/a", "content": "x"}, {"file": "/publish/list", "content": "y"}]
    publisher = {**RESOURCE, "inputs": {**RESOURCE["inputs"], "uploads": uploads}}
    assert inspection.declared(publisher).files == {
        "/publish/files/a": "x",
        "/publish/list": "y",
        "/volume/a": "x",
    }


def test_envoys_files_are_looked_for_on_its_volume_and_secret_ones_are_named() -> None:
    staged = ("eds-rest-main.yaml", "cds.yaml", "rds-rest.yaml", "lds.yaml", "wanted")
    listed = "0644 - bootstrap-1.yaml\n0600 101 tls.key\n"
    uploads = [
        *({"file": f"/publish/then/{name}", "content": name} for name in (*staged, "certificate")),
        {"file": "/publish/list", "content": listed},
        {"file": "/publish/files/bootstrap-1.yaml", "content": "bootstrap"},
        {"file": "/publish/files/tls.key", "content": "a key"},
    ]
    # As Pulumi has a list in which one text is secret, and shows it to who may see secrets.
    sealed = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}
    shown = {**sealed, "plaintext": json.dumps(uploads)}
    publisher = {**RESOURCE, "inputs": {**RESOURCE["inputs"], "uploads": shown}}
    known = inspection.declared(publisher)
    on_volume = {file: text for file, text in known.files.items() if file.startswith("/volume/")}
    assert on_volume == {
        **{f"/volume/{name}": name for name in staged if name != "wanted"},
        "/volume/bootstrap-1.yaml": "bootstrap",
    }
    assert known.secret_files == [
        "/publish/files/tls.key",
        "/publish/then/certificate",
        "/publish/then/wanted",
    ]
    text = report("prod", Look(False, "", [], 1, [("prod.gpu-01-envoy-publisher", "/publish/files/tls.key")]))
    assert text.startswith("No drift")
    assert "Not compared, as they are secret: prod.gpu-01-envoy-publisher:/publish/files/tls.key.\n" in text


@pytest.mark.parametrize("text", [None, "max_batch_size { value: 64 }\n"])
def test_a_file_that_was_changed_or_is_gone_is_noticed(text: str | None) -> None:
    [(what, _, _)] = found(FakeEngine("default", text=text))
    assert what == "file /etc/batching"


def test_an_engine_that_does_not_answer_is_an_error_and_no_drift() -> None:
    with pytest.raises(UserError, match=r"gpu-01.*Cannot connect"):
        differences(inspection.declared(RESOURCE), FakeEngine("ssh://gpu-01", silent=True))


@dataclass(frozen=True, kw_only=True)
class FakeStack(Stack):
    """A state with one container; what Pulumi's own look comes to."""

    answer: tuple[int, str] = (0, "")

    def query(self, *arguments: str) -> str:
        assert arguments == ("stack", "export", "--show-secrets")
        return json.dumps({"deployment": {"resources": [RESOURCE, {"type": "pulumi:pulumi:Stack"}]}})

    def _captured(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        assert arguments[:2] == ("preview", "--expect-no-changes")
        assert "--refresh" in arguments
        code, said = self.answer
        return subprocess.CompletedProcess([], code, "", said)


def stack(code: int = 0, said: str = "") -> FakeStack:
    return FakeStack(name="prod", pulumi=Path("pulumi"), env={}, answer=(code, said))


def test_nothing_to_find_is_no_drift_and_the_first_line_says_so() -> None:
    looked = look(stack(), {"gpu-01": FakeEngine("default", listed=f"{'c' * 64} prod.gpu-01-gpu0 running")})
    assert looked.clean
    assert report("prod", looked).startswith("No drift in stack prod")


def test_a_stack_without_containers_is_said_to_have_none_inspected() -> None:
    empty = Look(False, "", [], 0)
    assert report("live", empty) == "No drift in stack live: nothing to change by `preview --refresh`.\n"
    assert "0 containers" not in report("live", Look(True, "changes", [], 0))


def test_a_stack_that_reaches_no_cluster_has_no_drift_to_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nodes.main("staging", "render_to") == 0
    folder = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(setup, "check_stack_file", lambda _stack: None)
    monkeypatch.setattr(nodes, "rendered_to", {"staging": folder}.get)
    with pytest.raises(UserError, match=r"is written to \./rendered/staging and reaches no cluster"):
        drift("staging", [])


def test_a_container_of_the_stack_that_its_state_does_not_know_is_drift() -> None:
    looked = look(stack(), {"gpu-01": FakeEngine("default", listed=f"{'e' * 64} prod.mine exited")})
    assert [(one.container.name, one.found) for one in looked.found] == [("prod.mine", "is there (exited)")]


def test_what_pulumi_itself_finds_is_drift_too() -> None:
    said = "error: no changes were expected for preview but changes were proposed"
    looked = look(stack(255, said), {"gpu-01": FakeEngine("default")})
    text = report("prod", looked)
    assert not looked.clean
    assert text.startswith("Drift in stack prod.")
    assert said in text


def test_a_preview_that_fails_is_an_error_and_no_drift() -> None:
    with pytest.raises(UserError, match=r"(?s)`pulumi preview` of stack prod failed:.*ExpiredToken"):
        look(stack(255, "error: ExpiredToken"), {"gpu-01": FakeEngine("default")})


@pytest.mark.parametrize(("words", "said"), [(["--out"], "--out: expected one argument"), (["x"], "x")])
def test_words_that_are_not_accepted_are_told(words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=f"(?s){said}.*usage: make drift"):
        drift("staging", words)


def test_the_report_has_a_line_for_each_difference_and_what_to_type() -> None:
    difference = Difference(Container("prod.a", "gpu-01", "1"), "label x", "'1'", "'2'")
    text = report("prod", Look(False, "", [difference], 1))
    assert "prod.a     gpu-01  label x  '1'           '2'" in text
    assert "make heal STACK=prod" in text
