"""images.lock.yaml: its digests win over tags, and a digest that says otherwise is told."""

from pathlib import Path

import pytest

from components.errors import SettingsError
from components.image_lock import FILE, read_lock
from components.kubernetes_settings import KubernetesSettings
from components.plan import make_plan
from components.settings import Settings
from components.stack_file import load_settings
from tests import kubernetes_stacks, stacks
from tests.stacks import changed, one_node

SERVER = "tensorflow/serving:2.14.1-gpu"
A = "sha256:" + "0a" * 32
B = "sha256:" + "0b" * 32


def load(folder: Path, lock: str, config: stacks.Config | None = None) -> Settings:
    (folder / FILE).write_text(lock)
    return load_settings(config or one_node(), stacks.SOURCE, folder)


def refusal(folder: Path, lock: str, config: stacks.Config | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(folder, lock, config)
    return [str(problem) for problem in caught.value.problems]


def test_without_a_lock_file_a_tag_stays_a_tag(tmp_path: Path) -> None:
    assert read_lock(tmp_path) == {}
    assert load_settings(one_node(), stacks.SOURCE, tmp_path).images.server == SERVER


def test_the_lock_files_digest_is_put_on_a_tag(tmp_path: Path) -> None:
    images = load(tmp_path, f"images: {{'{SERVER}': '{A}'}}").images
    assert images.server == f"{SERVER}@{A}"
    assert images.envoy == "envoyproxy/envoy:v1.40.0"


def test_a_digest_reaches_every_container(tmp_path: Path) -> None:
    settings = load(tmp_path, f"images: {{'{SERVER}': '{A}'}}")
    plan = make_plan(settings, stack="test", project_folder="/p")
    assert {instance.image for instance in plan.instances} == {f"{SERVER}@{A}"}
    assert {instance.version for instance in plan.instances} == {"2.14.1"}
    assert plan.nodes[0].images["server"] == f"{SERVER}@{A}"


def test_the_same_digest_in_both_places_is_no_conflict(tmp_path: Path) -> None:
    config = changed(one_node(), "images.server", f"{SERVER}@{A}")
    assert load(tmp_path, f"images: {{'{SERVER}': '{A}'}}", config).images.server == f"{SERVER}@{A}"


def test_another_digest_in_the_stack_file_is_told(tmp_path: Path) -> None:
    config = changed(one_node(), "images.server", f"{SERVER}@{B}")
    (said,) = refusal(tmp_path, f"images: {{'{SERVER}': '{A}'}}", config)
    assert said.startswith(f"images.server: '{SERVER}@sha256:0b0b")
    assert said.endswith(f"{FILE} has {A}: drop the digest here, or that line there")


def test_a_digest_for_another_tag_changes_nothing(tmp_path: Path) -> None:
    lock = f"images: {{'tensorflow/serving:2.13.1-gpu': '{A}'}}"
    assert load(tmp_path, lock).images.server == SERVER


@pytest.mark.parametrize(
    "lock",
    [
        "",
        "[]",
        "images: []",
        "images:",
        f"'{SERVER}': '{A}'",
        "images: {'a:1': 1}",
        f"images: {{'{SERVER}': latest}}",
        f"images: {{'{SERVER}': '{A[:-1]}'}}",
        f"images: {{'{SERVER}': '{A}0'}}",
    ],
)
def test_a_lock_file_of_another_shape_is_refused_by_its_name(tmp_path: Path, lock: str) -> None:
    (said,) = refusal(tmp_path, lock)
    assert said.startswith(f"{FILE}: {FILE} must hold `images:` with `repository:tag: sha256:<64 hex")


@pytest.mark.parametrize(
    "lock", ["images: {", "a: b: c", f"images: {{'{SERVER}': '{A}', '{SERVER}': '{B}'}}"]
)
def test_a_lock_file_that_is_no_yaml_is_refused_by_its_name_and_line(tmp_path: Path, lock: str) -> None:
    (said,) = refusal(tmp_path, lock)
    assert said.startswith(f"{FILE}: {FILE} is not YAML: line ")
    assert "\n" not in said


@pytest.mark.parametrize("images", [5, None, [], {"server": 5, "envoy": None}, {"server": [], "envoy": {}}])
def test_images_of_another_shape_are_refused_as_without_a_lock_file(tmp_path: Path, images: object) -> None:
    config = one_node() | {"images": images}
    assert refusal(tmp_path, f"images: {{'{SERVER}': '{A}'}}", config) == stacks.refusal(config)


def test_the_image_that_models_come_in_is_pinned_too(tmp_path: Path) -> None:
    volume = {"image": "models:7.0.0"}
    config = changed(kubernetes_stacks.four_gpus(), "pools[0].model_volume", volume)
    settings = load(tmp_path, f"images: {{'models:7.0.0': '{A}'}}", config)
    assert isinstance(settings, KubernetesSettings)
    assert settings.pools[0].model_volume.image == f"models:7.0.0@{A}"
    volume["image"] += f"@{B}"
    (said,) = refusal(tmp_path, f"images: {{'models:7.0.0': '{A}'}}", config)
    assert said.startswith("pools[0].model_volume.image: 'models:7.0.0@sha256:0b0b")


@pytest.mark.parametrize(
    "pools", [5, None, {}, [5], [{"model_volume": 5}], [{"model_volume": {"image": []}}]]
)
def test_pools_of_another_shape_are_refused_as_without_a_lock_file(tmp_path: Path, pools: object) -> None:
    config = kubernetes_stacks.four_gpus() | {"pools": pools}
    assert refusal(tmp_path, f"images: {{'{SERVER}': '{A}'}}", config) == stacks.refusal(config)
