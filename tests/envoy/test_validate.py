"""Envoy takes what we write, whatever the stack looks like."""

from dataclasses import replace
from pathlib import Path

import pytest

from components.plan import FrontEndPlan, make_plan
from components.stack_file import load_stack_file
from tests import golden
from tests.envoy.ground import rehearse
from tests.envoy.harness import free_ports, ground_below, on_loopback
from tests.envoy.pools import TWO_POOLS, SmallPool, front_end
from tests.unit import test_envoy_traps

pytestmark = pytest.mark.envoy

ODD_NAMES = SmallPool(
    name="n", instances=1, models=["on", "n", "1.5", "_", "a.b-c_d", "m" * 63, "m." * 31 + "n"]
)


def committed(stack: str, file: Path) -> FrontEndPlan:
    return make_plan(load_stack_file(file), stack=stack, project_folder="/project").nodes[0].front_end


PLANS = {
    **{stack: committed(stack, file) for stack, file in golden.on_engines().items()},
    **test_envoy_traps.SHAPES,
    "one instance": front_end([SmallPool(instances=1, models=["resnet"])]),
    "odd names": front_end([ODD_NAMES, TWO_POOLS[1]]),
    "many models": front_end([SmallPool(instances=16, models=[f"model-{i}" for i in range(100)])]),
    "least of everything": front_end(
        settings={"request_timeout_s": 1, "max_request_mib": 1, "max_concurrent": 1, "memory_mib": 256}
    ),
    "most of everything": front_end(
        settings={
            "request_timeout_s": 3600,
            "max_request_mib": 1024,
            "max_concurrent": 1_000_000,
            "memory_mib": 8 * 1024,
        }
    ),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_envoy_takes_every_file_without_a_warning(
    plan: FrontEndPlan, envoy_binary: Path, tmp_path: Path
) -> None:
    ports = dict(zip(("rest_port", "grpc_port", "metrics_port"), free_ports(3), strict=True))
    here = replace(on_loopback(plan), spec=plan.spec.model_copy(update=ports))
    ground = ground_below(tmp_path)
    started = rehearse(envoy_binary, ground, ground.write(here, ground.folder))
    assert (started.code, started.said) == (0, "")
