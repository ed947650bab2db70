"""The contract with other teams: its shape, and a program of theirs that reads a stack by reference."""

import ast
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.contract import CONTRACT_VERSION, ContractError, StackOutputs, read_outputs
from tests.golden import GOLDEN
from tests.integration.consumer import EXAMPLE, Consumer
from tests.pulumi_project import CHECKOUT, Project
from toolchain.tools import Toolchain

CONTRACT = CHECKOUT / "components" / "contract.py"
NOWHERE = "unix:///nonexistent/docker.sock"


def golden(stack: str) -> dict[str, Any]:
    outputs: dict[str, Any] = json.loads((GOLDEN / stack / "outputs.json").read_text())
    return outputs


def shape(schema: object) -> object:
    """A JSON schema without its prose."""
    if isinstance(schema, dict):
        return {key: shape(value) for key, value in schema.items() if key not in ("title", "description")}
    return [shape(value) for value in schema] if isinstance(schema, list) else schema


def test_the_shape_of_the_outputs_is_the_one_that_was_published_for_this_version() -> None:
    published = CHECKOUT / "schemas" / f"outputs-v{CONTRACT_VERSION}.json"
    assert published.exists(), f"publish version {CONTRACT_VERSION}: write its shape to {published.name}"
    assert shape(StackOutputs.model_json_schema()) == json.loads(published.read_text()), (
        "another shape is another contract: raise CONTRACT_VERSION and publish its shape beside the old one; "
        "only an output with a default may be added to the shape that is there (docs/consumers.md)"
    )


def test_every_version_of_the_contract_stays_published() -> None:
    published = {file.name for file in (CHECKOUT / "schemas").glob("outputs-v*.json")}
    assert published == {f"outputs-v{version}.json" for version in range(1, CONTRACT_VERSION + 1)}


def test_the_contract_is_one_file_that_works_anywhere() -> None:
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name)
        for node in ast.walk(ast.parse(CONTRACT.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    roots = {str(name).partition(".")[0] for name in imported}
    assert roots - sys.stdlib_module_names == {"pydantic"}


def test_the_consumers_copy_is_the_contract() -> None:
    assert (EXAMPLE / "tf_serving_contract.py").read_text() == CONTRACT.read_text()


def _add_outputs(outputs: dict[str, Any]) -> None:
    outputs["added_later"] = {"any": "thing"}
    outputs["instances"][0]["added_later"] = 1


def _as_the_engine_hands_them_over(outputs: dict[str, Any]) -> None:
    outputs["contract_version"] = float(outputs["contract_version"])
    for model in outputs["models"]:
        model["max_batch_size"] = float(model["max_batch_size"])


@pytest.mark.parametrize("change", [_add_outputs, _as_the_engine_hands_them_over])
def test_a_reader_does_not_mind(change: Callable[[dict[str, Any]], None]) -> None:
    outputs = golden("local")
    change(outputs)
    assert read_outputs(outputs) == StackOutputs.model_validate(golden("local"))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "no output contract_version"),
        (
            {"contract_version": CONTRACT_VERSION + 1.0},
            r"have contract version 2.0, this program reads 1; copy ",
        ),
        ({"contract_version": "one"}, "have contract version one"),
        ({"contract_version": CONTRACT_VERSION, "rest_url": 1}, r"break contract version 1:[^$]*rest_url"),
    ],
)
def test_a_reader_is_told_what_is_wrong(values: dict[str, object], told: str) -> None:
    with pytest.raises(ContractError, match=told):
        read_outputs(values)


@pytest.fixture
def project(tmp_path: Path, toolchain: Toolchain) -> Project:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": NOWHERE}
    return Project(tmp_path, toolchain, env)


def publish(project: Project, folder: Path, stack: str, outputs: dict[str, Any]) -> None:
    """A stack of the project's name that has these outputs, and needs no engine for it."""
    producer = folder / "producer"
    producer.mkdir()
    (producer / "Pulumi.yaml").write_text((CHECKOUT / "Pulumi.yaml").read_text())
    (producer / ".venv").symlink_to(CHECKOUT / ".venv")
    (producer / "outputs.json").write_text(json.dumps(outputs))
    (producer / "__main__.py").write_text(
        "import json, pathlib, pulumi\n"
        "for name, value in json.loads(pathlib.Path('outputs.json').read_text()).items():\n"
        "    pulumi.export(name, value)\n"
    )
    project.pulumi("stack", "init", stack, cwd=producer)
    project.pulumi("up", "--yes", "--skip-preview", "--stack", stack, cwd=producer)


@pytest.mark.preview
def test_a_program_of_another_team_reads_a_stack_by_reference(project: Project, tmp_path: Path) -> None:
    publish(project, tmp_path, "prod", golden("prod"))
    consumer = Consumer(project, tmp_path, "prod")
    ran = consumer.up()
    assert ran.code == 0, ran.output
    found = consumer.outputs()
    published = StackOutputs.model_validate(golden("prod"))
    assert found["predict_urls"] == {
        model.name: [f"{url}:predict" for url in model.rest_urls] for model in published.models
    }
    assert found["grpc_targets"] == published.grpc_targets
    assert found["scrape_targets"] == [
        {
            "targets": [target.address],
            "labels": {"job": target.job, "node": target.node, "__metrics_path__": target.path},
        }
        for target in published.metrics_targets
    ]


@pytest.mark.preview
def test_a_program_of_another_team_is_told_of_another_version(project: Project, tmp_path: Path) -> None:
    publish(project, tmp_path, "prod", {**golden("prod"), "contract_version": CONTRACT_VERSION + 1})
    refused = Consumer(project, tmp_path, "prod").preview()
    assert refused.code != 0
    assert "this program reads 1; copy components/contract.py" in refused.output
    assert "Traceback" not in refused.output, refused.output
