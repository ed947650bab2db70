"""What fits: two versions at once, the image's GPUs, its flags, its TensorRT and XLA."""

import pytest

from components.facts import facts
from tests import stacks
from tests.stacks import changed, one_node, optimized, refusal

MODEL = "pools[0].models[0]"
IMAGE = "images.server"


def sized(gpu_mib: int, model: str | None = "a100-40g", **more: object) -> stacks.Config:
    """One model of that size on GPUs of 40960 MiB, of which TensorFlow leaves 1536 alone."""
    config = one_node()
    for gpu in range(4):
        config = changed(config, f"nodes[0].gpus[{gpu}].model", model)
    config["pools"][0]["models"][0] |= {"gpu_mib": gpu_mib, **more}
    return config


def on_card(model: str, gpu_mib: int) -> stacks.Config:
    return changed(sized(gpu_mib, model=model), IMAGE, "tensorflow/serving:2.15.1-gpu")


def on_disk(disk_mib: int, container_mib: int) -> stacks.Config:
    config = changed(one_node(), f"{MODEL}.disk_mib", disk_mib)
    return changed(config, "pools[0].memory.container_mib", container_mib)


def option(version: str, **options: object) -> stacks.Config:
    config = changed(one_node(), IMAGE, f"tensorflow/serving:{version}-gpu")
    return changed(config, "pools[0].server", options)


def card(model: str, version: str) -> stacks.Config:
    config = changed(one_node(), "nodes[0].gpus[1].model", model)
    return changed(config, IMAGE, f"tensorflow/serving:{version}-gpu")


def converted(tensorrt: str, version: str) -> stacks.Config:
    config = optimized("tensorrt", f"tensorflow/serving:{version}-gpu")
    return changed(config, f"{MODEL}.optimized.tensorrt", tensorrt)


HALF = (40960 - 1536) // 2
ORIGINAL = {"kind": "fp16", "path": "/srv/models/half"}
ALONE = ORIGINAL | {"keep_original": False}

# What TensorFlow leaves alone depends on the card's generation.
CARDS = [("v100-16g", 16384, 1050), ("t4", 15360, 1050), ("l4", 23034, 1536), ("h100-80g", 81559, 1800)]

REFUSED = [
    # models_fit_twice
    (
        sized(HALF + 1),
        f"pools[0].models: need {2 * HALF + 2} MiB of GPU memory while a new version replaces an old one, ",
    ),
    *(
        (on_card(model, (memory - reserve) // 2 + 1), "pools[0].models: need ")
        for model, memory, reserve in CARDS
    ),
    (sized(HALF, versions={"latest": 2}), f"pools[0].models: need {3 * HALF} MiB of GPU memory"),
    (sized(HALF, optimized=ORIGINAL), f"pools[0].models: need {4 * HALF} MiB of GPU memory"),
    (
        changed(sized(10240), "pools[0].gpu_memory", {"fraction": 0.49}),
        "pools[0].models: need 20480 MiB of GPU memory while a new version replaces an old one, but a slot",
    ),
    (
        changed(changed(stacks.with_mig(), "pools[1].models[0].gpu_mib", 20000), IMAGE, "a:2.14.1-gpu"),
        "pools[1].models: need 40000 MiB of GPU memory while a new version replaces an old one, but a slot",
    ),
    (
        changed(changed(stacks.with_hardware(), f"{MODEL}.gpu_mib", 40193), IMAGE, "a:2.14.1-gpu"),
        "pools[0].models: need 80386 MiB of GPU memory",
    ),
    (
        on_disk(500, 999),
        "pools[0].memory.container_mib: 999: its models need 1000 MiB while a new version replaces an",
    ),
    # gpu_is_in_the_image
    (
        card("h100-80g", "2.14.1"),
        "nodes[0].gpus[1].model: 'h100-80g': tensorflow/serving:2.14.1-gpu was built for compute capability",
    ),
    # flags_exist_in_the_version
    (
        option("2.14.1", enable_grpc_healthcheck_service=True),
        "pools[0].server.enable_grpc_healthcheck_service: True: TensorFlow Serving 2.14.1 lacks it; since",
    ),
    (option("2.14.1", mixed_precision="bfloat16"), "pools[0].server.mixed_precision: 'bfloat16': TensorFlow"),
    (
        option("2.17.1", xla_gpu_compilation_enabled=True),
        "pools[0].server.xla_gpu_compilation_enabled: True: TensorFlow Serving 2.17.1 lacks it; since 2.18.0",
    ),
    (
        option("2.18.0", enable_serialization_as_tensor_content=False),
        "pools[0].server.enable_serialization_as_tensor_content: False: TensorFlow Serving 2.18.0 lacks it",
    ),
    # optimized_models_run
    (
        optimized("xla", "tensorflow/serving:2.17.1-gpu"),
        f"{MODEL}.optimized.kind: 'xla': tensorflow/serving:2.17.1-gpu cannot compile for the GPU; 2.18",
    ),
    (
        optimized("tensorrt", "tensorflow/serving:2.18.0-gpu"),
        f"{MODEL}.optimized.kind: 'tensorrt': tensorflow/serving:2.18.0-gpu was built without TensorRT; 2",
    ),
    (
        converted("8.6.1", "2.14.1"),
        f"{MODEL}.optimized.tensorrt: '8.6.1': tensorflow/serving:2.14.1-gpu has TensorRT 8.4.3; convert",
    ),
]

ACCEPTED = [
    sized(HALF),
    sized(2 * HALF, versions={"specific": [4]}),
    sized(10**6, versions={"all": True}),
    sized(10**6, model=None),
    sized(HALF, optimized=ALONE),
    changed(sized(10240), "pools[0].gpu_memory", {"fraction": 0.5}),
    changed(stacks.with_mig(), "pools[1].models[0].gpu_mib", (40192 - 1536) // 2),
    *(on_card(model, (memory - reserve) // 2) for model, memory, reserve in CARDS),
    on_disk(500, 1000),
    card("h100-80g", "2.15.1"),
    card("l4", "2.14.1"),
    card("t4", "2.20.0"),
    option("2.15.1", enable_grpc_healthcheck_service=True, mixed_precision="bfloat16"),
    option("2.18.0", xla_gpu_compilation_enabled=True),
    option("2.19.0", enable_serialization_as_tensor_content=False),
    option("2.14.1", xla_cpu_compilation_enabled=True),
    optimized("xla", "tensorflow/serving:2.18.0-gpu"),
    optimized("tensorrt", "tensorflow/serving:2.17.1-gpu"),
    optimized("fp16", "tensorflow/serving:2.20.0-gpu"),
    converted("8.4.3", "2.14.1"),
    converted("8.6.1", "2.15.1"),
]


@pytest.mark.parametrize(("config", "line"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(config: stacks.Config, line: str) -> None:
    (said,) = refusal(config)
    assert said.startswith(line)


@pytest.mark.parametrize("config", ACCEPTED)
def test_what_just_fits_is_accepted(config: stacks.Config) -> None:
    assert stacks.problems(config) == ()


def test_a_card_that_the_image_does_not_know_is_told_at_the_hardware_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert stacks.problems(stacks.with_hardware()) == ()
    newer = facts().gpus["a100-80g"].model_copy(update={"capability": "9.0"})
    cards = facts().model_copy(update={"gpus": facts().gpus | {"a100-80g": newer}})
    monkeypatch.setattr("components.capacity_rules.facts", lambda: cards)
    (said,) = refusal(stacks.with_hardware())
    assert said.startswith("nodes[0].hardware: 'a100-80g-x4': tensorflow/serving:2.14.1-gpu was built for")


def test_what_is_missing_is_said_with_what_there_is() -> None:
    assert refusal(sized(HALF + 1))[0].endswith(
        f"but a slot has {2 * HALF} for them; keep fewer versions, list them in versions.specific, or drop a "
        "model"
    )
    assert refusal(card("h100-80g", "2.14.1"))[0].endswith("8.0 at most, h100-80g has 9.0; use a newer image")


def test_an_instance_with_all_gpus_is_one_container_for_the_nodes_memory() -> None:
    config = changed(stacks.with_all_gpus(), "nodes[0].memory_mib", 98304 + 2048 + 1024)
    assert stacks.problems(config) == ()
    (said,) = refusal(changed(config, "nodes[0].memory_mib", 98304 + 2048 + 1023))
    assert "its containers may use 1 x 98304 (main) + 2048 (Envoy) = 100352 MiB" in said
