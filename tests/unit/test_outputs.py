"""The contract with other teams: flat, typed, and the same before and after anything is deployed."""

import pytest
from pydantic import ValidationError

from components.outputs import CONTRACT_VERSION, StackOutputs, stack_outputs
from tests import stacks
from tests.stacks import changed, one_node, two_nodes, without


def outputs(config: stacks.Config) -> StackOutputs:
    return stack_outputs(stacks.settings(config), stacks.plan(config))


def test_the_outputs_of_one_node() -> None:
    found = outputs(one_node())
    assert found.contract_version == CONTRACT_VERSION == 1
    assert found.rest_url == "http://gpu-01.example.com:8080"
    assert found.rest_urls == ["http://gpu-01.example.com:8080"]
    assert found.grpc_target == "gpu-01.example.com:8500"
    assert found.grpc_targets == ["gpu-01.example.com:8500"]
    assert [model.model_dump() for model in found.models] == [
        {
            "name": "resnet50",
            "pool": "main",
            "rest_urls": ["http://gpu-01.example.com:8080/v1/models/resnet50"],
            "max_batch_size": 32,
        }
    ]
    assert found.instances[3].model_dump() == {
        "name": "gpu-01-gpu3",
        "pool": "main",
        "node": "gpu-01",
        "slot": "gpu3",
        "gpu_uuids": [stacks.uuid(3)],
        "models": ["resnet50"],
    }
    assert [target.path for target in found.metrics_targets] == [
        "/metrics",
        "/instances/gpu-01-gpu0/metrics",
        "/instances/gpu-01-gpu1/metrics",
        "/instances/gpu-01-gpu2/metrics",
        "/instances/gpu-01-gpu3/metrics",
    ]
    assert {target.address for target in found.metrics_targets} == {"127.0.0.1:9902"}


def test_each_node_has_a_url_of_its_own() -> None:
    found = outputs(two_nodes())
    assert found.rest_urls == ["http://gpu-01.example.com:8080", "http://10.0.0.2:8080"]
    assert found.grpc_targets == ["gpu-01.example.com:8500", "10.0.0.2:8500"]
    assert (found.rest_url, found.grpc_target) == (found.rest_urls[0], found.grpc_targets[0])
    assert [(target.job, target.node) for target in found.metrics_targets] == [
        ("envoy", "gpu-01"),
        ("tf-serving", "gpu-01"),
        ("tf-serving", "gpu-01"),
        ("envoy", "gpu-02"),
        ("tf-serving", "gpu-02"),
        ("tf-serving", "gpu-02"),
        ("tf-serving", "gpu-02"),
    ]


def test_a_model_is_offered_only_where_its_pool_has_a_slot() -> None:
    urls = {model.name: model.rest_urls for model in outputs(two_nodes()).models}
    assert urls == {
        "resnet50": [
            "http://10.0.0.2:8080/v1/models/resnet50",
            "http://gpu-01.example.com:8080/v1/models/resnet50",
        ],
        "bert": ["http://10.0.0.2:8080/v1/models/bert"],
        "tagger": ["http://10.0.0.2:8080/v1/models/tagger"],
    }


def test_a_model_without_batching_names_no_batch_size() -> None:
    (model,) = outputs(without(stacks.in_staging(one_node()), "pools[0].batching")).models
    assert model.max_batch_size is None


def test_the_original_beside_an_optimized_form_is_offered_too() -> None:
    found = outputs(stacks.optimized("fp16"))
    assert [(model.name, model.rest_urls[0].rpartition("/")[2]) for model in found.models] == [
        ("resnet50", "resnet50"),
        ("resnet50_original", "resnet50_original"),
    ]
    assert {name for instance in found.instances for name in instance.models} == {
        m.name for m in found.models
    }


def test_an_instance_says_which_slot_and_which_gpus_it_owns() -> None:
    assert [(i.slot, i.gpu_uuids) for i in outputs(stacks.with_mig()).instances][1:3] == [
        ("gpu0-mig1", [stacks.mig_uuid(1)]),
        ("gpu1", [stacks.uuid(1)]),
    ]
    (instance,) = outputs(stacks.with_all_gpus()).instances
    assert instance.gpu_uuids == [stacks.uuid(gpu) for gpu in range(4)]


def test_ports_come_from_the_front_end() -> None:
    config = changed(one_node(), "front_end", {"rest_port": 80, "grpc_port": 81, "metrics_port": 82})
    found = outputs(config)
    assert found.rest_url == "http://gpu-01.example.com:80"
    assert found.grpc_target == "gpu-01.example.com:81"
    assert {target.address for target in found.metrics_targets} == {"127.0.0.1:82"}


def test_what_a_stack_exports_is_what_a_consumer_reads_back() -> None:
    found = outputs(two_nodes())
    assert StackOutputs.model_validate(found.model_dump()) == found
    assert StackOutputs.model_validate_json(found.model_dump_json()) == found


def test_a_consumer_is_told_of_a_field_it_does_not_know() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        StackOutputs.model_validate(outputs(one_node()).model_dump() | {"new": 1})


def test_the_contract_is_the_one_that_its_version_names() -> None:
    # Another shape is another contract: raise CONTRACT_VERSION, and tell readers in the CHANGELOG.
    schema = StackOutputs.model_json_schema()
    shape = {name: sorted(model["properties"]) for name, model in schema["$defs"].items()}
    assert (CONTRACT_VERSION, sorted(schema["properties"]), shape) == (
        1,
        [
            "contract_version",
            "grpc_target",
            "grpc_targets",
            "instances",
            "metrics_targets",
            "models",
            "rest_url",
            "rest_urls",
        ],
        {
            "InstanceOutput": ["gpu_uuids", "models", "name", "node", "pool", "slot"],
            "MetricsTarget": ["address", "job", "node", "path"],
            "ModelOutput": ["max_batch_size", "name", "pool", "rest_urls"],
        },
    )
