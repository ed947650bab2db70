import json
import os
import stat
from pathlib import Path

import pytest

from ops import paths
from ops.errors import UserError
from ops.setup import engine_env
from ops.stack import Stack
from ops.state import Backend, how_to_share, only_here, team_backend, throw_away_backend

SALT = "encryptionsalt: v1:c2FsdA==:v1:bm9uY2U=:Y2lwaGVy"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a stack file and a home without a login."""
    (tmp_path / "Pulumi.yaml").write_text("name: tf-serving\nruntime: python\n")
    (tmp_path / "Pulumi.local.yaml").write_text("config:\n  a:b: 1\n")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "LOCAL", tmp_path / ".local")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def deployed(backend: Backend, latest: dict[str, object] | None) -> Path:
    file = backend.state / ".pulumi" / "stacks" / "tf-serving" / "local.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"version": 3, "checkpoint": {"stack": "local", "latest": latest}}))
    return file


def test_the_passphrase_is_made_once_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    backend = Backend(tmp_path)
    backend.prepare()
    first = backend.passphrase.read_text()
    backend.prepare()
    assert backend.passphrase.read_text() == first
    assert len(first) >= 32
    assert stat.S_IMODE(backend.passphrase.stat().st_mode) == 0o600


def test_a_lost_passphrase_is_not_replaced_while_there_is_state(tmp_path: Path) -> None:
    backend = Backend(tmp_path)
    deployed(backend, None)
    with pytest.raises(UserError, match=r"passphrase .* is gone"):
        backend.prepare()
    assert not backend.passphrase.exists()


def test_pulumi_is_given_a_copy_with_the_salt_and_the_committed_file_stays(project: Path) -> None:
    backend = Backend(project / "made")
    backend.prepare()
    backend.salt.write_text(f"{SALT}\n")
    copy = backend.write_config("local")
    assert copy.read_text() == f"config:\n  a:b: 1\n{SALT}\n"
    assert (project / "Pulumi.local.yaml").read_text() == "config:\n  a:b: 1\n"


@pytest.mark.parametrize(
    "foreign",
    [
        "encryptionsalt: v1:own\n",
        "secretsprovider: awskms://alias/key\nencryptedkey: QUJD\n",
    ],
)
@pytest.mark.parametrize("last", [True, False])
def test_another_states_secrets_provider_does_not_reach_ours_and_that_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], foreign: str, last: bool
) -> None:
    backend = Backend(paths.LOCAL)
    backend.prepare()
    backend.salt.write_text(f"{SALT}\n")
    ours = "config:\n  a:b: 1\n"
    (project / "Pulumi.local.yaml").write_text(ours + foreign if last else foreign + ours)
    assert backend.write_config("local").read_text() == f"{ours}{SALT}\n"
    line = foreign.partition(":")[0]
    said = f"Pulumi.local.yaml has `{line}` of another state, which is not used here: remove that line."
    assert capsys.readouterr().err.strip() == said


def test_a_salt_that_was_lost_comes_back_from_the_state(tmp_path: Path) -> None:
    backend = Backend(tmp_path)
    deployed(backend, {"secrets_providers": {"type": "passphrase", "state": {"salt": "v1:x"}}})
    assert backend.recover_salt("local")
    assert backend.salt.read_text() == "encryptionsalt: v1:x\n"


@pytest.mark.parametrize("latest", [None, {"resources": []}])
def test_a_stack_whose_making_was_interrupted_is_made_again(
    tmp_path: Path, latest: dict[str, object] | None
) -> None:
    backend = Backend(tmp_path)
    file = deployed(backend, latest)
    assert not backend.recover_salt("local")
    assert not file.exists()


def test_removing_the_state_leaves_what_else_lies_beside_it(project: Path) -> None:
    backend = Backend(project / "made")
    backend.prepare()
    backend.salt.write_text(SALT)
    backend.write_config("local")
    (backend.folder / "docker").mkdir()
    backend.remove()
    assert [entry.name for entry in backend.folder.iterdir()] == ["docker"]


def test_nothing_of_the_users_pulumi_reaches_state_of_ours(tmp_path: Path) -> None:
    users = {
        "PULUMI_BACKEND_URL": "s3://team",
        "PULUMI_CONFIG_PASSPHRASE": "x",
        "PULUMI_ACCESS_TOKEN": "pul-1",
        "PULUMI_STACK": "prod",
        "PATH": "/bin",
    }
    assert Backend(tmp_path).env(users) == {
        "PATH": "/bin",
        "PULUMI_BACKEND_URL": f"file://{tmp_path}/state",
        "PULUMI_CONFIG_PASSPHRASE_FILE": f"{tmp_path}/passphrase",
    }


def test_a_plan_from_nothing_leaves_nothing() -> None:
    backend, folder = throw_away_backend()
    with folder:
        backend.prepare()
        assert backend.passphrase.exists()
    assert not backend.folder.exists()


def test_without_a_backend_and_a_login_a_team_has_none(project: Path) -> None:
    assert team_backend("prod", {}, project / "Pulumi.yaml") is None


@pytest.mark.parametrize("token", ["", "pul-0123"])
def test_an_access_token_alone_means_pulumi_cloud(project: Path, token: str) -> None:
    found = team_backend("prod", {"PULUMI_ACCESS_TOKEN": token}, project / "Pulumi.yaml")
    assert found == ("https://api.pulumi.com" if token else None)


def test_the_environment_wins_over_the_project_and_the_project_over_the_login(project: Path) -> None:
    login = project / "home" / ".pulumi" / "credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text(json.dumps({"current": "gs://login"}))
    file = project / "Pulumi.yaml"
    assert team_backend("prod", {}, file) == "gs://login"
    file.write_text("name: tf-serving\nbackend:\n  url: s3://project\n")
    assert team_backend("prod", {}, file) == "s3://project"
    assert team_backend("prod", {"PULUMI_BACKEND_URL": "azblob://shell"}, file) == "azblob://shell"


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"current": ""}', '{"current": 7}'])
def test_a_spoilt_or_empty_login_is_no_login(project: Path, text: str) -> None:
    login = project / "home" / ".pulumi" / "credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text(text)
    assert team_backend("prod", {}, project / "Pulumi.yaml") is None


@pytest.mark.parametrize("form", ["file://{}/.local/state", "file://{}/x/../.local/state", "{}/.local/state"])
def test_state_that_we_generated_is_refused_for_a_team(project: Path, form: str) -> None:
    env = {"PULUMI_BACKEND_URL": form.format(project)}
    with pytest.raises(UserError, match=r"state backend .* generated for the local stack(?s:.*)s3://"):
        team_backend("prod", env, project / "Pulumi.yaml")


def test_a_passphrase_that_we_generated_is_refused_for_a_team(project: Path) -> None:
    env = {
        "PULUMI_BACKEND_URL": "s3://team",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(project / ".local" / "passphrase"),
    }
    with pytest.raises(UserError, match=r"passphrase file .* generated for the local stack"):
        team_backend("prod", env, project / "Pulumi.yaml")


def test_a_file_backend_of_the_users_own_is_the_users_choice(project: Path) -> None:
    env = {**os.environ, "PULUMI_BACKEND_URL": f"file://{project}/elsewhere"}
    assert team_backend("prod", env, project / "Pulumi.yaml") == f"file://{project}/elsewhere"


@pytest.mark.parametrize(
    ("on_path", "typed"),
    [
        ("/bin/pulumi", ["export PULUMI_BACKEND_URL=s3://<bucket>", "pulumi stack init prod "]),
        (
            None,
            [
                "TOOLCHAIN=registries make pulumi STACK=prod ARGS='login s3://<bucket>'",
                "TOOLCHAIN=registries make pulumi STACK=prod ARGS='stack init prod --secrets-provider awskms://",
            ],
        ),
    ],
)
def test_how_to_share_a_stack_is_what_can_be_typed_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, on_path: str | None, typed: list[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: on_path)
    lines = [line.strip() for line in how_to_share("prod").splitlines()]
    assert [line.startswith(start) for line, start in zip(lines[1:3], typed, strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("backend", "here"), [("file:///mnt/x", True), ("file://~", True), ("s3://b", False)]
)
def test_a_backend_that_nobody_else_sees_is_told_apart(backend: str, here: bool) -> None:
    assert only_here(backend) is here


def test_the_shells_docker_context_and_tls_do_not_lead_away_from_the_local_engine() -> None:
    env = engine_env("unix:///run/ours.sock")
    assert env.pop("DOCKER_HOST") == "unix:///run/ours.sock"
    assert env == dict.fromkeys(("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"), "")


def test_a_state_that_cannot_be_read_names_the_one_before(tmp_path: Path) -> None:
    backend = Backend(tmp_path)
    file = backend.state / ".pulumi" / "stacks" / "tf-serving" / "local.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    with pytest.raises(UserError, match=r"local\.json\.bak"):
        backend.recover_salt("local")


@pytest.mark.parametrize("text", [b"", b'{"checkpoint": {"latest": {'])
def test_a_state_that_was_cut_off_is_replaced_by_the_one_before(tmp_path: Path, text: bytes) -> None:
    backend = Backend(tmp_path)
    file = backend.state / ".pulumi" / "stacks" / "tf-serving" / "local.json"
    file.parent.mkdir(parents=True)
    before = {"checkpoint": {"latest": {"resources": [{"urn": "u"}]}}}
    file.with_name("local.json.bak").write_text(json.dumps(before))
    file.write_bytes(text)
    stack = Stack(name="local", pulumi=tmp_path / "pulumi", env={}, backend=backend)
    stack.free_stale_locks()
    assert json.loads(file.read_text()) == before
    assert sorted(each.name for each in file.parent.iterdir()) == ["local.json", "local.json.bak"]


def test_a_state_that_can_be_read_and_one_with_nothing_before_it_stay_as_they_are(tmp_path: Path) -> None:
    backend = Backend(tmp_path)
    file = backend.state / ".pulumi" / "stacks" / "tf-serving" / "local.json"
    file.parent.mkdir(parents=True)
    file.with_name("local.json.bak").write_text('{"checkpoint": {"latest": {"resources": []}}}')
    file.write_text('{"checkpoint": {}}')
    backend.restore("local")
    assert file.read_text() == '{"checkpoint": {}}'
    file.write_text("{")
    file.with_name("local.json.bak").write_text("{")
    backend.restore("local")
    assert file.read_text() == "{"


@pytest.mark.parametrize("text", [b"", b'{"user.con', b"\xff"])
def test_attributes_of_a_state_that_were_cut_off_are_removed_and_whole_ones_stay(
    tmp_path: Path, text: bytes
) -> None:
    backend = Backend(tmp_path)
    backend.prepare()
    file = backend.state / ".pulumi" / "stacks" / "tf-serving" / "local.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"checkpoint": {"latest": {"resources": []}}}')
    cut_off, whole = file.with_name("local.json.attrs"), file.with_name("local.json.bak.attrs")
    cut_off.write_bytes(text)
    whole.write_text('{"user.content_type": "text/plain"}')
    backend.restore("local")
    assert (cut_off.exists(), whole.exists()) == (False, True)


def test_no_proxy_stands_between_pulumis_own_processes(tmp_path: Path) -> None:
    env = {"http_proxy": "http://127.0.0.1:9", "no_proxy": "example.com"}
    stack = Stack(name="prod", pulumi=tmp_path / "pulumi", env=env)
    stack.pulumi.write_text("#!/bin/sh\nprintenv no_proxy NO_PROXY\n")
    stack.pulumi.chmod(0o700)
    assert stack.query("whoami").split() == ["example.com,localhost,127.0.0.1"] * 2


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff", b'{"checkpoint": 3}'])
def test_a_damaged_state_is_told_though_the_salt_is_known(tmp_path: Path, text: bytes) -> None:
    backend = Backend(tmp_path)
    backend.prepare()
    backend.salt.write_text("encryptionsalt: v1:x\n")
    state = backend.state / ".pulumi" / "stacks" / "tf-serving" / "local.json"
    state.parent.mkdir(parents=True)
    state.write_bytes(text)
    with pytest.raises(
        UserError, match=r"is no state that can be read\. `cp .*local\.json\.bak .*local\.json`"
    ):
        backend.recover_salt("local")
