"""Input that nobody writes on purpose: refused with a place and a reason, never with a traceback."""

import os
from pathlib import Path

import pytest

from components.errors import SettingsError
from components.image_lock import FILE
from components.stack_file import load_settings, load_stack_file
from tests import stacks
from tests.stacks import SOURCE, Config, changed, one_node, refusal, without

TOKEN = "ghp_" + "a" * 36


def said(config: Config, folder: Path | None = None) -> str:
    with pytest.raises(SettingsError) as error:
        load_settings(config, SOURCE, folder)
    return str(error.value)


def with_models_file(name: str) -> Config:
    return changed(without(one_node(), "pools[0].models"), "pools[0].models_file", name)


@pytest.mark.parametrize("port", ["rest_port", "grpc_port", "metrics_port"])
def test_envoys_own_admin_port_is_not_published(port: str) -> None:
    lines = refusal(one_node() | {"front_end": {port: 9901}})
    assert lines == [f"front_end.{port}: 9901: is also Envoy's own admin port"]


@pytest.mark.parametrize("port", ["rest_port", "grpc_port", "metrics_port"])
def test_envoys_own_status_port_is_not_published(port: str) -> None:
    lines = refusal(one_node() | {"front_end": {port: 9903}})
    assert lines == [f"front_end.{port}: 9903: is also Envoy's own status port"]


@pytest.mark.parametrize(
    "image", ["envoyproxy/envoy:distroless-v1.40.0", "envoyproxy/envoy-distroless:v1.40.0"]
)
def test_an_image_of_envoy_without_a_shell_is_refused(image: str) -> None:
    lines = refusal(changed(one_node(), "images.envoy", image))
    assert lines == [f"images.envoy: '{image}': has no shell; take an image of Envoy that is not distroless"]


@pytest.mark.parametrize("path", ["nodes[0].memory_mib", "pools[0].memory.container_mib"])
def test_memory_that_no_machine_has_is_refused(path: str) -> None:
    assert any(line.startswith(f"{path}: ") for line in refusal(changed(one_node(), path, 10**19)))


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "folder", "link", "large"])
def test_what_is_no_file_of_the_project_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / "large").write_bytes(b"#" * (2**20 + 1))
    text = said(with_models_file(name), tmp_path)
    assert "pools[0].models_file" in text or "not valid Unicode" in text


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "it is no regular file" in said(with_models_file("pipe"), tmp_path)


@pytest.mark.parametrize("value", ["!!bool x", '!!int ""', '!!float ""'])
def test_a_tag_that_does_not_fit_its_value_is_told(value: str, tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(f"config:\n  tf-serving:rollout: {{stop_timeout_s: {value}}}\n")
    with pytest.raises(SettingsError, match="is not YAML"):
        load_stack_file(file)


def test_a_lock_file_that_is_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    assert f"{FILE} cannot be read" in said(one_node(), tmp_path)


@pytest.mark.parametrize("image", ["a:b:c:2.14.1-gpu", "a..b/c:2.14.1-gpu", "http://x/y:2.14.1-gpu"])
def test_an_image_that_docker_refuses_is_refused(image: str) -> None:
    lines = refusal(changed(one_node(), "images.server", image))
    assert any(line.startswith("images.server: ") for line in lines)


@pytest.mark.parametrize("image", ["reg.example:5000/team/serving:2.14.1-gpu", "a_b/c-d.e:2.14.1-gpu"])
def test_an_image_of_any_registry_is_accepted(image: str) -> None:
    assert stacks.settings(changed(one_node(), "images.server", image)).images.server == image


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nodes[0].name", TOKEN),
        ("pools[0].models[0].path", "/srv/token=hunter2hunter2/m"),
        ("pools[0].threads", ["PASSWORD=hunter2hunter2"]),
        (f"pools[0].{TOKEN}", 1),
    ],
)
def test_a_refusal_shows_no_secret(path: str, value: object) -> None:
    text = "\n".join(refusal(changed(one_node(), path, value)))
    assert "hunter2" not in text
    assert path.endswith(TOKEN) or TOKEN not in text


def test_parts_of_a_gpu_are_not_taken_together() -> None:
    config = stacks.with_mig()
    config["environment"] = "staging"
    config["pools"][1] |= {"all_gpus": True}
    assert any("pools[1].all_gpus" in line for line in refusal(config))


def test_instances_of_two_nodes_never_get_one_name() -> None:
    config = stacks.two_nodes() | {"environment": "staging"}
    config["nodes"][0]["name"], config["nodes"][1]["name"] = "a", "a-gpu0"
    main, text = config["pools"]
    main |= {"name": "gpu1", "sharing": True, "slots": [{"node": "a", "gpus": [0]}]}
    text |= {"slots": [{"node": "a-gpu0", "gpus": [1]}]}
    assert any("its instance a-gpu0-gpu1 is named like" in line for line in refusal(config))


def test_volumes_of_two_nodes_never_get_one_name() -> None:
    config = stacks.two_nodes()
    config["nodes"][0]["name"], config["nodes"][1]["name"] = "a", "a-b"
    main, text = config["pools"]
    main |= {"name": "b-c", "slots": [{"node": "a", "gpus": [0]}]}
    text |= {"name": "c", "slots": [{"node": "a-b", "gpus": [1]}]}
    assert any("its volume a-b-c-config is named like that of pools[0]" in line for line in refusal(config))


def test_a_pool_is_never_named_so_that_its_volume_is_that_of_envoy() -> None:
    lines = refusal(changed(one_node(), "pools[0].name", "envoy"))
    assert any(
        "its volume gpu-01-envoy-config is named like that of nodes[0]'s Envoy" in line for line in lines
    )


def test_an_instance_is_never_named_like_the_container_that_publishes_files() -> None:
    config = stacks.sharing()
    main, text = config["pools"]
    main |= {"name": "publisher"}
    text |= {"name": "gpu0"}
    said = refusal(config)
    assert any(
        "its instance gpu-01-gpu0-publisher is named like that of the publisher" in line for line in said
    )
