"""Another name for a node or a pool: Pulumi finds what is deployed under the old one."""

from collections.abc import Callable, Iterable

import pytest

from components.deployment import ServingDeployment, ServingDeploymentArgs
from tests import stacks
from tests.mock_engine import CONTAINER, Deploy, Engine, Registered

DEPLOYMENT = "tf-serving:deployment:ServingDeployment"
FRONT_END = "tf-serving:envoy:EnvoyFrontEnd"


def run(deploy: Deploy, config: stacks.Config) -> Engine:
    args = ServingDeploymentArgs(
        settings=stacks.settings(config), stack="test", project_folder=stacks.PROJECT_FOLDER
    )

    def program() -> None:
        ServingDeployment("serving", args)

    return deploy(program)


def renamed_node() -> stacks.Config:
    config = stacks.changed(stacks.two_nodes(), "nodes[1].name", "new-02")
    config["pools"][0]["slots"][0]["node"] = config["pools"][1]["slots"][0]["node"] = "new-02"
    return stacks.changed(config, "nodes[1].renamed_from", "gpu-02")


def renamed_pool(config: stacks.Config) -> stacks.Config:
    return stacks.changed(stacks.changed(config, "pools[0].name", "vision"), "pools[0].renamed_from", "main")


def parts(engine: Engine) -> list[Registered]:
    """What the deployment itself is made of; everything else is a child of one of them."""
    deployment = engine.one(DEPLOYMENT, "serving")
    return [found for found in engine.resources if found.parent == deployment.urn]


def test_without_a_former_name_nothing_has_an_alias(deploy: Deploy) -> None:
    assert [found.name for found in run(deploy, stacks.two_nodes()).resources if found.former_names] == []


def test_every_part_of_a_renamed_node_is_found_under_its_old_name(deploy: Deploy) -> None:
    assert {found.name: found.former_names for found in parts(run(deploy, renamed_node()))} == {
        "main-batching": [],
        "gpu-01": [],
        "gpu-01-main-config": [],
        "gpu-01-gpu0": [],
        "gpu-01-gpu2": [],
        "gpu-01-envoy": [],
        "new-02": ["gpu-02"],
        "new-02-main-config": ["gpu-02-main-config"],
        "new-02-text-config": ["gpu-02-text-config"],
        "new-02-gpu0": ["gpu-02-gpu0"],
        "new-02-gpu1": ["gpu-02-gpu1"],
        "new-02-gpu2": ["gpu-02-gpu2"],
        "new-02-envoy": ["gpu-02-envoy"],
    }


def test_the_old_names_are_those_of_a_stack_before_it_was_renamed(deploy: Deploy) -> None:
    before = {(found.type, found.name) for found in parts(run(deploy, stacks.two_nodes()))}
    for found in parts(run(deploy, renamed_node())):
        (name,) = found.former_names or [found.name]
        assert (found.type, name) in before


@pytest.mark.parametrize("config", [renamed_node(), renamed_pool(stacks.two_nodes())])
def test_a_child_begins_with_its_parents_name_so_that_it_is_found_with_its_parent(
    deploy: Deploy, config: stacks.Config
) -> None:
    # The engine derives the old name of a child from that of its parent, where it begins with it.
    engine = run(deploy, config)
    own = {found.urn for found in parts(engine)}
    children = [found for found in engine.resources if found.parent in own]
    assert children
    for child in children:
        assert child.name.startswith(f"{engine.by_urn(child.parent).name}-"), child.name


def test_of_a_renamed_pool_only_the_batching_and_the_volumes_have_another_name(deploy: Deploy) -> None:
    engine = run(deploy, renamed_pool(stacks.two_nodes()))
    assert {found.name: found.former_names for found in parts(engine) if found.former_names} == {
        "vision-batching": ["main-batching"],
        "gpu-01-vision-config": ["gpu-01-main-config"],
        "gpu-02-vision-config": ["gpu-02-main-config"],
    }


def test_renaming_a_pool_keeps_every_instance_and_rolls_it_to_another_volume(deploy: Deploy) -> None:
    def containers(config: stacks.Config) -> dict[str, Registered]:
        found = run(deploy, config).of_type(CONTAINER)
        lasting = [one for one in found if not one.name.endswith(("-publisher", "-acceptance", "-drain"))]
        return {one.inputs["name"]: one for one in lasting}

    before, after = containers(stacks.two_nodes()), containers(renamed_pool(stacks.two_nodes()))
    assert set(before) == set(after)
    changed = {name for name in before if before[name].inputs != after[name].inputs}
    of_the_pool = {"test.gpu-01-gpu0", "test.gpu-01-gpu2", "test.gpu-02-gpu0", "test.gpu-02-gpu1"}
    assert changed == of_the_pool
    assert {name: found.urn for name, found in before.items()} == {
        name: found.urn for name, found in after.items()
    }
    for name in changed:
        differing = {
            key for key in before[name].inputs if before[name].inputs[key] != after[name].inputs[key]
        }
        assert differing == {"labels", "mounts"}, name


def test_pools_that_share_slots_are_found_under_their_old_names(deploy: Deploy) -> None:
    engine = run(deploy, renamed_pool(stacks.sharing()))
    assert {found.name: found.former_names for found in parts(engine) if found.former_names} == {
        "vision-batching": ["main-batching"],
        "gpu-01-vision-config": ["gpu-01-main-config"],
        "gpu-01-gpu0-vision": ["gpu-01-gpu0-main", "gpu-01-gpu0"],
        "gpu-01-gpu1-vision": ["gpu-01-gpu1-main", "gpu-01-gpu1"],
    }


@pytest.mark.parametrize("turned", [list, reversed])
def test_the_first_pool_on_a_shared_slot_replaces_the_one_that_had_it_for_itself(
    deploy: Deploy, turned: Callable[[Iterable[object]], Iterable[object]]
) -> None:
    config = stacks.sharing()
    config["pools"] = list(turned(config["pools"]))
    first = config["pools"][0]["name"]
    engine = run(deploy, config)
    assert {found.name: found.former_names for found in parts(engine) if found.former_names} == {
        f"gpu-01-gpu{gpu}-{first}": [f"gpu-01-gpu{gpu}"] for gpu in (0, 1)
    }
