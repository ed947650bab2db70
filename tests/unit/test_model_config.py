"""`models.config` as the server reads it."""

import pytest

from components import server_protos
from components.model_config import models_config
from tests import stacks
from tests.stacks import changed, one_node, two_nodes


def read(config: stacks.Config, instance: str) -> list[object]:
    (found,) = [found for found in stacks.plan(config).instances if found.name == instance]
    parsed = server_protos.values(server_protos.model_server_config(models_config(found.models)))
    assert set(parsed) == {"model_config_list"}
    models = parsed["model_config_list"]
    assert isinstance(models, dict)
    listed = models["config"]
    assert isinstance(listed, list)
    return listed


def test_one_model_is_read_with_its_platform_and_its_path_in_the_container() -> None:
    assert read(one_node(), "gpu-01-gpu0") == [
        {
            "name": "resnet50",
            "base_path": "/models/resnet50",
            "model_platform": "tensorflow",
            "model_version_policy": {"latest": {"num_versions": 1}},
        }
    ]


def test_several_models_are_read_in_the_order_of_the_file_with_labels() -> None:
    assert read(two_nodes(), "gpu-02-gpu2") == [
        {
            "name": "bert",
            "base_path": "/models/bert",
            "model_platform": "tensorflow",
            "model_version_policy": {"specific": {"versions": [3, 4]}},
            "version_labels": {"stable": 3, "canary": 4},
        },
        {
            "name": "tagger",
            "base_path": "/models/tagger",
            "model_platform": "tensorflow",
            "model_version_policy": {"all": {}},
        },
    ]


@pytest.mark.parametrize(
    ("versions", "policy"),
    [
        ({"latest": 3}, {"latest": {"num_versions": 3}}),
        ({"all": True}, {"all": {}}),
        ({"specific": [7]}, {"specific": {"versions": [7]}}),
        ({"specific": [0, 2**63 - 1]}, {"specific": {"versions": [0, 2**63 - 1]}}),
    ],
)
def test_each_version_policy_is_read_as_that_policy(versions: object, policy: object) -> None:
    (model,) = read(changed(one_node(), "pools[0].models[0].versions", versions), "gpu-01-gpu0")
    assert isinstance(model, dict)
    assert model["model_version_policy"] == policy


def test_labels_are_written_in_a_fixed_order() -> None:
    texts = [
        models_config(
            stacks.plan(changed(one_node(), "pools[0].models[0].labels", labels)).instances[0].models
        )
        for labels in ({"a": 1, "b": 1}, {"b": 1, "a": 1})
    ]
    assert texts[0] == texts[1]


def test_a_name_with_dots_and_dashes_is_read_as_it_is() -> None:
    (model,) = read(changed(one_node(), "pools[0].models[0].name", "ResNet.v1-5_b"), "gpu-01-gpu0")
    assert isinstance(model, dict)
    assert (model["name"], model["base_path"]) == ("ResNet.v1-5_b", "/models/ResNet.v1-5_b")
