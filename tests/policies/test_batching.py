"""batching: on in prod, a file that the server reads, and batches that can fill."""

import pytest

from tests.policies.good import (
    BATCHING,
    UNKNOWN,
    Declared,
    config_map,
    deployment,
    front_end,
    publisher,
    server,
)
from tests.policies.judge import messages, violations

RULE = "batching"
PATH = "/etc/tf-serving/batching.config"


def judged(*declared: Declared, environment: str = "prod", **config: object) -> str:
    return "\n".join(messages(RULE, *declared, environment=environment, **config))


def without_flags(*names: str) -> Declared:
    flags = [flag for flag in server().props["command"] if flag.partition("=")[0].strip("-") not in names]
    return server().changed("command", flags)


def told(**flags: str) -> Declared:
    declared = without_flags(*flags)
    return declared.changed(
        "command", declared.props["command"] + [f"--{name}={value}" for name, value in flags.items()]
    )


def saying(text: str) -> Declared:
    return server().changed("uploads[1].content", text)


def parameters(**changes: str) -> str:
    """A good file with fields changed, or left out where the value is empty."""
    fields = {
        "max_batch_size": "{ value: 32 }",
        "batch_timeout_micros": "{ value: 2000 }",
        "num_batch_threads": "{ value: 2 }",
        **changes,
    }
    return "".join(f"{name} {value}\n" for name, value in fields.items() if value)


def test_good_servers_are_accepted() -> None:
    assert violations(RULE, server(), front_end(), publisher(), deployment(), config_map()) == []
    assert judged(saying(parameters())) == ""


@pytest.mark.parametrize("value", ["true", "TRUE", "1"])
def test_batching_is_on_however_that_is_spelt(value: str) -> None:
    assert judged(told(enable_batching=value)) == ""
    bare = without_flags("enable_batching")
    assert judged(bare.changed("command", [*bare.props["command"], "--enable_batching"])) == ""


def test_in_prod_batching_is_on_or_said_to_be_impossible() -> None:
    off = without_flags("enable_batching", "batching_parameters_file")
    [found] = violations(RULE, off)
    assert found.resource == "gpu0"
    assert "gpu0: --enable_batching: unset: each request runs alone, and its GPU waits" in found.message
    assert "Fix: set --enable_batching=true and --batching_parameters_file" in found.message
    assert judged(off, environment="staging") == ""
    said = off.changed("command", [*off.props["command"], "--enable_batching=false"])
    assert "gpu0: --enable_batching: false: each request runs alone" in judged(said)
    assert judged(off.labelled(unbatched="true")) == ""


def test_a_file_without_batching_keeps_the_server_from_starting() -> None:
    found = judged(without_flags("enable_batching"), environment="local")
    assert f"--batching_parameters_file={PATH}: without --enable_batching=true the server does not" in found
    assert "does not start" in judged(told(enable_batching="false"), environment="local")


def test_batching_without_a_file_never_fills_a_batch() -> None:
    [found] = messages(RULE, without_flags("batching_parameters_file"))
    assert "gpu0: --batching_parameters_file: unset: batches of up to 1000" in found


def test_a_platform_file_turns_batching_off_unseen() -> None:
    assert "--platform_config_file=/p: the server then ignores" in judged(told(platform_config_file="/p"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_batch_size: 32", "batching.config: 1:17"),
        ("allowed_batch_sizes { value: 8 }", "batching.config: 1:"),
        (parameters() + "max_batch_size { value: 8 }\n", "batching.config: 4:"),
        ("low_priority_max_batch_size { value: 8 }", "batching.config: 1:"),
        ('{"max_batch_size": 32}', "batching.config: 1:1"),
        ("max_batch_size { value: many }", "batching.config: 1:"),
    ],
)
def test_a_file_that_the_server_cannot_read_is_named_with_its_place(text: str, said: str) -> None:
    found = judged(saying(text))
    assert said in found
    assert "the server does not start\n  Fix: write it as `max_batch_size { value: 32 }`" in found


@pytest.mark.parametrize(
    "text",
    [
        "max_batch_size: { value: 32 }, batch_timeout_micros { value: 1 }; num_batch_threads { value: 1 }#",
        parameters(allowed_batch_sizes=": [1, 8, 32]"),
    ],
)
def test_what_text_format_allows_is_accepted(text: str) -> None:
    assert judged(saying(text)) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_batch_size": "{ value: 0 }"}, "max_batch_size: 0: the server refuses it"),
        ({"batch_timeout_micros": "{ value: 0 }"}, "batch_timeout_micros: 0: a batch never waits"),
        ({"batch_timeout_micros": ""}, "batch_timeout_micros: 0: a batch never waits"),
        ({"batch_timeout_micros": "{ value: -1 }"}, "batch_timeout_micros: -1: a batch never waits"),
        ({"max_enqueued_batches": "{ value: 0 }"}, "max_enqueued_batches: 0: no batch may wait"),
        ({"num_batch_threads": ""}, "num_batch_threads: unset: one for each CPU"),
        ({"num_batch_threads": "{ value: 0 }"}, "num_batch_threads: 0: the server does not start"),
        ({"num_batch_threads": "{ value: 17 }"}, "num_batch_threads: 17: above 16, requests find a free"),
        ({"allowed_batch_sizes": ": [1, 8]"}, "allowed_batch_sizes: [1, 8]: the last size must equal"),
        ({"allowed_batch_sizes": ": [1, 32, 8]"}, "allowed_batch_sizes: [1, 32, 8]: must be positive and"),
        ({"allowed_batch_sizes": ": [8, 8, 32]"}, "allowed_batch_sizes: [8, 8, 32]: must be positive and"),
        ({"allowed_batch_sizes": ": [0, 32]"}, "allowed_batch_sizes: [0, 32]: must be positive and"),
        (
            {"max_batch_size": "", "allowed_batch_sizes": ": [32]"},
            "the last size must equal max_batch_size 1000: no model would load",
        ),
        (
            {"enable_large_batch_splitting": "{ value: true }"},
            "max_execution_batch_size: unset: with splitting",
        ),
        (
            {"enable_large_batch_splitting": "{ value: true }", "max_execution_batch_size": "{ value: 33 }"},
            "max_execution_batch_size: 33: exceeds max_batch_size 32",
        ),
        (
            {
                "enable_large_batch_splitting": "{ value: true }",
                "max_execution_batch_size": "{ value: 16 }",
                "allowed_batch_sizes": ": [8, 32]",
            },
            "max_execution_batch_size: 16: is not one of [8, 32]",
        ),
    ],
)
def test_a_number_that_does_not_work_is_named(changes: dict[str, str], said: str) -> None:
    found = judged(saying(parameters(**changes)))
    assert f"gpu0: {PATH}: {said}" in found or said in found
    assert "\n  Fix: " in found


SPLITTING = {"enable_large_batch_splitting": "{ value: true }"}


@pytest.mark.parametrize(
    "changes",
    [
        {"max_batch_size": "{ value: 1 }"},
        {"max_enqueued_batches": "{ value: 1 }"},
        {"num_batch_threads": "{ value: 1 }"},
        {"num_batch_threads": "{ value: 16 }"},
        {"batch_timeout_micros": "{ value: 1 }"},
        {"allowed_batch_sizes": ": [1, 32]"},
        {"allowed_batch_sizes": ": [32]"},
        {**SPLITTING, "max_execution_batch_size": "{ value: 32 }"},
        {**SPLITTING, "max_execution_batch_size": "{ value: 8 }", "allowed_batch_sizes": ": [8, 32]"},
        # Without splitting nobody reads it.
        {"max_execution_batch_size": "{ value: 64 }"},
        {"max_execution_batch_size": "{ value: 16 }", "allowed_batch_sizes": ": [8, 32]"},
    ],
)
def test_numbers_up_to_their_bounds_are_accepted(changes: dict[str, str]) -> None:
    assert judged(saying(parameters(**changes))) == ""


def test_a_size_of_parts_that_is_missing_is_said_once() -> None:
    [found] = messages(RULE, saying(parameters(**SPLITTING, allowed_batch_sizes=": [8, 32]")))
    assert "max_execution_batch_size: unset" in found


def test_how_many_batches_run_at_once_is_a_setting() -> None:
    many = saying(parameters(num_batch_threads="{ value: 17 }"))
    assert judged(many, mostBatchThreads=17.0) == ""


@pytest.mark.parametrize(
    ("grpc", "rest", "fills"), [("16", "16", True), ("16", "15", False), ("31", "0", False)]
)
def test_threads_are_enough_to_fill_a_batch(grpc: str, rest: str, fills: bool) -> None:
    found = judged(told(grpc_max_threads=grpc, rest_api_num_threads=rest))
    assert (found == "") == fills
    assert fills or f"max_batch_size: 32: {grpc} + {rest} requests in flight" in found
    assert fills or "Fix: raise each to 64" in found


def test_without_rest_its_threads_do_not_count() -> None:
    assert "16 + 0 requests in flight" in judged(told(rest_api_port="0", grpc_max_threads="16"))
    unsaid = told(grpc_max_threads="16")
    unsaid = unsaid.changed("command", [one for one in unsaid.props["command"] if "rest_api_port" not in one])
    assert "16 + 0 requests in flight" in judged(unsaid)
    # The image's script says --rest_api_port=8501 by itself.
    assert judged(unsaid.without("entrypoints")) == ""


@pytest.mark.parametrize(("cpus", "fills"), [("0-3", True), ("0-2", False), ("0,2,4", False)])
def test_where_no_threads_are_said_cpus_tell_how_many(cpus: str, fills: bool) -> None:
    unsaid = without_flags("grpc_max_threads", "rest_api_num_threads").changed("cpuSet", cpus)
    found = judged(unsaid)
    assert (found == "") == fills
    assert fills or "12 + 12 requests in flight" in found


def test_where_neither_threads_nor_cpus_are_said_nobody_can_tell() -> None:
    unsaid = without_flags("rest_api_num_threads", "grpc_max_threads").without("cpuSet")
    one_kind = unsaid.changed("command", [*unsaid.props["command"], "--grpc_max_threads=16"])
    assert judged(unsaid) == ""
    assert judged(one_kind) == ""
    assert judged(told(grpc_max_threads="many")) == ""  # another rule's to say


def test_a_file_on_a_volume_is_the_one_that_a_publisher_writes() -> None:
    flags = [flag.replace("/etc/tf-serving", "/config") for flag in server().props["command"]]
    mount = {"type": "volume", "source": "main-config", "target": "/config", "readOnly": True}
    reading = server().changed("command", flags).changed("mounts[1]", mount).without("uploads")
    upload = {"file": "/publish/files/batching.config", "content": parameters(num_batch_threads="")}
    found = judged(reading, publisher().changed("uploads", [upload]))
    assert "gpu0: /config/batching.config: num_batch_threads: unset" in found
    assert judged(reading, publisher().changed("uploads", [upload | {"content": BATCHING}])) == ""
    assert "is on a mount whose files this stack does not write" in judged(reading)
    unknown = publisher().changed("uploads", [upload | {"content": UNKNOWN}])
    found = judged(reading, unknown)
    assert "/config/batching.config: the text of a file of publisher is not known in preview" in found


def test_a_file_that_is_nowhere_is_refused() -> None:
    assert f"--batching_parameters_file={PATH}: is in no upload and on no mount" in judged(
        server().without("uploads[1]")
    )
    nowhere = server().without("uploads[1]").changed("mounts[1]", {"type": "volume", "source": "some"})
    another = server(1).changed("uploads", UNKNOWN)
    assert f"gpu0: --batching_parameters_file={PATH}: is in no upload" in judged(nowhere, another)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("command", "Arguments of gpu0 is not known in preview: command"),
        ("command[2]", "Arguments of gpu0 is not known in preview: command[2]"),
        ("command[4]", "Arguments of gpu0 is not known in preview: command[4]"),
        (
            "uploads[1].content",
            f"{PATH}: the text of a file of gpu0 is not known in preview: uploads[1].content",
        ),
    ],
)
def test_what_is_not_known_in_preview_is_refused_by_resource(path: str, said: str) -> None:
    [found] = violations(RULE, server().changed(path, UNKNOWN))
    assert found.resource == "gpu0"
    assert said in found.message


def test_with_parameters_of_each_model_only_the_threads_are_judged() -> None:
    own = told(enable_per_model_batching_parameters="true")
    text = parameters(batch_timeout_micros="", num_batch_threads="{ value: 99 }")
    for declared in (own, told(enable_per_model_batching_parameters="TRUE")):
        [found] = messages(RULE, declared.changed("uploads[1].content", text))
        assert "num_batch_threads: 99" in found
    for value in ("false", "0"):
        off = told(enable_per_model_batching_parameters=value).changed("uploads[1].content", text)
        assert "batch_timeout_micros: 0" in judged(off)


def test_it_holds_on_kubernetes_too() -> None:
    broken = config_map(parameters(allowed_batch_sizes=": [8]"))
    assert "main/server: /config/batching.config: allowed_batch_sizes: [8]" in judged(deployment(), broken)
    assert "is on a mount whose files this stack does not write" in judged(deployment())
