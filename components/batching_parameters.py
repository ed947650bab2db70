"""`batching.config`: how one pool's servers batch (servables/tensorflow/session_bundle_config.proto)."""

from components.pool_settings import Batching
from components.text_proto import Value, render, wrapped


def batching_parameters(batching: Batching) -> str:
    """The text of `batching.config` (servables/tensorflow/session_bundle_config.proto of the server)."""
    message: dict[str, Value] = {
        "max_batch_size": wrapped(batching.max_batch_size),
        "batch_timeout_micros": wrapped(batching.batch_timeout_micros),
        "num_batch_threads": wrapped(batching.num_batch_threads),
        "max_enqueued_batches": wrapped(batching.max_enqueued_batches),
        "thread_pool_name": wrapped("batch_threads"),
    }
    # The next two are no wrappers.
    if batching.allowed_batch_sizes:
        message["allowed_batch_sizes"] = batching.allowed_batch_sizes
    if batching.pad_variable_length_inputs:
        message["pad_variable_length_inputs"] = True
    if batching.max_execution_batch_size is not None:
        message["enable_large_batch_splitting"] = wrapped(value=True)
        message["max_execution_batch_size"] = wrapped(batching.max_execution_batch_size)
    return render(message)
