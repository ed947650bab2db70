"""Batching presets: numbers to begin with, below what a pool sets itself."""

import pytest

from components.facts import facts
from components.pool_settings import Batching
from tests import stacks
from tests.stacks import changed, one_node, refusal

BATCHING = "pools[0].batching"


def batching(**given: object) -> Batching:
    (pool,) = stacks.settings(changed(one_node(), BATCHING, given)).pools
    assert pool.batching is not None
    return pool.batching


@pytest.mark.parametrize("name", facts().batching_presets)
def test_a_preset_alone_is_a_whole_batching(name: str) -> None:
    found = batching(preset=name).model_dump(exclude={"preset"})
    assert {key: found[key] for key in facts().batching_presets[name]} == facts().batching_presets[name]


@pytest.mark.parametrize(
    ("name", "at_least", "at_most"), [("image", 5_000, 10_000), ("text", 50_000, 100_000)]
)
def test_a_preset_waits_as_long_as_its_kind_of_model_allows(name: str, at_least: int, at_most: int) -> None:
    assert at_least <= batching(preset=name).batch_timeout_micros <= at_most


@pytest.mark.parametrize("name", facts().batching_presets)
def test_a_preset_has_few_batch_threads(name: str) -> None:
    assert batching(preset=name).num_batch_threads <= 2


def test_what_stands_beside_a_preset_wins() -> None:
    found = batching(preset="text", batch_timeout_micros=1, num_batch_threads=4)
    assert (found.batch_timeout_micros, found.num_batch_threads, found.max_batch_size) == (1, 4, 64)


def test_another_maximum_drops_the_sizes_that_led_to_the_presets_own() -> None:
    found = batching(preset="text", max_batch_size=48)
    assert (found.max_batch_size, found.allowed_batch_sizes) == (48, ())
    assert batching(preset="text", max_batch_size=48, allowed_batch_sizes=[48]).allowed_batch_sizes == (48,)


def test_sizes_that_do_not_lead_to_the_presets_maximum_are_refused() -> None:
    config = changed(one_node(), BATCHING, {"preset": "text", "allowed_batch_sizes": [8]})
    assert refusal(config) == [
        f"{BATCHING}.allowed_batch_sizes: [8]: the last size must equal max_batch_size 64"
    ]


def test_the_preset_itself_is_not_in_the_plan_twice() -> None:
    written = changed(one_node(), BATCHING, dict(facts().batching_presets["image"]))
    named = changed(one_node(), BATCHING, {"preset": "image"})
    assert stacks.arguments(written) == stacks.arguments(named)


def test_an_unknown_preset_is_told_with_those_there_are() -> None:
    said = refusal(changed(one_node(), BATCHING, {"preset": "txt"}))
    assert said[0] == f"{BATCHING}.preset: 'txt': input should be 'image', 'text' or 'throughput'"
    assert all(line.startswith(f"{BATCHING}.") for line in said)


def test_a_preset_of_the_wrong_kind_is_no_traceback() -> None:
    values: tuple[object, ...] = (None, 1, [], {})
    for value in values:
        config = changed(one_node(), BATCHING, {"preset": value})
        assert all(problem.path.startswith(BATCHING) for problem in stacks.problems(config))
