"""gpu-memory and gpu-memory-shared: what a server reads, and what fits a card together."""

import pytest

from tests import stacks
from tests.mock_engine import Deploy
from tests.policies.good import UNKNOWN, Declared, deployment, exporter, front_end, publisher, server, uuid
from tests.policies.judge import messages, violations
from tests.policies.made import containers

RULE = "gpu-memory"
SHARED = "gpu-memory-shared"
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
FRACTION = "per_process_gpu_memory_fraction"


def told(growth: str | None = None, fraction: str | None = None, gpu: int = 0, name: str = "a") -> Declared:
    declared = server(gpu, name).changed("envs", [f"{GROWTH}={growth}"] if growth is not None else [])
    flags = [*declared.props["command"], *([f"--{FRACTION}={fraction}"] if fraction is not None else [])]
    return declared.changed("command", flags)


@pytest.mark.parametrize(
    ("growth", "fraction"),
    [("true", None), ("true", "0"), ("true", "0.5"), ("false", "0.95"), (None, "0.1"), (None, ".5")],
)
def test_growth_or_a_fraction_or_both_are_accepted(growth: str | None, fraction: str | None) -> None:
    assert violations(RULE, told(growth, fraction), front_end(), exporter(), publisher()) == []


@pytest.mark.parametrize(
    ("growth", "fraction", "said"),
    [
        (None, None, f"a: {GROWTH}: unset: by default it takes all memory"),
        ("false", None, f"a: {GROWTH}: false: by default it takes all memory"),
        ("false", "0", f"a: {GROWTH}: false: by default it takes all memory"),
        ("True", None, f"a: {GROWTH}: True: TensorFlow ignores what is not exactly true or false"),
        ("1", "0.5", f"a: {GROWTH}: 1: TensorFlow ignores"),
        ("true", "0.96", f"a: --{FRACTION}: 0.96: is no number above 0 and at most 0.95"),
        (None, "1.2", "1.2: is no number"),
        (None, "-0.5", "-0.5: is no number"),
        ("true", "half", "half: is no number"),
        ("true", "nan", "nan: is no number"),
        (None, "-0.0001", "-0.0001: is no number"),
    ],
)
def test_what_the_server_does_not_read_is_refused(
    growth: str | None, fraction: str | None, said: str
) -> None:
    found = messages(RULE, told(growth, fraction))
    assert said in found[0]
    assert "\n  Fix: " in found[0]


def test_the_last_of_two_fractions_counts() -> None:
    twice = told(None, "0.5")
    assert messages(RULE, twice.changed("command", [*twice.props["command"], f"--{FRACTION}=2"])) != []


@pytest.mark.parametrize("name", ["TF_GPU_MEMORY_FRACTION", "TF_GPU_ALLOW_GROWTH", "GPU_MEMORY_FRACTION"])
def test_an_invented_variable_is_named(name: str) -> None:
    [found] = messages(RULE, told("true").changed("envs[1]", f"{name}=0.5"))
    assert found.startswith(f"a: variable {name}: no TensorFlow Serving reads it\n  Fix: the ")


@pytest.mark.parametrize("flag", ["gpu_memory_fraction", "allow_growth", "gpu_memory_growth"])
def test_an_invented_flag_is_named(flag: str) -> None:
    [found] = messages(RULE, told("true").changed("command[1]", f"--{flag}=0.5"))
    assert f"a: --{flag}=0.5: no version has this flag" in found


def test_other_inventions_are_none_of_its_business() -> None:
    about_batching = told("true").changed("envs[1]", "TF_SERVING_MAX_BATCH_SIZE=8")
    assert messages(RULE, about_batching) == []
    assert messages(RULE, told("true").changed("command[1]", "--no_such_flag=8")) == []


def test_a_server_whose_gpus_are_not_known_has_to_say_it_too() -> None:
    assert "unset: by default" in messages(RULE, told().changed("deviceRequests", UNKNOWN))[0]


@pytest.mark.parametrize("path", ["envs", "command[3]"])
def test_what_may_be_in_an_unknown_part_is_not_called_unset(path: str) -> None:
    [found] = messages(RULE, told().changed(path, UNKNOWN))
    assert "is not known in preview" in found


def test_a_server_without_a_gpu_has_nothing_to_say() -> None:
    assert messages(RULE, told().without("deviceRequests")) == []


@pytest.mark.parametrize(
    ("path", "where"), [("envs[0]", "envs[0]"), ("envs", "envs"), ("command[3]", "command[3]")]
)
def test_memory_that_is_not_known_in_preview_is_refused_by_resource(path: str, where: str) -> None:
    [found] = violations(RULE, told("true").changed(path, UNKNOWN))
    assert found.resource == "a"
    assert f"GPU memory of a is not known in preview: {where}" in found.message


def test_a_pod_that_is_not_known_in_preview_is_refused_and_not_called_greedy() -> None:
    [found] = messages(RULE, deployment().changed("spec.template", UNKNOWN))
    assert found.startswith("GPU memory of main is not known in preview: spec.template")


def test_it_holds_on_kubernetes_too() -> None:
    env = "spec.template.spec.containers[0].env"
    assert messages(RULE, deployment()) == []
    [found] = messages(RULE, deployment().changed(env, []))
    assert found.startswith(f"main/server: {GROWTH}: unset")


@pytest.mark.parametrize(("parts", "fits"), [((0.45, 0.45), True), ((0.5, 0.45), True), ((0.5, 0.5), False)])
def test_fractions_on_one_gpu_leave_room_for_contexts(parts: tuple[float, float], fits: bool) -> None:
    both = [told("true", str(part), name=name) for part, name in zip(parts, "ab", strict=True)]
    found = messages(SHARED, *both, environment="staging")
    assert (found == []) == fits
    if not fits:
        assert f"b: --{FRACTION}: 0.5 (a) + 0.5 (b) on GPU {uuid(0)} is 1.0: above 0.95" in found[0]


@pytest.mark.parametrize(
    ("count", "each", "slot_mib", "most"),
    [
        (10, "0.075", None, None),
        (10, "0.0751", None, "0.75"),
        (3, "0.31", None, "0.925"),
        (10, "0.0875", "81920", None),
        (10, "0.0876", "81920", "0.875"),
        (2, "0.44", "16384", "0.875"),
        (2, "0.48", "81920", "0.95"),
        (2, "0.475", "0", None),
    ],
)
def test_each_further_sharer_takes_room_for_its_context(
    count: int, each: str, slot_mib: str | None, most: str | None
) -> None:
    labels = {} if slot_mib is None else {"slot_mib": slot_mib}
    sharers = [told("true", each, name=f"s{number}").labelled(**labels) for number in range(count)]
    said = "".join(messages(SHARED, *sharers))
    assert (said == "") if most is None else (f": above {most} no room is left" in said)


def test_the_settings_leave_the_room_for_contexts_that_the_pack_asks_for(deploy: Deploy) -> None:
    for model, fraction in (("t4", 0.43), ("a100-80g", 0.475)):
        config = stacks.changed(stacks.sharing(), "nodes[0].gpus[0].model", model)
        for pool in (0, 1):
            config = stacks.changed(config, f"pools[{pool}].slots[0].gpus", [0])
            config = stacks.changed(config, f"pools[{pool}].gpu_memory.fraction", fraction)
        assert messages(SHARED, *containers(deploy, config)) == []
        more = stacks.changed(config, "pools[0].gpu_memory.fraction", fraction + 0.01)
        assert "CUDA contexts need the rest" in stacks.refusal(more)[0]


def test_a_sharer_without_a_fraction_is_named() -> None:
    [found] = messages(SHARED, told("true", "0.4"), told("true", name="b"))
    assert f"b: --{FRACTION}: unset: it shares GPU {uuid(0)} with a\n" in found


def test_of_three_sharers_the_one_without_a_fraction_is_the_problem() -> None:
    some = [told("true", "0.5", name="a"), told("true", "0.5", name="b"), told("true", name="c")]
    [found] = messages(SHARED, *some)
    assert f"c: --{FRACTION}: unset: it shares GPU {uuid(0)} with a, b\n" in found


def test_an_index_is_a_card_of_its_machine_and_a_uuid_the_same_everywhere() -> None:
    by_index = told("true").without("deviceRequests").without("labels").changed("gpus", "device=0")
    assert messages(SHARED, by_index, by_index.named("b").on("ssh://deploy@gpu-02.example.com")) == []
    assert len(messages(SHARED, by_index, by_index.named("b"))) == 2
    halves = [told("true", "0.5", name="a"), told("true", "0.5", name="b").on("tcp://10.0.0.1:2376")]
    assert "is 1.0: above 0.95" in messages(SHARED, *halves)[0]


def test_servers_on_cards_of_their_own_need_no_fraction() -> None:
    assert messages(SHARED, told("true"), told("true", gpu=1, name="b")) == []


def sized(models: object, slot: object = 81920, **more: object) -> Declared:
    labels: dict[str, object] = {"models_mib": models, "slot_mib": slot, **more}
    return told("true").labelled(**{name: str(value) for name, value in labels.items()})


def test_models_fit_their_slot_while_versions_change_where_labels_tell_the_sizes() -> None:
    assert messages(SHARED, sized(77824)) == []  # 95 % of it
    [found] = messages(SHARED, sized(77825))
    assert found.startswith(
        "a: models: 77825 MiB while new versions replace old ones: of its GPU it has 77824 MiB\n  Fix: "
    )


def test_what_tensorflow_leaves_alone_is_taken_as_it_is_said() -> None:
    assert messages(SHARED, sized(80384, slot_reserve_mib=1536)) == []
    assert "it has 80384 MiB" in messages(SHARED, sized(80385, slot_reserve_mib=1536))[0]


def test_a_server_has_its_own_fraction_of_the_slot() -> None:
    def half(models: int) -> Declared:
        command = [*server().props["command"], f"--{FRACTION}=0.5"]
        return sized(models, slot_reserve_mib=1536).changed("command", command)

    assert messages(SHARED, half(40960)) == []
    assert "it has 40960 MiB" in messages(SHARED, half(40961))[0]


def test_sizes_are_read_from_whatever_publishes_the_files_of_its_pool_there() -> None:
    large = {"pool": "main", "models_mib": "90000", "slot_mib": "81920"}
    publishing = publisher(**large)
    [found] = violations(SHARED, told("true"), publishing)
    assert found.resource == "a"
    assert "models: 90000 MiB" in found.message
    assert messages(SHARED, sized(1000), publishing) == []
    assert messages(SHARED, told("true"), publishing.labelled(pool="other")) == []
    assert messages(SHARED, told("true"), publishing.on("ssh://deploy@gpu-02.example.com")) == []
    assert messages(SHARED, told("true"), exporter().labelled(**large)) == []
    poolless = told("true").without("labels").changed("labels", [])
    assert messages(SHARED, poolless, publisher(models_mib="90000", slot_mib="81920")) == []


@pytest.mark.parametrize(
    ("models", "slot"), [("many", "81920"), ("90000", "large"), ("90000", ""), ("", "81920"), ("-1", "-2")]
)
def test_labels_that_tell_no_size_are_passed_over(models: str, slot: str) -> None:
    assert messages(SHARED, sized(models, slot)) == []


def test_pods_are_judged_by_the_labels_of_their_workload() -> None:
    sizes = {"tf-serving.models-mib": "90000", "tf-serving.slot-mib": "81920"}
    [found] = messages(SHARED, deployment().changed("metadata.labels", sizes))
    assert found.startswith("main/server: models: 90000 MiB")


def test_the_sizes_of_a_stack_file_are_judged_on_what_is_made_of_it(deploy: Deploy) -> None:
    fits = containers(deploy, stacks.changed(stacks.with_hardware(), "pools[0].models[0].gpu_mib", 20000))
    assert messages(SHARED, *fits) == []

    def less(one: Declared) -> Declared:
        is_server = one.name.endswith("-server")
        command = [*one.props["command"], f"--{FRACTION}=0.4"] if is_server else None
        return one.changed("command", command) if is_server else one

    found = violations(SHARED, *map(less, fits))
    servers = [one.name for one in fits if one.name.endswith("-server")]
    assert [one.resource for one in found] == servers != []
    assert (
        "models: 40000 MiB while new versions replace old ones: of its GPU it has 32768 MiB"
        in found[0].message
    )
