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
    assert len(outputs.instances) == sum(
        len(group.gpus) for pool in load_stack_file(file).pools for group in pool.slots
    )


@pytest.fixture(scope="module")
def prod() -> Settings:
    return load_stack_file(STACKS["prod"])


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


def test_what_is_made_up_in_prod_is_marked_as_an_example() -> None:
    text = STACKS["prod"].read_text(encoding="utf-8")
    assert "EXAMPLE FACTS" in text
    assert "gpus: # example UUIDs" in text
    assert [line for line in text.splitlines() if "example.com" in line and "# example" not in line] == []
