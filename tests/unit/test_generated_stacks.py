"""Generated stacks: good ones come to a whole plan; one mistake is refused where it stands."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.errors import SettingsError
from components.outputs import stack_outputs
from components.plan import make_plan
from components.stack_file import load_settings
from tests import stacks
from tests.stacks import Config

Draw = st.DrawFn
# Ways to cut an A100 with 80 GB.
CUTS = [["7g.80gb"], ["3g.40gb", "3g.40gb"], ["1g.10gb"] * 7, ["4g.40gb", "2g.20gb", "1g.10gb"]]
IMAGES = ["2.14.1", "2.17.1", "2.19.0"]


def node(draw: Draw, n: int) -> Config:
    found: Config = {
        "name": f"gpu-{n:02d}",
        "address": f"gpu-{n:02d}.example.com",
        "bind": f"10.20.0.{n}",
        "docker": {"endpoint": f"ssh://deploy@gpu-{n:02d}.example.com"},
        "memory_mib": 515000,
        "subnet": draw(st.sampled_from(["172.29.80.0/24", "10.0.0.0/16"])),
    }
    if draw(st.booleans()):
        found["driver"] = draw(st.sampled_from(["535.129.03", "550.54.15"]))
    if draw(st.integers(0, 4)) == 0:
        return found | {
            "hardware": "a100-80g-x4",
            "gpu_uuids": [stacks.uuid(gpu, node=n) for gpu in range(4)],
        }
    return found | {"gpus": [gpu(draw, n, index) for index in range(draw(st.integers(1, 4)))]}


def gpu(draw: Draw, n: int, index: int) -> Config:
    found: Config = {"index": index, "uuid": stacks.uuid(index, node=n), "numa_node": index // 2}
    if draw(st.booleans()):
        return found | {"cpus": f"{16 * index}-{16 * index + 15}"}
    found["model"] = "a100-80g"
    if draw(st.booleans()):
        found["mig"] = [
            {"uuid": f"MIG-{n:04d}{index:04d}-bbbb-4bbb-8bbb-{part:012d}", "profile": profile}
            for part, profile in enumerate(draw(st.sampled_from(CUTS)))
        ]
    return found


def slots(found: Config) -> list[tuple[str, int | str]]:
    if "hardware" in found:
        return [(found["name"], index) for index in range(4)]
    return [
        (found["name"], key)
        for gpu in found["gpus"]
        for key in ([f"{gpu['index']}:{part}" for part in range(len(gpu.get("mig", [])))] or [gpu["index"]])
    ]


def model(draw: Draw, name: str) -> Config:
    found: Config = {"name": name, "path": f"/srv/models/{name}"}
    versions = draw(st.sampled_from([None, {"latest": 2}, {"all": True}, {"specific": [3, 4]}]))
    if versions is not None:
        found["versions"] = versions
        if draw(st.booleans()):
            found["labels"] = {"stable": 3, "canary": 4}
    if draw(st.integers(0, 3)) == 0:
        kept = draw(st.booleans())
        found["optimized"] = {"kind": "fp16", "path": f"/srv/models/{name}_fp16", "keep_original": kept}
    return found


def batching(draw: Draw) -> Config:
    if draw(st.booleans()):
        return {"preset": draw(st.sampled_from(["image", "text", "throughput"]))}
    sizes = sorted(draw(st.sets(st.integers(1, 128), min_size=1, max_size=5)))
    return {
        "max_batch_size": sizes[-1],
        "batch_timeout_micros": draw(st.integers(1, 100_000)),
        "allowed_batch_sizes": sizes,
    }


def pool(draw: Draw, p: int, taken: list[tuple[str, int | str]]) -> Config:
    groups: dict[str, list[int | str]] = {}
    for where, key in taken:
        groups.setdefault(where, []).append(key)
    found: Config = {
        "name": f"pool-{p}",
        "models": [model(draw, f"m{p}_{m}") for m in range(draw(st.integers(1, 3)))],
        "slots": [{"node": where, "gpus": keys} for where, keys in groups.items()],
        "memory": {"container_mib": draw(st.integers(1024, 4096))},
        "threads": {"intra_op": 4, "inter_op": 2},
        "single": len(taken) == 1,
    }
    if draw(st.booleans()):
        found["batching"] = batching(draw)
    else:
        found |= {"unbatched": True, "threads": {**found["threads"], "grpc_max": 8, "rest": 8}}
    if draw(st.booleans()):
        found["gpu_memory"] = {"allow_growth": draw(st.booleans()), "fraction": draw(st.floats(0.01, 0.95))}
    return found


@st.composite
def good(draw: Draw) -> Config:
    """A stack that keeps every rule: every slot of every node has one owner."""
    nodes = [node(draw, n) for n in range(1, draw(st.integers(1, 3)) + 1)]
    free = [slot for found in nodes for slot in slots(found)]
    random.Random(draw(st.integers(0, 999))).shuffle(free)  # noqa: S311 - an order, no secret
    count = draw(st.integers(1, min(4, len(free))))
    return {
        "owner": "ml-platform",
        "nodes": nodes,
        "images": {
            "server": f"tensorflow/serving:{draw(st.sampled_from(IMAGES))}-gpu",
            "envoy": "envoyproxy/envoy:v1.40.0",
        },
        "pools": [pool(draw, p, free[p::count]) for p in range(count)],
    }


Mistake = Callable[[Draw, Config], str]
"""Makes one mistake in a good stack, in place; the path at which it must be told."""
MISTAKES: list[Mistake] = []


def mistake(made: Mistake) -> Mistake:
    MISTAKES.append(made)
    return made


def some(draw: Draw, config: Config, kind: str) -> tuple[str, Any]:
    """One of the nodes or pools, and its path."""
    position = draw(st.integers(0, len(config[kind]) - 1))
    return f"{kind}[{position}]", config[kind][position]


def some_model(draw: Draw, config: Config) -> tuple[str, Any]:
    path, found = some(draw, config, "pools")
    position = draw(st.integers(0, len(found["models"]) - 1))
    return f"{path}.models[{position}]", found["models"][position]


@mistake
def a_slot_has_two_owners(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "pools")
    found["slots"].append(copy.deepcopy(found["slots"][0]))
    return f"{path}.slots[{len(found['slots']) - 1}].gpus[0]"


@mistake
def a_slot_that_does_not_exist(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "pools")
    found["slots"][0]["gpus"].append(draw(st.sampled_from([9, "0:6", "9:0", -1, "gpu0", True, None, 1.0])))
    if found["slots"][0]["gpus"][-1] == "0:6":  # there, where GPU 0 is in seven parts
        found["slots"][0]["gpus"][-1] = "15:6"
    return f"{path}.slots[0].gpus[{len(found['slots'][0]['gpus']) - 1}]"


@mistake
def a_node_that_does_not_exist(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "pools")
    found["slots"][0]["node"] = "gpu-99"
    return f"{path}.slots[0].node"


@mistake
def sizes_that_do_not_lead_to_the_maximum(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "pools")
    sizes = draw(st.sampled_from([[1, 8], [8, 4, 32], [32, 32], [0, 32], [64]]))
    found["batching"] = {"max_batch_size": 32, "batch_timeout_micros": 1, "allowed_batch_sizes": sizes}
    found |= {"unbatched": False, "threads": {"intra_op": 4, "inter_op": 2}}
    return f"{path}.batching.allowed_batch_sizes" + ("[0]" if sizes[0] == 0 else "")


@mistake
def a_batch_that_never_fills(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "pools")
    found |= {"batching": {"max_batch_size": 64, "batch_timeout_micros": 1}, "unbatched": False}
    found["threads"] |= {"grpc_max": draw(st.integers(1, 40)), "rest": 23}
    return f"{path}.threads"


@mistake
def more_memory_than_the_node_has(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "nodes")
    found["memory_mib"] = draw(st.integers(1024, 3000))
    return f"{path}.memory_mib"


@mistake
def an_image_that_does_not_fit(draw: Draw, config: Config) -> str:
    tags = ["latest-gpu", "2.14.1", "2.15.0-gpu", "2.3.0-gpu", "2.14-gpu", "nightly-gpu"]
    config["images"]["server"] = f"tensorflow/serving:{draw(st.sampled_from(tags))}"
    return "images.server"


@mistake
def a_driver_that_is_too_old(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "nodes")
    found["driver"] = draw(st.sampled_from(["440.33", "418.87.00", "450.80.01"]))
    return f"{path}.driver"


@mistake
def a_label_on_a_version_that_is_not_kept(draw: Draw, config: Config) -> str:
    path, found = some_model(draw, config)
    found |= {"versions": {"specific": [3, 4]}, "labels": {"old": draw(st.sampled_from([1, 2, 5]))}}
    return f"{path}.labels.old"


@mistake
def two_policies_at_once(draw: Draw, config: Config) -> str:
    path, found = some_model(draw, config)
    found |= {"versions": {"latest": 1, "all": True}, "labels": {}}
    return f"{path}.versions"


@mistake
def a_path_that_cannot_be_mounted(draw: Draw, config: Config) -> str:
    path, found = some_model(draw, config)
    wrong = ["models/m", "~/m", "s3://b/m", "/srv/a:b", "/srv/m/7", "/", "", "/srv/../m", "./models/m"]
    found["path"] = draw(st.sampled_from([*wrong, "/srv/<model>", "/srv/CHANGE_ME"]))
    return f"{path}.path"


@mistake
def two_models_of_one_name(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "pools")
    twin = {"name": found["models"][0]["name"], "path": "/srv/other"}
    found["models"].append(twin)
    return f"{path}.models[{len(found['models']) - 1}].name"


@mistake
def a_gpu_that_stands_twice(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "nodes")
    if "hardware" in found:
        found["gpu_uuids"][3] = found["gpu_uuids"][0]
        return f"{path}.gpu_uuids[3]"
    extra = copy.deepcopy(found["gpus"][0])
    extra.pop("cpus", None)
    extra.pop("mig", None)
    found["gpus"].append(extra | {"index": 9})
    return f"{path}.gpus[{len(found['gpus']) - 1}].uuid"


@mistake
def two_nodes_at_one_address(draw: Draw, config: Config) -> str:
    _, found = some(draw, config, "nodes")
    twin = copy.deepcopy(found) | {"name": "twin", "docker": {"endpoint": "ssh://twin"}}
    config["nodes"].append(twin)
    return f"nodes[{len(config['nodes']) - 1}].address"


@mistake
def two_nodes_on_one_engine(draw: Draw, config: Config) -> str:
    _, found = some(draw, config, "nodes")
    twin = copy.deepcopy(found) | {"name": "twin", "address": "twin"}
    twin["docker"]["endpoint"] = twin["docker"]["endpoint"].replace("deploy@", "me@") + ":22"
    config["nodes"].append(twin)
    return f"nodes[{len(config['nodes']) - 1}].docker.endpoint"


@mistake
def a_subnet_that_is_not_ours(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "nodes")
    found["subnet"] = draw(
        st.sampled_from(["8.8.8.0/24", "172.29.80.0/25", "172.29.80.1/24", "::/64", "x", ""])
    )
    return f"{path}.subnet"


@mistake
def sharing_in_prod(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "pools")
    key = draw(st.sampled_from(["sharing", "all_gpus"]))
    found[key] = True
    return f"{path}.{key}"


@mistake
def a_fraction_that_is_none(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "pools")
    found["gpu_memory"] = {"fraction": draw(st.sampled_from([0, 0.0, 0.96, 1.2, -1, "0.5"]))}
    return f"{path}.gpu_memory.fraction"


@mistake
def a_port_for_two(draw: Draw, config: Config) -> str:
    first, second = draw(st.sampled_from([("rest_port", "grpc_port"), ("grpc_port", "metrics_port")]))
    config["front_end"] = {first: 9000, second: 9000}
    return f"front_end.{second}"


@mistake
def a_secret_in_an_option(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "nodes")
    found["docker"]["ssh_options"] = ["-o", draw(st.sampled_from(["token=abc", "password=abc"]))]
    return f"{path}.docker.ssh_options[1]"


@mistake
def a_flag_that_no_version_has(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "pools")
    key = draw(st.sampled_from(["shared_model", "gpu_memory_fraction", "max_batch_size", "num_threads"]))
    found["server"] = {key: 1}
    return f"{path}.server.{key}"


@mistake
def a_former_name_that_is_still_there(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, draw(st.sampled_from(["nodes", "pools"])))
    found["renamed_from"] = found["name"]
    return f"{path}.renamed_from"


@mistake
def a_profile_that_the_card_lacks(draw: Draw, config: Config) -> str:
    path, found = some(draw, config, "nodes")
    found.pop("hardware", None)
    found.pop("gpu_uuids", None)
    profile = draw(st.sampled_from(["1g.5gb", "3g.20gb", "8g.80gb", "half", ""]))
    part = {"uuid": stacks.mig_uuid(0), "profile": profile}
    found["gpus"] = [{"index": 0, "uuid": stacks.uuid(0), "model": "a100-80g", "mig": [part]}]
    return f"{path}.gpus[0].mig[0].profile"


@mistake
def a_key_that_nobody_knows(draw: Draw, config: Config) -> str:
    objects = [(path, found) for path, found in places(config) if isinstance(found, dict)]
    path, found = draw(st.sampled_from(objects))
    key = "col-our" if path.endswith(".labels") else "colour"
    found[key] = draw(st.sampled_from([1, None, [], {}, "x"]))
    return f"{path}.{key}".lstrip(".")


@mistake
def a_value_of_the_wrong_kind(draw: Draw, config: Config) -> str:
    path: str = draw(st.sampled_from([place for place, _ in places(config) if place]))
    config |= stacks.changed(config, path, draw(st.sampled_from([{"a-b": 1}, [{}], -7.5])))
    return path


def places(value: object, path: str = "") -> list[tuple[str, Any]]:
    """Every place of a stack file as settings write it, with what stands there."""
    below: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        below = [place for key, item in value.items() for place in places(item, f"{path}.{key}".lstrip("."))]
    elif isinstance(value, list):
        below = [place for index, item in enumerate(value) for place in places(item, f"{path}[{index}]")]
    return [(path, value), *below]


@st.composite
def bad(draw: Draw) -> tuple[Config, str]:
    """A stack with one mistake, and where that is."""
    config = draw(good())
    made = draw(st.sampled_from(MISTAKES))
    return config, made(draw, config)


@settings(max_examples=100)
@given(good())
def test_a_good_stack_comes_to_one_instance_for_each_slot(config: Config) -> None:
    before = copy.deepcopy(config)
    found = load_settings(config, stacks.SOURCE)
    plan = make_plan(found, stack="test", project_folder="/p")
    wanted = [slot for entry in config["nodes"] for slot in slots(entry)]
    assert len(plan.instances) == len({instance.name for instance in plan.instances}) == len(wanted)
    assert len({instance.slot.uuid for instance in plan.instances}) == len(wanted)
    for planned in plan.nodes:
        assert len({instance.address for instance in planned.instances}) == len(planned.instances)
    outputs = stack_outputs(found, plan)
    assert {name for instance in outputs.instances for name in instance.models} == {
        name.name for name in outputs.models
    }
    assert config == before


@settings(max_examples=500)
@given(bad())
def test_one_mistake_is_refused_where_it_stands_and_nothing_is_touched(found: tuple[Config, str]) -> None:
    config, path = found
    before = copy.deepcopy(config)
    with pytest.raises(SettingsError, match="; nothing was changed\n") as caught:
        load_settings(config, stacks.SOURCE)
    told = [problem.path for problem in caught.value.problems]
    assert [place for place in told if place == path or place.startswith((f"{path}.", f"{path}["))], told
    assert config == before


def test_every_kind_of_mistake_is_one() -> None:
    assert len({made.__name__ for made in MISTAKES}) == len(MISTAKES) >= 25
