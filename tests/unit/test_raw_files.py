"""The server's own files, where people have them already: read, normalised, refused with line and column."""

from pathlib import Path

import pytest

from components.errors import SettingsError
from components.model_config import models_config
from components.plan import make_plan
from components.settings import Settings
from components.stack_file import load_settings
from tests import stacks
from tests.stacks import changed, one_node, without

MODELS_FILE = "pools[0].models_file"
BATCHING_FILE = "pools[0].batching_file"
MODEL = 'name: "m" base_path: "/srv/m" model_platform: "tensorflow"'


def one(fields: str) -> str:
    return f"model_config_list {{ config {{ {MODEL} {fields} }} }}"


def with_models(tmp_path: Path, text: str | bytes) -> Settings:
    (tmp_path / "models.config").write_bytes(text if isinstance(text, bytes) else text.encode())
    config = without(one_node(), "pools[0].models")
    return load_settings(changed(config, MODELS_FILE, "./models.config"), "Pulumi.test.yaml", tmp_path)


def with_batching(tmp_path: Path, text: str | bytes) -> Settings:
    (tmp_path / "batching.config").write_bytes(text if isinstance(text, bytes) else text.encode())
    config = without(stacks.in_staging(one_node()), "pools[0].batching")
    return load_settings(changed(config, BATCHING_FILE, "batching.config"), "Pulumi.test.yaml", tmp_path)


def refused(config: stacks.Config, folder: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(config, "Pulumi.test.yaml", folder)
    return [str(problem) for problem in caught.value.problems]


ACCEPTED_MODELS = {
    "colons, commas and a comment": (
        f"model_config_list: {{ config: {{ {MODEL}, model_version_policy: {{ all: {{}} }}, }}, }} # theirs",
        {"all": True},
    ),
    "a list of versions": (
        one("model_version_policy { specific { versions: [1, 2] } }"),
        {"specific": (1, 2)},
    ),
    "repeated versions": (
        one("model_version_policy { specific { versions: 1 versions: 2 } }"),
        {"specific": (1, 2)},
    ),
    "the newest two": (one("model_version_policy { latest { num_versions: 2 } }"), {"latest": 2}),
    "zero, which is one": (one("model_version_policy { latest { num_versions: 0 } }"), {"latest": 1}),
    "latest without a number": (one("model_version_policy { latest {} }"), {"latest": 1}),
    "no policy": (one(""), {"latest": 1}),
    "no platform": ("model_config_list { config { name: 'm' base_path: '/srv/m' } }", {"latest": 1}),
    "lines as another system ends them": (
        one("\r\n\tmodel_version_policy {\r\n all {} }\r\n"),
        {"all": True},
    ),
}


@pytest.mark.parametrize(("text", "versions"), ACCEPTED_MODELS.values(), ids=ACCEPTED_MODELS)
def test_a_model_list_that_the_server_reads_is_read(
    tmp_path: Path, text: str, versions: dict[str, object]
) -> None:
    (model,) = with_models(tmp_path, text).pools[0].models
    assert (model.name, model.path) == ("m", "/srv/m")
    assert model.versions.model_dump(exclude_none=True) == versions


def test_labels_of_a_model_list_are_read(tmp_path: Path) -> None:
    text = one(
        'model_version_policy { specific { versions: [1,2] } } version_labels { key: "stable", value: 1 }, '
        'version_labels { key: "canary", value: 2 }'
    )
    assert with_models(tmp_path, text).pools[0].models[0].labels == {"canary": 2, "stable": 1}


REFUSED_MODELS = {
    "an enum word as policy": (one("model_version_policy: LATEST_VERSION"), "1:"),
    "a key that does not exist": (one("version_policy { all {} }"), "1:"),
    "two policies at once": (one("model_version_policy { all {} latest {} }"), "1:"),
    "a quoted label value": (one('version_labels { key: "a" value: "1" }'), "1:"),
    "a label map as in JSON": (one('version_labels: {"a": 1}'), "1:"),
    "batching parameters inside": (one("batching_parameters {}"), "1:"),
    "batching parameters outside": ("batching_parameters {}", "1:1: "),
    "an optimization of one's own": (one("optimization { gpu {} }"), "1:"),
    "two lists": ("model_config_list {}\nmodel_config_list {}", "2:"),
    "a bare config": (f"\n  config {{ {MODEL} }}", "2:3: "),
    "curly quotes": ("model_config_list {\n  config { name: “m” } }", "2:18: "),
    "a byte-order mark": ("\ufeff" + one(""), "1:1: "),
    "JSON": ('{"model_config_list": {}}', "1:1: "),
    "a field twice": (one('name: "n"'), "1:"),
    "a logging config": (one("logging_config {}"), "1:"),
    "another platform": (
        one("").replace('"tensorflow"', '"caffe"'),
        " model_platform 'caffe': the server has",
    ),
}


@pytest.mark.parametrize(("text", "where"), REFUSED_MODELS.values(), ids=REFUSED_MODELS)
def test_a_model_list_that_the_server_refuses_is_refused_with_line_and_column(
    tmp_path: Path, text: str, where: str
) -> None:
    (tmp_path / "models.config").write_text(text, encoding="utf-8")
    config = changed(without(one_node(), "pools[0].models"), MODELS_FILE, "./models.config")
    (said,) = refused(config, tmp_path)
    assert said.startswith(f"{MODELS_FILE}: './models.config': ./models.config:{where}")
    assert "\n" not in said


BATCHES = "max_batch_size { value: 32 } batch_timeout_micros { value: 5 }"
REFUSED_BATCHING = {
    "a bare number": ("max_batch_size: 32", "1:17: "),
    "a wrapped list": ("\nallowed_batch_sizes { value: 32 }", "2:"),
    "a field twice": (f"{BATCHES}\n{BATCHES}", "2:"),
    "a field that does not exist": ("max_batch_sizes { value: 1 }", "1:1: "),
    "a byte-order mark": ("\ufeff" + BATCHES, "1:1: "),
}


@pytest.mark.parametrize(("text", "where"), REFUSED_BATCHING.values(), ids=REFUSED_BATCHING)
def test_batching_text_that_the_server_refuses_is_refused_with_line_and_column(
    tmp_path: Path, text: str, where: str
) -> None:
    (tmp_path / "b").write_text(text, encoding="utf-8")
    config = changed(without(one_node(), "pools[0].batching"), BATCHING_FILE, "b")
    (said,) = refused(config, tmp_path)
    assert said.startswith(f"{BATCHING_FILE}: 'b': b:{where}")


def test_batching_text_is_read_with_the_servers_defaults_for_what_it_leaves_out(tmp_path: Path) -> None:
    found = with_batching(tmp_path, "allowed_batch_sizes: [500, 1000],").pools[0].batching
    assert found is not None
    assert (found.max_batch_size, found.batch_timeout_micros, found.max_enqueued_batches) == (1000, 0, 10)
    assert found.allowed_batch_sizes == (500, 1000)


def test_every_field_of_a_batching_file_is_read(tmp_path: Path) -> None:
    text = (
        f"{BATCHES} num_batch_threads {{ value: 3 }} max_enqueued_batches {{ value: 7 }} "
        'thread_pool_name { value: "theirs" } allowed_batch_sizes: 16 allowed_batch_sizes: 32 '
        "pad_variable_length_inputs: true enable_large_batch_splitting { value: true } "
        "max_execution_batch_size { value: 16 }"
    )
    found = with_batching(tmp_path, text).pools[0].batching
    assert found is not None
    assert found.model_dump(exclude={"preset"}) == {
        "max_batch_size": 32,
        "batch_timeout_micros": 5,
        "num_batch_threads": 3,
        "max_enqueued_batches": 7,
        "allowed_batch_sizes": (16, 32),
        "pad_variable_length_inputs": True,
        "enable_large_batch_splitting": True,
        "max_execution_batch_size": 16,
    }


def test_what_a_file_says_is_held_to_the_same_rules(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="the last size must equal max_batch_size 32"):
        with_batching(tmp_path, f"{BATCHES} allowed_batch_sizes: [1, 8]")
    with pytest.raises(SettingsError, match="sync them there"):
        with_models(tmp_path, "model_config_list { config { name: 'm' base_path: 's3://b/m' } }")
    twice = f"model_config_list {{ config {{ {MODEL} }} config {{ {MODEL} }} }}"
    with pytest.raises(SettingsError, match=r"models\[1\].name: 'm': is also models\[0\].name"):
        with_models(tmp_path, twice)


def test_a_model_list_without_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"pools\[0\].models: \[\]: must hold at least 1 item"):
        with_models(tmp_path, "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("./none.config", "cannot be read: No such file or directory"),
        ("folder", "cannot be read: Is a directory"),
        ("latin1", "is not UTF-8 text: byte 7"),
        ("/etc/hostname", "accepted: a file of this project"),
        ("../outside", "accepted: a file of this project"),
    ],
)
def test_a_file_that_cannot_be_had_is_said_once(tmp_path: Path, name: str, reason: str) -> None:
    folder = tmp_path / "project"
    (folder / "folder").mkdir(parents=True)
    (folder / "latin1").write_bytes(b"# caf\xc3\xa9\xe9")
    (tmp_path / "outside").write_text("secret of somebody else")
    models = changed(without(one_node(), "pools[0].models"), MODELS_FILE, name)
    assert refused(models, folder) == [f"{MODELS_FILE}: '{name}': {reason}"]
    batching = changed(without(one_node(), "pools[0].batching"), BATCHING_FILE, name)
    assert refused(batching, folder) == [f"{BATCHING_FILE}: '{name}': {reason}"]


def test_a_file_and_the_settings_that_it_replaces_are_not_given_together(tmp_path: Path) -> None:
    assert refused(changed(one_node(), MODELS_FILE, "m"), tmp_path) == [
        f"{MODELS_FILE}: 'm': give this or models, not both"
    ]
    assert refused(changed(one_node(), BATCHING_FILE, "b"), tmp_path) == [
        f"{BATCHING_FILE}: 'b': give this or batching, not both"
    ]


def test_a_file_comes_to_the_same_configuration_as_the_settings(tmp_path: Path) -> None:
    read = with_models(tmp_path, one("model_version_policy { latest { num_versions: 1 } }"))
    written = stacks.settings(changed(one_node(), "pools[0].models[0]", {"name": "m", "path": "/srv/m"}))

    def text(settings: Settings) -> str:
        plan = make_plan(settings, stack="test", project_folder="/p")
        return models_config(plan.instances[0].models)

    assert text(read) == text(written)
    assert 'model_platform: "tensorflow"' in text(read)
