"""Manifests that the real provider writes to a folder: their names, and what a change touches."""

from pathlib import Path

import pytest

from tests.cluster.objects import config_map, deployment
from tests.cluster.program import Program, said

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

# Without the second a changed ConfigMap may lose its file: see the last test.
RENDER = {"render_yaml_to_directory": "rendered", "enable_config_map_mutable": True}


def files(program: Program) -> dict[str, str]:
    folder = program.folder / "rendered"
    found = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_text() for file in found}


def test_files_are_named_by_group_kind_namespace_and_name_and_a_change_touches_its_own_alone(
    program: Program,
) -> None:
    program.write(RENDER, [deployment("pool", replicas=4, on="a"), config_map("models", "a")])
    assert program.preview().code == 0
    assert files(program) == {}
    assert program.up().code == 0
    first = files(program)
    assert list(first) == [
        "1-manifest/apps_v1-deployment-default-pool.yaml",
        "1-manifest/v1-configmap-default-models.yaml",
    ]
    assert program.up().changes() == {"unchanged": 4}
    program.write(RENDER, [deployment("pool", replicas=4, on="a"), config_map("models", "b")])
    assert program.up().changes() == {"updated": 1, "unchanged": 3}
    changed = files(program)
    assert [name for name in first if changed[name] != first[name]] == [
        "1-manifest/v1-configmap-default-models.yaml"
    ]
    program.write(RENDER, [deployment("pool", replicas=4, on="a")])
    assert program.up().code == 0
    assert list(files(program)) == ["1-manifest/apps_v1-deployment-default-pool.yaml"]


def test_a_kubeconfig_of_the_environment_is_refused_unless_the_program_drops_it(
    program: Program, tmp_path: Path
) -> None:
    program.env["KUBECONFIG"] = str(tmp_path / "missing")
    program.write(RENDER, [config_map("models", "a")])
    assert '"kubeconfig" arg is not compatible with "renderYamlToDirectory" arg' in said(program.preview())
    source = program.folder / "__main__.py"
    source.write_text('import os\n\nos.environ.pop("KUBECONFIG", None)\n' + source.read_text())
    assert program.up().code == 0
    assert list(files(program)) == ["1-manifest/v1-configmap-default-models.yaml"]


def test_a_rendered_stack_cannot_be_refreshed(program: Program) -> None:
    program.write(RENDER, [config_map("models", "a")])
    assert program.up().code == 0
    assert "failed to read resource state due to unreachable cluster" in said(program.preview("--refresh"))


@pytest.mark.parametrize(
    ("provider", "namespace", "kept"),
    [
        ({}, None, False),
        ({}, "default", True),
        ({"namespace": "serving"}, None, True),
        ({"enable_config_map_mutable": True}, None, True),
    ],
)
def test_a_changed_config_map_loses_its_file_where_neither_it_nor_the_provider_says_a_namespace(
    program: Program, provider: dict[str, object], namespace: str | None, kept: bool
) -> None:
    # It is written anew under its name, and then what was there before is deleted: the same file.
    rendering = {"render_yaml_to_directory": "rendered", **provider}
    for text in ("a", "b"):
        metadata = {"name": "models"} | ({"namespace": namespace} if namespace else {})
        program.write(rendering, [{"kind": "ConfigMap", "metadata": metadata, "data": {"file": text}}])
        assert program.up().code == 0
    assert ["file: b" in text for text in files(program).values()] == ([True] if kept else [])
