import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bench import batching, policies, proxies, results, stacks
from bench.__main__ import PARTS, named
from bench.clients import Load
from bench.flat import flat_program
from bench.flat_kubernetes import kubernetes_program, registered
from bench.pairs import Candidate, Measured, Spread, added, compare, cpu_seconds, pairs, table
from bench.proxy_processes import DIRECT, HAPROXY, MINIMAL, OURS, QUIET
from bench.simulated import Setting
from bench.tensors import predict_request, requests
from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.stack_file import load_settings
from tests.mock_engine import Engine, run_program

Leaf = tuple[object, ...]


def _leaves(engine: Engine) -> dict[str, Leaf]:
    found = [each for each in engine.resources if not each.type.startswith("tf-serving:")]
    names = {each.urn: each.name for each in found}
    return {
        each.name: (
            each.type,
            each.inputs,
            names.get(each.provider.rpartition("::")[0]),
            sorted(names[urn] for urn in each.dependencies if urn in names),
            each.replace_on_changes,
            each.delete_before_replace,
            each.timeouts,
        )
        for each in found
    }


def test_the_flat_program_registers_our_leaf_resources_with_the_same_inputs_and_dependencies() -> None:
    config = stacks.fleet(2)

    def ours() -> dict[str, Any]:
        settings = load_settings(config, "bench")
        ServingDeployment(
            "serving", ServingDeploymentArgs(settings=settings, stack="bench", project_folder="/srv/project")
        )
        return {}

    def flat() -> dict[str, Any]:
        exec(flat_program_text, {})  # noqa: S102 - it is ours
        return {}

    flat_program_text = flat_program(config, "bench")
    expected = _leaves(run_program(ours))
    assert len(expected) >= 20
    assert _leaves(run_program(flat)) == expected


def test_a_word_stands_for_a_part_or_for_all_of_its_file() -> None:
    assert named(["preview"]) == ["preview-1", "preview-10", "preview-100"]
    assert named(["preview-10", "plan"]) == ["preview-10", "plan"]
    assert named([]) == list(PARTS)


def test_a_part_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(SystemExit, match=r"no part 'previw'; parts are plan, preview-1"):
        named(["previw"])


@pytest.mark.parametrize("typed", [True, False])
def test_the_flat_program_for_a_cluster_registers_our_manifests_with_the_same_dependencies(
    typed: bool,
) -> None:
    config = stacks.on_cluster()
    text = kubernetes_program(config, "bench", typed=typed)

    def flat() -> dict[str, Any]:
        exec(text, {})  # noqa: S102 - it is ours
        return {}

    expected = _leaves(registered(config, "bench"))
    assert len(expected) >= 15
    assert _leaves(run_program(flat)) == expected


def load(rate: float = 1000, p50: float = 1, p99: float = 2, failed: int = 0) -> Load:
    return Load(rate=rate, p50_ms=p50, p99_ms=p99, failed=failed, requests=round(rate))


def measured(*loads: Load, cpu: float = 100) -> Measured:
    return Measured(loads, (cpu,) * len(loads))


def test_candidates_are_measured_in_turn_and_every_other_round_the_other_way_round() -> None:
    order: list[str] = []

    def candidate(name: str) -> Candidate:
        def measure() -> Load:
            order.append(name)
            return load()

        return Candidate(name, measure)

    found = compare([candidate("a"), candidate("b")], 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(each.loads) for name, each in found.items()} == {"a": 3, "b": 3}


def test_a_ratio_is_of_the_two_of_one_round() -> None:
    first, second = measured(load(90), load(10), load(50)), measured(load(100), load(20), load(50))
    assert pairs(first, second, proxies.rate) == Spread(0.9, 0.5, 1.0)
    assert added(first, second, proxies.rate) == Spread(-10, -10, 0)
    assert Spread(0.9, 0.5, 1.0).text() == "0.90 (0.50 to 1.00)"


def test_the_time_of_a_process_counts_what_it_started() -> None:
    with subprocess.Popen(["sh", "-c", "while :; do :; done & wait"], start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 20
            while cpu_seconds(process.pid) < 0.05 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert 0.05 <= cpu_seconds(process.pid) < 20
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_table_has_a_rule_below_its_head() -> None:
    assert table(["a", "b"], [["1", "2"]]) == ["| a | b |", "|---|---|", "| 1 | 2 |", ""]


def compared(own: Load, minimal: Load) -> dict[str, Measured]:
    """Measurements of proxies, as if each was measured twice."""
    others = {DIRECT: load(p50=0.2), QUIET: load(950), HAPROXY: load(4000, p50=0.5)}
    both = {OURS: own, MINIMAL: minimal, **others}
    return {name: measured(each, each, cpu=25 if name == HAPROXY else 150) for name, each in both.items()}


def test_goals_that_were_met_are_said_so() -> None:
    few = compared(load(p50=0.7, p99=1.2), load(p50=0.6, p99=1.0))
    many = compared(load(900), load(1000))
    assert proxies.goals(few, many) == (
        "Ours, over REST: 0.90 of the minimal Envoy's requests/s (wanted: 0.90 or more), "
        "1.20 of its p99 with one request in flight (wanted: 1.20 or less), "
        "0.50 ms added at p50 (wanted: 0.50 or less). "
        "With errors alone in its log it does 0.95 of the minimal one's requests/s, which logs nothing."
    )


def test_goals_that_were_missed_are_said_so() -> None:
    few = compared(load(p50=0.8, p99=1.3), load(p50=0.6, p99=1.0))
    assert proxies.goals(few, compared(load(890), load(1000))).startswith(
        "Ours, over REST: 0.89 of the minimal Envoy's requests/s (wanted: 0.90 or more; missed), "
        "1.30 of its p99 with one request in flight (wanted: 1.20 or less; missed), "
        "0.60 ms added at p50 (wanted: 0.50 or less; missed)."
    )


def test_what_haproxy_would_save_is_said_in_cores_and_milliseconds() -> None:
    found = compared(load(1000, p50=0.7), load(1000))
    assert proxies.said_of_haproxy(found, found) == (
        "HAProxy does 4.0 x the requests/s of our Envoy on one core: 25 instead of 150 us of CPU a request. "
        "At 1,000 requests/s it would save 0.12 of a core, and 0.20 ms of each request."
    )


@pytest.mark.parametrize(
    ("instances", "setting", "clients", "most"),
    [
        (1, Setting(max_batch=None), 8, 1000 / 22),
        (4, Setting(max_batch=8), 128, 4 * 8 * 1000 / 36),  # every batch full
        (4, Setting(max_batch=8), 8, 4 * 2 * 1000 / 24),  # two clients at each instance
        (1, Setting(max_batch=8, allowed=(8,)), 4, 4 * 1000 / 36),  # executed as if it were full
    ],
)
def test_the_model_allows_full_batches_of_as_many_as_there_are_clients(
    instances: int, setting: Setting, clients: int, most: float
) -> None:
    assert batching.most(instances, setting, clients) == pytest.approx(most)


def test_the_ideal_stays_below_what_the_client_can_do_and_a_batch_takes_20_ms() -> None:
    assert all(batching.most(*compared) < 1000 for compared in batching.COMPARED)
    assert batching.A_MS + batching.B_MS >= 20


@pytest.mark.parametrize(("share", "said"), [(0.95, "(wanted: 95% or more)"), (0.94, "or more; missed)")])
def test_less_than_95_percent_of_the_possible_ratio_is_said(share: float, said: str) -> None:
    ideal = [batching.most(*compared) for compared in batching.COMPARED]
    loads = [load(rate * (share if number else 1)) for number, rate in enumerate(ideal)]
    assert said in list(batching.compared(loads))[-1]


def test_a_batching_file_holds_its_setting() -> None:
    assert Setting(max_batch=4, allowed=(2, 4), timeout_ms=0.5, threads=3).text().splitlines() == [
        "max_batch_size { value: 4 }",
        "batch_timeout_micros { value: 500 }",
        "num_batch_threads { value: 3 }",
        "max_enqueued_batches { value: 100 }",
        "allowed_batch_sizes: 2",
        "allowed_batch_sizes: 4",
    ]


def test_a_tensor_is_sent_as_text_and_as_four_bytes_a_float() -> None:
    text, binary = requests(1000)
    assert 7 * 1000 < text.size < 10 * 1000
    assert 4000 < binary.size < 4100
    assert predict_request(b"\0\0\x80?", 1).endswith(b"\0\0\x80?")


DOCUMENT = """A text.

<!-- said: One -->
stale
<!-- end -->

<!-- measured: Two -->
<!-- end -->
"""


def test_a_document_quotes_a_section_or_its_sentences() -> None:
    one = "Measured today.\n\nWith one:\n\n| a |\n|---|\n\nIt is fast."
    assert results.quoted(DOCUMENT, {"One": one, "Two": "| b |"}) == (
        "A text.\n\n<!-- said: One -->\n\nIt is fast.\n\n<!-- end -->\n\n"
        "<!-- measured: Two -->\n\n| b |\n\n<!-- end -->\n"
    )


def test_quoting_twice_changes_nothing() -> None:
    once = results.quoted(DOCUMENT, {"One": "It is fast."})
    assert results.quoted(once, {"One": "It is fast."}) == once


@pytest.mark.parametrize("file", results.QUOTING, ids=lambda file: file.name)
def test_documents_quote_sections_that_a_part_writes(file: Path) -> None:
    titles = {title for _, _, title in re.findall(r"(<!-- (measured|said): (.+) -->)", file.read_text())}
    assert titles
    assert titles <= {part.title for part in PARTS.values()}


def test_what_the_rules_add_is_said_of_the_two_runs_of_a_round() -> None:
    assert policies.rules_add([11, 23], [10, 20], 1000) == (
        "`empty` to `none` is the pack's start-up. The rules take the preview to 1.12 of that "
        "(wanted: 1.15 or less), 2.0 ms for each of 1000 resources."
    )
    assert "(wanted: 1.15 or less; missed)" in policies.rules_add([12], [10], 10)


def test_the_steepest_rule_decides_whether_all_are_linear() -> None:
    assert policies.linearity({"flat": 9.0, "steep": 10.5}) == (
        "With ten times the resources a rule takes 10.5 times as long or less "
        "(steep; 10 is linear, wanted: 13 or less)."
    )
    assert "13 or less; missed" in policies.linearity({"square": 100.0})
