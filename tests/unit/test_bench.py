from typing import Any

import pytest

from bench import stacks
from bench.__main__ import PARTS, named
from bench.flat import flat_program
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
