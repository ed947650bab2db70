"""server-flags: every argument is a flag of this version, with a value that the server reads."""

import pytest

from tests.policies.good import UNKNOWN, Declared, deployment, front_end, publisher, server
from tests.policies.judge import messages, violations

RULE = "server-flags"
ARGS = "spec.template.spec.containers[0].args"


def judged(*declared: Declared) -> str:
    return "\n".join(messages(RULE, *declared))


def with_flag(flag: str) -> Declared:
    """A good server with one argument more."""
    return server().changed("command[8]", flag)


def test_flags_with_values_are_accepted_in_every_form_that_the_server_reads() -> None:
    good = (
        "--model_name=a b",
        "--model_base_path=",
        "--flush_filesystem_caches=FALSE",
        "--enable_model_warmup=1",
        "--load_retry_interval_micros=-1",
        "--per_process_gpu_memory_fraction=.5",
    )
    for flag in good:
        assert violations(RULE, with_flag(flag), front_end(), publisher(), deployment()) == [], flag


def test_a_flag_that_no_version_has_is_refused_with_the_one_that_was_meant() -> None:
    [found] = violations(RULE, with_flag("--enable_batchng=true"))
    assert found.resource == "gpu0"
    assert found.message.startswith("gpu0: --enable_batchng: no version of the server has this flag")
    assert "Fix: did you mean --enable_batching?" in found.message


def test_a_flag_of_a_later_version_is_refused_and_says_since_when_it_is_there() -> None:
    found = judged(with_flag("--enable_grpc_healthcheck_service=true"))
    assert (
        "--enable_grpc_healthcheck_service: TensorFlow Serving 2.14.1 lacks it; since 2.15.1: it would"
        in found
    )
    newer = with_flag("--enable_grpc_healthcheck_service=true").changed(
        "image", "tensorflow/serving:2.19.0-gpu"
    )
    assert judged(newer) == ""


def test_a_flag_that_resembles_none_is_refused_without_a_guess() -> None:
    [found] = messages(RULE, with_flag("--zzzz=1"))
    assert "Fix: remove it, or correct its name" in found


def test_what_belongs_into_the_batching_file_is_no_flag() -> None:
    found = judged(with_flag("--max_batch_size=32"))
    assert "gpu0: --max_batch_size: is no flag of the server" in found
    assert "Fix: write it into the file that --batching_parameters_file names" in found


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        ("--rest_api_timeout_in_ms=30s", "a whole number"),
        ("--rest_api_timeout_in_ms=3.0", "a whole number"),
        ("--rest_api_timeout_in_ms=", "a whole number"),
        ("--per_process_gpu_memory_fraction=half", "a number"),
        ("--enable_model_warmup=yes", "true or false"),
        ("--enable_model_warmup=", "true or false"),
    ],
)
def test_a_value_that_the_server_does_not_parse_is_refused(flag: str, kind: str) -> None:
    name, _, value = flag.partition("=")
    assert f"gpu0: {name}: {value or 'empty'}: is not {kind}: the server would not start" in judged(
        with_flag(flag)
    )


def test_a_value_after_a_space_is_no_value() -> None:
    [found] = messages(RULE, with_flag("--max_num_load_retries").changed("command[9]", "2"))
    assert "gpu0: --max_num_load_retries: has no value" in found
    assert "Fix: write --max_num_load_retries=2" in found


def test_a_value_that_is_missing_altogether_is_described() -> None:
    assert "Fix: write --max_num_load_retries=<a whole number>" in judged(with_flag("--max_num_load_retries"))
    assert "Fix: write --max_num_load_retries=<a whole number>" in judged(with_flag("-max_num_load_retries"))


def test_a_switch_says_true_since_rules_read_its_value() -> None:
    assert "Fix: write --enable_model_warmup=true" in judged(with_flag("--enable_model_warmup"))


def test_one_dash_or_three_are_not_two() -> None:
    for word in ("-max_num_load_retries=2", "---max_num_load_retries=2"):
        found = judged(with_flag(word))
        assert f"gpu0: {word}: a flag begins with two dashes" in found
        assert "Fix: write --max_num_load_retries=2" in found


def test_a_word_that_is_no_flag_is_left_over() -> None:
    found = judged(with_flag("serve").changed("command[9]", "again"))
    assert "gpu0: argument serve: is no flag" in found
    assert "gpu0: argument again: is no flag" in found


def test_a_flag_is_given_once() -> None:
    assert "gpu0: --port: 8502: is given twice, and the last one wins" in judged(with_flag("--port=8502"))


def test_a_word_that_is_no_flag_is_not_given_twice() -> None:
    assert "is given twice" not in judged(with_flag("port"))
    before = with_flag("max_num_load_retries").changed("command[9]", "--max_num_load_retries=2")
    assert "is given twice" not in judged(before)


def test_the_images_own_script_hands_flags_on_and_its_defaults_may_be_overridden() -> None:
    scripted = server().without("entrypoints")
    assert judged(scripted) == ""
    assert "--enable_batchng" in judged(scripted.changed("command[8]", "--enable_batchng=true"))


def test_a_server_that_is_started_by_a_shell_is_judged_by_its_words() -> None:
    shell = server().changed("entrypoints", ["/bin/sh", "-c"])
    start = "cd / && exec /usr/bin/tensorflow_model_server --port=8500 {} 2>&1; echo over"
    assert judged(shell.changed("command", [start.format("--enable_profiler=false")])) == ""
    assert "--enable_batchng" in judged(shell.changed("command", [start.format("--enable_batchng=true")]))
    handed_on = ['exec tensorflow_model_server "$@"', "sh", "--port=8500", "--batchng=1"]
    assert "gpu0: --batchng: no version" in judged(shell.changed("command", handed_on))


@pytest.mark.parametrize("script", ["tensorflow_model_server $FLAGS", "tensorflow_model_server 'open"])
def test_arguments_that_a_shell_makes_up_are_refused(script: str) -> None:
    shell = server().changed("entrypoints", ["/bin/sh", "-c"]).changed("command", [script])
    found = judged(shell)
    assert "gpu0: command: a shell script makes up the server's arguments" in found
    assert "Fix: start tensorflow_model_server itself" in found


def test_what_starts_before_the_server_has_arguments_of_its_own() -> None:
    tied = server().changed("entrypoints", ["numactl", "--membind=0", "tensorflow_model_server"])
    assert judged(tied) == ""


def test_pods_are_judged_alike() -> None:
    bad = deployment().changed(f"{ARGS}[5]", "--enable_batchng=true")
    assert "main/server: --enable_batchng: no version" in judged(bad)


def test_an_argument_that_is_not_known_in_preview_is_refused_by_resource() -> None:
    assert "Arguments of gpu0 is not known in preview: command[8]" in judged(with_flag(UNKNOWN))
    assert "Arguments of gpu0 is not known in preview: command" in judged(
        server().changed("command", UNKNOWN)
    )


def test_where_the_version_is_not_known_a_flag_of_any_version_is_accepted() -> None:
    flagged = with_flag("--enable_grpc_healthcheck_service=true")
    assert judged(flagged.changed("image", UNKNOWN)) == ""
    for version in ("9.9.9", "1.9.0"):
        assert judged(flagged.changed("image", f"tensorflow/serving:{version}-gpu")) == ""


def test_a_secret_in_an_argument_is_not_repeated() -> None:
    assert "hunter2-hunter2" not in judged(with_flag("--db_password=hunter2-hunter2"))
    twice = with_flag("--db_password=hunter2-hunter2").changed("command[9]", "--db_password=hunter2-hunter2")
    assert "--db_password: (hidden): is given twice" in judged(twice)
    assert "hunter2-hunter2" not in judged(twice)
    assert "ghp_" not in judged(with_flag(f"ghp_{'a' * 36}"))


def test_a_label_does_not_exempt_a_server() -> None:
    assert judged(with_flag("--nonsense=1").labelled(exempt=RULE)) != ""
