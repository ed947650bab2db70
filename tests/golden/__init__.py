"""What every committed stack file comes to, as text that is reviewed like a change to production.

`python -m tests.golden` rewrites the folders beside this file, one for each stack.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import yaml
from pydantic import TypeAdapter

from components.batching_parameters import batching_parameters
from components.bootstrap import bootstrap_yaml
from components.envoy_files import envoy_files
from components.flags import server_arguments, server_environment
from components.kubernetes_manifests import objects
from components.kubernetes_outputs import kubernetes_outputs
from components.kubernetes_plan import KubernetesPlan, make_kubernetes_plan
from components.kubernetes_settings import KubernetesSettings
from components.model_config import models_config
from components.monitoring import monitoring_config
from components.outputs import stack_outputs
from components.plan import InstancePlan, Plan, make_plan
from components.stack_file import load_stack_file

GOLDEN = Path(__file__).resolve().parent
PROJECT = GOLDEN.parents[1]
SCRIPTS = PROJECT / "components" / "data"
_HASH = re.compile(r"-[0-9a-f]{12}(?=\.)")
REWRITE = "python -m tests.golden"


def stack_files() -> dict[str, Path]:
    """Every committed stack file, by the name of its stack; an example by the name of its folder."""
    stacks = {file.name.split(".")[1]: file for file in sorted(PROJECT.glob("Pulumi.*.yaml"))}
    examples = {file.parent.name: file for file in sorted(PROJECT.glob("examples/*/Pulumi.example.yaml"))}
    return stacks | examples


def on_engines() -> dict[str, Path]:
    """Those of them that run on Docker Engines."""
    return {stack: file for stack, file in stack_files().items() if load_stack_file(file).target == "docker"}


def rendered(stack: str, file: Path) -> dict[str, str]:
    """Every file that belongs into the golden folder of a stack, by its path there."""
    settings = load_stack_file(file)
    if isinstance(settings, KubernetesSettings):
        return _on_kubernetes(settings, make_kubernetes_plan(settings, stack=stack))
    plan = make_plan(settings, stack=stack, project_folder="/project")
    texts = {
        "plan.yaml": yaml.safe_dump(
            TypeAdapter(Plan).dump_python(plan, mode="json"), sort_keys=False, allow_unicode=True, width=110
        ),
        "outputs.json": json.dumps(stack_outputs(settings, plan).model_dump(), indent=2) + "\n",
        "monitoring.config": monitoring_config(),
    }
    for node in plan.nodes:
        texts[f"{node.name}/envoy/bootstrap.yaml"] = bootstrap_yaml(node.front_end)
        for name, text in envoy_files(node.front_end).items():
            texts[f"{node.name}/envoy/{name}"] = text
        for instance in node.instances:
            for name, text in _files_of(instance):
                # Instances of a pool are told the same: one file for all of them, or a difference to see.
                shared = f"{instance.pool}/{name}"
                own = texts.setdefault(shared, text) != text
                texts[f"{instance.pool}/{instance.name}/{name}" if own else shared] = text
    return texts


def _on_kubernetes(settings: KubernetesSettings, plan: KubernetesPlan) -> dict[str, str]:
    """Manifests by what they are called in Pulumi; files of ConfigMaps stand beside, but for our scripts."""
    texts = {"outputs.json": json.dumps(kubernetes_outputs(settings, plan).model_dump(), indent=2) + "\n"}
    for each in objects(plan):
        manifest = dict(each.manifest)
        for name, text in cast("dict[str, str]", manifest.pop("data", {})).items():
            script = SCRIPTS / name
            if script.exists() and script.read_text(encoding="utf-8") == text:
                continue  # stands there to be read
            # Under a name without the hash of the text: a change is then a difference, not another file.
            texts[f"{each.key}/{_HASH.sub('', name)}"] = text
        own = {
            "after": list(each.after),
            "create_s": each.create_timeout_s,
            "update_s": each.update_timeout_s,
        }
        said = {key: value for key, value in own.items() if value}
        header = f"# {json.dumps(said)}\n" if said else ""
        body = yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=110)
        texts[f"{each.key}.{each.kind.lower()}.yaml"] = header + body
    return texts


def _files_of(instance: InstancePlan) -> Iterator[tuple[str, str]]:
    yield "args", "".join(f"{argument}\n" for argument in server_arguments(instance))
    yield "environment", "".join(f"{variable}\n" for variable in server_environment(instance))
    yield "models.config", models_config(instance.models)
    if instance.batching:
        yield "batching.config", batching_parameters(instance.batching)


def committed(stack: str) -> dict[str, str]:
    """Every file in the golden folder of a stack, by its path there."""
    folder = GOLDEN / stack
    return {
        file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8")
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def committed_stacks() -> set[str]:
    """Names of the golden folders."""
    return {folder.name for folder in GOLDEN.iterdir() if folder.is_dir() and folder.name != "__pycache__"}
