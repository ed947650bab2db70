"""Every rule, on what the committed stacks come to on Kubernetes."""

from typing import cast

import pytest
from pack.adapter import policies

from components.kubernetes_manifests import objects
from components.kubernetes_plan import make_kubernetes_plan
from components.kubernetes_settings import KubernetesSettings
from components.stack_file import load_stack_file
from tests import golden
from tests.kubernetes_stacks import four_gpus, settings
from tests.policies.good import CLUSTER, Declared, Props
from tests.policies.judge import messages
from tests.stacks import Config, changed, in_staging

STACKS = {
    stack: loaded
    for stack, file in golden.stack_files().items()
    if isinstance(loaded := load_stack_file(file), KubernetesSettings)
}
RULES = [policy.name for policy in policies()]


def pinned(value: object) -> object:
    """A manifest with digests on its images, as `make pin` has them written."""
    if isinstance(value, dict):
        return {
            key: f"{each}@sha256:{'0' * 64}" if key == "image" else pinned(each)
            for key, each in value.items()
        }
    return [pinned(each) for each in value] if isinstance(value, list) else value


def declared(found: KubernetesSettings, stack: str = "some", *, digests: bool = True) -> list[Declared]:
    return [
        Declared(
            type=f"kubernetes:{each.api_version if '/' in each.api_version else 'core/v1'}:{each.kind}",
            name=each.key,
            props=cast("Props", pinned(each.manifest) if digests else each.manifest),
            host=CLUSTER,
            depends_on=each.after,
        )
        for each in objects(make_kubernetes_plan(found, stack=stack))
    ]


@pytest.mark.parametrize("stack", STACKS)
def test_a_committed_stack_passes_every_rule_at_the_level_of_prod(stack: str) -> None:
    made = declared(STACKS[stack].model_copy(update={"environment": "prod"}), stack)
    assert {rule: said for rule in RULES if (said := messages(rule, *made))} == {}


def found(config: Config, environment: str) -> dict[str, list[str]]:
    """What every rule says of a stack that the settings accept."""
    made = declared(settings(changed(config, "environment", environment)))
    return {rule: said for rule in RULES if (said := messages(rule, *made, environment=environment))}


def test_a_share_of_a_gpu_that_the_settings_accept_is_accepted() -> None:
    shared = changed(four_gpus(), "node_pools[0].gpu_resource", "nvidia.com/gpu.shared")
    assert found(changed(shared, "pools[0].gpu_memory", {"fraction": 0.2}), "staging") == {}


@pytest.mark.parametrize("environment", ["staging", "prod"])
def test_several_gpus_for_models_that_say_so_are_accepted(environment: str) -> None:
    nodes = {"pool": "a100", "replicas": 2, "cpus": 8, "gpus": 2}
    several = changed(changed(four_gpus(), "pools[0].nodes", nodes), "pools[0].models[0].multi_gpu", True)
    assert found(several, environment) == {}


def test_the_sizes_of_models_are_judged_on_what_is_made_of_a_stack() -> None:
    made = declared(settings(changed(four_gpus(), "pools[0].models[0].gpu_mib", 40000)))
    assert messages("gpu-memory-shared", *made) == []
    place = "spec.template.spec.containers[0].args[0]"
    told = "--per_process_gpu_memory_fraction=0.9"
    less = [each.changed(place, told) if each.name == "main" else each for each in made]
    [said] = messages("gpu-memory-shared", *less)
    assert "models: 80000 MiB while new versions replace old ones: of its GPU it has 73728 MiB" in said


def test_the_rules_read_these_resources() -> None:
    made = declared(settings(four_gpus()))
    place = "spec.template.spec.containers[0].resources.limits"
    broken = [
        each.changed(place, {"cpu": "16", "memory": "1Gi", "nvidia.com/gpu": "4"})
        if each.name == "main"
        else each
        for each in made
    ]
    assert messages("one-model-per-gpu", *broken) != []
    surging = [
        each.changed("spec.strategy.rollingUpdate", {"maxSurge": 1, "maxUnavailable": 0})
        if each.name == "main"
        else each
        for each in made
    ]
    assert any(messages(rule, *surging) for rule in RULES if "rollout" in rule)
    unbatched = declared(settings(changed(in_staging(four_gpus()), "pools[0].batching", None)))
    assert messages("batching", *unbatched) != []
