"""Every committed stack file loads, plans and renders, and comes to what was reviewed."""

import difflib
import json
from pathlib import Path

import pytest

from components import server_protos
from components.outputs import StackOutputs
from components.settings import Settings
from components.stack_file import load_stack_file
from tests import golden

STACKS = golden.stack_files()


def test_the_stacks_that_the_makefile_and_the_docs_name_are_committed() -> None:
    assert {"local", "prod"} <= set(STACKS)
    assert {
        "two-models",
        "several-models",
        "mig",
        "all-gpus",
        "two-nodes",
        "canary",
        "release",
        "standby",
        "edge",
        "staging",
        "kubernetes",
        "kubernetes-mig",
        "kubernetes-two-pools",
    } <= set(STACKS)


@pytest.mark.parametrize(("stack", "file"), STACKS.items())
def test_a_stack_file_names_the_schema_so_that_editors_complete_it(stack: str, file: Path) -> None:
    first = file.read_text(encoding="utf-8").splitlines()[0]
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert named != first
    assert (file.parent / named).resolve() == golden.PROJECT / "schemas" / "stack.schema.json"


@pytest.mark.parametrize("stack", sorted(set(STACKS) - {"local", "prod", "staging"}))
def test_an_example_says_in_a_few_lines_what_it_shows(stack: str) -> None:
    lines = (STACKS[stack].parent / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert 5 <= len(lines) <= 15


@pytest.mark.parametrize(("stack", "file"), STACKS.items())
def test_a_stack_comes_to_its_golden_files(stack: str, file: Path) -> None:
    now, reviewed = golden.rendered(stack, file), golden.committed(stack)
    difference = [
        line
        for path in sorted({*now, *reviewed})
        for line in difflib.unified_diff(
            reviewed.get(path, "").splitlines(),
            now.get(path, "").splitlines(),
            f"reviewed/{stack}/{path}",
            f"now/{stack}/{path}",
            lineterm="",
        )
    ]
    if difference:
        rewrite = f"If this is meant, `{golden.REWRITE}` rewrites the golden files."
        pytest.fail("\n".join([*difference, "", rewrite]), pytrace=False)


def test_no_golden_folder_is_left_of_a_stack_that_is_gone() -> None:
    assert golden.committed_stacks() == set(STACKS)


@pytest.mark.parametrize(("stack", "file"), STACKS.items())
def test_the_server_reads_every_file_that_a_stack_renders(stack: str, file: Path) -> None:
    parsers = {
        "models.config": server_protos.model_server_config,
        "batching.config": server_protos.batching_parameters,
        "monitoring.config": server_protos.monitoring_config,
    }
    read = set()
    for path, text in golden.rendered(stack, file).items():
        name = path.rpartition("/")[2]
        if name in parsers:
            assert server_protos.values(parsers[name](text)), path
            read.add(name)
    assert read >= {"models.config", "monitoring.config"}


@pytest.mark.parametrize(("stack", "file"), STACKS.items())
def test_the_outputs_of_a_stack_are_read_by_the_contract(stack: str, file: Path) -> None:
    outputs = StackOutputs.model_validate(json.loads(golden.rendered(stack, file)["outputs.json"]))
    if load_stack_file(file).target == "kubernetes":
        assert {instance.pool for instance in outputs.instances} == {
            pool.name for pool in load_stack_file(file).pools
        }
        return
    assert len(outputs.instances) == sum(
        1 if pool.all_gpus else len(group.gpus)
        for pool in load_stack_file(file).pools
        for group in pool.slots
    )


@pytest.fixture(scope="module")
def prod() -> Settings:
    return load_stack_file(STACKS["prod"])


def test_no_committed_stack_but_those_that_show_it_gives_up_isolation() -> None:
    risky = {
        stack: [pool.name for pool in load_stack_file(file).pools if pool.sharing or pool.all_gpus]
        for stack, file in STACKS.items()
    }
    assert {stack for stack, pools in risky.items() if pools} == {"all-gpus"}


def test_prod_is_the_server_that_it_says(prod: Settings) -> None:
    (node,) = prod.nodes
    assert len(node.gpus) == 4
    assert [gpu.numa_node for gpu in node.gpus] == [0, 0, 1, 1]
    assert node.driver == "535.129.03"
    assert node.docker.endpoint.startswith("ssh://")
    assert prod.images.server == "tensorflow/serving:2.14.1-gpu"


def test_prod_names_no_simulator(prod: Settings) -> None:
    assert "simulator" not in STACKS["prod"].read_text(encoding="utf-8")
    assert "simulator" not in prod.images.server


@pytest.mark.parametrize("stack", sorted(set(STACKS) - {"local"}))
def test_what_is_made_up_in_a_stack_is_marked_as_an_example(stack: str) -> None:
    text = STACKS[stack].read_text(encoding="utf-8")
    assert "EXAMPLE FACTS" in text
    assert "# example" in text
    assert [line for line in text.splitlines() if "example.com" in line and "# example" not in line] == []
    assert [line for line in text.splitlines() if "/srv/" in line and "# example" not in line] == []


def test_the_uuids_of_prod_are_marked_as_examples() -> None:
    assert "gpus: # example UUIDs" in STACKS["prod"].read_text(encoding="utf-8")
