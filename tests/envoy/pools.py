"""Front ends as the Plan makes them, from pools in short form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.plan import FrontEndPlan
from tests import stacks


@dataclass(frozen=True, kw_only=True)
class SmallPool:
    """A pool in short: its models and how many instances it has."""

    instances: int
    models: Sequence[str]
    name: str = "main"
    more: Mapping[str, object] = field(default_factory=dict)
    """Further settings of the pool."""

    def __hash__(self) -> int:
        return hash(self.name)


ONE_POOL = (SmallPool(instances=4, models=["resnet"]),)
STICKY = (SmallPool(instances=4, models=["resnet"], more={"balancing": {"sticky": True}}),)
TWO_POOLS = (
    SmallPool(name="vision", instances=2, models=["resnet", "res.net"]),
    SmallPool(name="text", instances=2, models=["bert"]),
)


def front_end(
    pools: Sequence[SmallPool] = ONE_POOL, *, settings: Mapping[str, object] | None = None
) -> FrontEndPlan:
    """The front end of a node that has just these pools; `settings` go under `front_end`."""
    config = stacks.in_staging(stacks.one_node())  # pools in short keep no rule of prod
    node = config["nodes"][0]
    count = sum(pool.instances for pool in pools)
    node["gpus"] = [{"index": i, "uuid": stacks.uuid(i)} for i in range(count)]
    config["pools"] = _pools(pools)
    config["front_end"] = dict(settings or {})
    return stacks.plan(config).nodes[0].front_end


def _pools(pools: Sequence[SmallPool]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    first = 0
    for pool in pools:
        gpus = list(range(first, first + pool.instances))
        first += pool.instances
        written.append(
            {
                "name": pool.name,
                "models": [{"name": model, "path": f"/srv/models/{model}"} for model in pool.models],
                "slots": [{"node": "gpu-01", "gpus": gpus}],
                "memory": {"container_mib": 256},
                **pool.more,
            }
        )
    return written
