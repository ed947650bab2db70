"""Which answers Envoy does not pass on but asks another instance for."""

from collections.abc import Mapping

from components.envoy_config import INTERNAL_ERRORS, Config, extension, matches, seconds, try_timeout_s
from components.front_end_plan import FrontEndPlan, PoolPlan

_NUM_RETRIES = 2
_NOT_FOUND = "5"


def rest_retries(front_end: FrontEndPlan) -> Config:
    """The policy for REST."""
    # A full batching queue: another GPU may have room. A GPU that fails: another may be well.
    return _policy(front_end, _NUM_RETRIES, "retriable-status-codes", {"retriable_status_codes": [503, 500]})


def grpc_retries(front_end: FrontEndPlan) -> Config:
    """The policy for gRPC."""
    return _grpc_policy(front_end, _NUM_RETRIES, INTERNAL_ERRORS)


def rest_retries_of(front_end: FrontEndPlan, pool: PoolPlan) -> Config:
    """The part of a route over REST to the instances that have a version, while a release is under way.

    One that was moved away says that it has no such version, until Envoy's check has seen it.
    """
    if pool.only is None:
        return {}
    codes = {"retriable_status_codes": [503, 500, 404]}
    return {"retry_policy": _policy(front_end, _NUM_RETRIES, "retriable-status-codes", codes)}


def grpc_retries_of(front_end: FrontEndPlan, pool: PoolPlan) -> Config:
    """The same over gRPC. Where the message names the version, every instance is asked until one has it."""
    if pool.only is None and not pool.parts:
        return {}
    tries = max(_NUM_RETRIES, len(pool.endpoints) - 1)
    return {"retry_policy": _grpc_policy(front_end, tries, f"{INTERNAL_ERRORS}|{_NOT_FOUND}")}


def _grpc_policy(front_end: FrontEndPlan, tries: int, statuses: str) -> Config:
    headers = {"retriable_headers": [matches("grpc-status", statuses)]}
    return _policy(front_end, tries, "unavailable,retriable-headers", headers)


def _policy(front_end: FrontEndPlan, tries: int, answer: str, more: Mapping[str, object]) -> Config:
    # `reset` also covers the timeout of a try: 71 requests failed without it when an instance hung.
    return {
        "retry_on": f"connect-failure,refused-stream,reset-before-request,reset,{answer}",
        "num_retries": tries,
        "per_try_timeout": seconds(try_timeout_s(front_end)),
        # Of two instances the dead one is chosen three times in four, for the fewest requests: five attempts
        # miss the other one now and then (4 to 13 requests failed of 2,500), a hundred do not.
        "host_selection_retry_max_attempts": 100,
        "retry_host_predicate": [
            extension(
                "retry_host_predicates.previous_hosts",
                "retry.host.previous_hosts.v3.PreviousHostsPredicate",
                {},
            )
        ],
        "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
        **more,
    }
