"""`batching.config` as the server reads it."""

from components import server_protos
from components.batching_parameters import batching_parameters
from tests import stacks
from tests.stacks import changed, in_staging, one_node, without


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
        "thread_pool_name": "batch_threads",
        "allowed_batch_sizes": [1, 8, 32],
    }


def test_without_allowed_sizes_the_file_names_none() -> None:
    assert "allowed_batch_sizes" not in read(without(one_node(), "pools[0].batching.allowed_batch_sizes"))


def test_a_timeout_of_zero_is_written_and_not_left_to_a_default() -> None:
    (pool,) = stacks.settings(
        changed(in_staging(one_node()), "pools[0].batching.batch_timeout_micros", 0)
    ).pools
    assert pool.batching is not None
    assert "batch_timeout_micros { value: 0 }\n" in batching_parameters(pool.batching)


def test_the_name_of_a_pool_is_not_in_its_file() -> None:
    # Else renaming a pool would replace every container of it.
    assert read(changed(one_node(), "pools[0].name", "vision")) == read(one_node())


def test_splitting_is_written_with_the_size_that_it_splits_into() -> None:
    split = {"enable_large_batch_splitting": True, "max_execution_batch_size": 8}
    found = read(changed(one_node(), "pools[0].batching", one_node()["pools"][0]["batching"] | split))
    assert (found["enable_large_batch_splitting"], found["max_execution_batch_size"]) == (True, 8)
    assert not {"enable_large_batch_splitting", "max_execution_batch_size"} & set(read(one_node()))


def test_padding_of_inputs_is_written_where_it_is_asked_for() -> None:
    padded = changed(one_node(), "pools[0].batching.pad_variable_length_inputs", True)
    assert read(padded)["pad_variable_length_inputs"] is True
