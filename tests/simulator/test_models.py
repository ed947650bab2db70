"""Version directories, labels and configuration files while the server runs."""

import shutil
from pathlib import Path

import pytest

from tests.simulator.conftest import Start
from tests.simulator.server import Server, model, models_config, publish, wait_for

pytestmark = pytest.mark.simulator
ALLOW = "--allow_version_labels_for_unavailable_models"
POLL = "--model_config_file_poll_wait_seconds=1"
KEEP_ALL = "model_version_policy { all {} } "


def write(config: Path, *models: str) -> None:
    """Replace a configuration file by renaming, so that no half of it is read."""
    unfinished = config.with_suffix(".unfinished")
    unfinished.write_text(models_config(*models))
    unfinished.rename(config)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "models.config"


def answered_by(server: Server, path: str) -> tuple[int, str]:
    reply = server.rest(f"/v1/models/{path}:predict", {"instances": [1]})
    return reply.status, reply.headers.get("x-simulator-model", "")


def test_a_new_version_takes_over_and_the_old_one_goes(server: Server, half: Path) -> None:
    publish(half, 2)
    server.wait_states("half", {1: "END", 2: "AVAILABLE"})
    assert answered_by(server, "half") == (200, "half/2")


def test_the_old_version_serves_while_the_new_one_loads(server: Server, half: Path) -> None:
    publish(half, 2, {"simulator_load_seconds": "1"})
    server.wait_states("half", {1: "AVAILABLE", 2: "LOADING"})
    assert answered_by(server, "half") == (200, "half/1")
    server.wait_states("half", {1: "END", 2: "AVAILABLE"})


def test_a_new_version_that_fails_leaves_the_old_one_serving(start: Start, half: Path) -> None:
    server = start("--model_name=half", f"--model_base_path={half}", "--max_num_load_retries=0").ready()
    publish(half, 2, {"simulator_load_error": "out of memory"})
    server.wait_states("half", {1: "AVAILABLE", 2: "END"})
    status = server.rest("/v1/models/half/versions/2")
    assert status.status == 200
    assert status.json["model_version_status"][0]["status"] == {
        "error_code": "INTERNAL",
        "error_message": "out of memory",
    }
    assert answered_by(server, "half") == (200, "half/1")


def test_names_that_are_not_numbers_are_no_versions(server: Server, half: Path) -> None:
    for name in ("v2", "2.tmp", "0.2"):
        publish(half, name)
    publish(half, "00000003")
    server.wait_states("half", {1: "END", 3: "AVAILABLE"})


def test_an_emptied_base_path_unloads_the_model(server: Server, half: Path) -> None:
    shutil.rmtree(half / "1")
    server.wait_states("half", {1: "END"})
    assert answered_by(server, "half") == (404, "")


def test_a_missing_base_path_keeps_every_model_as_it_is(
    start: Start, half: Path, tmp_path: Path, config: Path
) -> None:
    other = tmp_path / "models" / "other"
    publish(other, 1)
    write(config, model("half", half), model("other", other))
    server = start(f"--model_config_file={config}").ready()
    other.rename(tmp_path / "aside")
    publish(half, 2)
    wait_for("a failed poll", lambda: "Could not find base path" in server.printed())
    assert server.states("half") == {1: "AVAILABLE"}
    assert server.states("other") == {1: "AVAILABLE"}
    (tmp_path / "aside").rename(other)
    server.wait_states("half", {1: "END", 2: "AVAILABLE"})


def test_polling_once_sees_no_later_version(start: Start, half: Path) -> None:
    server = start(
        "--model_name=half", f"--model_base_path={half}", "--file_system_poll_wait_seconds=0"
    ).ready()
    publish(half, 2)
    with pytest.raises(AssertionError, match="not within"):
        wait_for("version 2", lambda: 2 in server.states("half"), patience_s=1.5)


def test_a_file_that_changes_is_read_again(start: Start, half: Path, tmp_path: Path, config: Path) -> None:
    other = tmp_path / "models" / "other"
    publish(other, 1)
    publish(half, 2)
    write(config, model("half", half))
    server = start(f"--model_config_file={config}", POLL).ready()
    assert server.states("half") == {2: "AVAILABLE"}
    write(config, model("half", half, KEEP_ALL), model("other", other))
    server.wait_states("half", {1: "AVAILABLE", 2: "AVAILABLE"})
    server.wait_states("other", {1: "AVAILABLE"})
    write(config, model("half", half, "model_version_policy { specific { versions: 1 } }"))
    server.wait_states("other", {1: "END"})
    server.wait_states("half", {1: "AVAILABLE", 2: "END"})


def test_a_bad_file_is_only_logged(start: Start, half: Path, config: Path) -> None:
    write(config, model("half", half))
    server = start(f"--model_config_file={config}", POLL).ready()
    config.write_text("model_config_list { config { nome: 'x' } }")
    wait_for("the error", lambda: "Failed to read ModelServerConfig file" in server.printed())
    assert f"Invalid protobuf file: '{config}'" in server.printed()
    assert answered_by(server, "half") == (200, "half/1")


def test_a_new_model_with_a_wrong_path_wedges_later_reloads(
    start: Start, half: Path, tmp_path: Path, config: Path
) -> None:
    write(config, model("half", half))
    server = start(f"--model_config_file={config}", POLL).ready()
    write(config, model("half", half), model("absent", tmp_path / "absent"))
    wait_for("the failed poll", lambda: "Could not find base path" in server.printed())
    publish(half, 2)
    write(config, model("half", half))
    with pytest.raises(AssertionError, match="not within"):
        wait_for("version 2", lambda: 2 in server.states("half"), patience_s=3)
    assert answered_by(server, "half") == (200, "half/1")


@pytest.mark.parametrize(("flags", "code"), [([], 255), ([ALLOW], None)])
def test_a_label_at_a_cold_start_needs_the_flag(
    start: Start, half: Path, config: Path, flags: list[str], code: int | None
) -> None:
    write(config, model("half", half, 'version_labels { key: "stable" value: 1 }'))
    server = start(f"--model_config_file={config}", *flags)
    if code is None:
        assert answered_by(server.ready(), "half/labels/stable") == (200, "half/1")
    else:
        assert server.exit_code() == code
        assert (
            "Request to assign label to version 1 of model half, which is not currently" in server.printed()
        )


def test_a_label_in_use_moves_in_two_steps(start: Start, half: Path, config: Path) -> None:
    stable, both = (
        'version_labels { key: "stable" value: %d }',
        "model_version_policy { specific { versions: [1, 2] } } ",
    )
    write(config, model("half", half, KEEP_ALL + stable % 1))
    server = start(f"--model_config_file={config}", ALLOW, POLL).ready()
    write(config, model("half", half, both + stable % 2))
    wait_for("the refusal", lambda: "assign label to version 2 of model half" in server.printed())
    assert answered_by(server, "half/labels/stable") == (200, "half/1")
    publish(half, 2)
    wait_for("the move", lambda: answered_by(server, "half/labels/stable") == (200, "half/2"))


def test_a_label_on_a_version_that_the_policy_leaves_out_is_not_found(
    start: Start, half: Path, config: Path
) -> None:
    publish(half, 2)
    write(config, model("half", half, 'version_labels { key: "old" value: 1 }'))
    server = start(f"--model_config_file={config}", ALLOW).ready()
    assert answered_by(server, "half/labels/old") == (404, "")
    assert answered_by(server, "half/labels/never")[0] == 400


def test_warm_up_runs_through_the_queue_and_bad_records_fail_the_load(start: Start, half: Path) -> None:
    publish(half, 2, {"assets.extra/tf_serving_warmup_requests": b"not a record file"})
    server = start("--model_name=half", f"--model_base_path={half}", "--max_num_load_retries=0")
    assert server.exit_code() == 255
    assert "DATA_LOSS" in server.printed()
    start("--model_name=half", f"--model_base_path={half}", "--enable_model_warmup=false").ready()
