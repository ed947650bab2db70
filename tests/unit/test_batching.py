"""`batching.config` as the server reads it."""

from components import server_protos
from components.batching import batching_parameters
from tests import stacks
from tests.stacks import changed, one_node, without


def read(config: stacks.Config) -> dict[str, object]:
    (pool,) = stacks.settings(config).pools
    assert pool.batching is not None
    return server_protos.values(server_protos.batching_parameters(batching_parameters(pool.batching)))


def test_every_parameter_is_read_by_the_server() -> None:
    assert read(one_node()) == {
        "max_batch_size": 32,
        "batch_timeout_micros": 2000,
        "num_batch_threads": 2,
        "max_enqueued_batches": 100,
        "thread_pool_name": "main_batch_threads",
        "allowed_batch_sizes": [1, 8, 32],
    }


def test_without_allowed_sizes_the_file_names_none() -> None:
    assert "allowed_batch_sizes" not in read(without(one_node(), "pools[0].batching.allowed_batch_sizes"))


def test_a_timeout_of_zero_is_written_and_not_left_to_a_default() -> None:
    (pool,) = stacks.settings(changed(one_node(), "pools[0].batching.batch_timeout_micros", 0)).pools
    assert pool.batching is not None
    assert "batch_timeout_micros { value: 0 }\n" in batching_parameters(pool.batching)


def test_the_thread_pool_is_named_for_its_pool() -> None:
    assert read(changed(one_node(), "pools[0].name", "vision"))["thread_pool_name"] == "vision_batch_threads"
