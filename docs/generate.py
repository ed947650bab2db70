"""Writes the reference and the schema of stack files, and the page and configuration of the policy pack.

`python -m docs.generate` writes them; a test compares what is committed with what would be written.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from bench.results import quoting
from components.facts import facts
from components.kubernetes_rules import KUBERNETES_RULES
from components.kubernetes_settings import KubernetesSettings
from components.outputs import CONTRACT_VERSION, StackOutputs
from components.rules import PROD_RULES, RULES, TEXT_RULES
from components.settings import Settings
from components.stack_file import NAMESPACE
from components.types import PATTERN_WORDS
from docs.policies import policy_files

PROJECT = Path(__file__).resolve().parent.parent
Schema = Mapping[str, object]


# What another key of the same object supplies: (model, that key, the keys that it stands for).
_ALTERNATIVES = (
    ("Pool", "models_file", ("models",)),
    ("KubernetesPool", "models_file", ("models",)),
    ("Batching", "preset", ("max_batch_size", "batch_timeout_micros")),
)
_FORMATS = {"ipv4": "an IPv4 address", "ipv4network": "a network, such as 172.29.80.0/24"}


def stack_schema() -> str:
    """JSON Schema of a whole `Pulumi.<stack>.yaml`, for editors."""
    on_engines, on_cluster = _settings_schema(Settings), _settings_schema(KubernetesSettings)
    models = {
        **cast("dict[str, Schema]", on_cluster["$defs"]),
        **cast("dict[str, Schema]", on_engines["$defs"]),
    }
    target = f"{NAMESPACE}:target"
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Stack file of the tf-serving project",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "if": {"required": [target], "properties": {target: {"const": "kubernetes"}}},
                "then": _config_schema(on_cluster),
                "else": _config_schema(on_engines),
            },
            "encryptionsalt": {"type": "string"},
            "encryptedkey": {"type": "string"},
            "secretsprovider": {"type": "string"},
        },
        "additionalProperties": False,
        "$defs": _with_alternatives(models),
    }
    return json.dumps(schema, indent=2) + "\n"


def _config_schema(settings: Mapping[str, object]) -> Schema:
    properties = cast("dict[str, Schema]", settings["properties"])
    required = cast("list[str]", settings["required"])
    return {
        "type": "object",
        "required": [f"{NAMESPACE}:{name}" for name in required],
        "properties": {f"{NAMESPACE}:{name}": schema for name, schema in properties.items()},
        # Keys of providers and of Pulumi itself pass; an unknown one of ours does not.
        "patternProperties": {f"^{NAMESPACE}:(?!({'|'.join(properties)})$)": False},
    }


def _settings_schema(settings: type[Settings]) -> dict[str, object]:
    """The settings' own schema, with the names that facts.yaml knows."""
    schema = settings.model_json_schema()
    gpus = facts().gpus
    for model, key, known in (
        ("Node", "hardware", facts().hardware),
        ("Gpu", "model", gpus),
        ("NodePool", "gpu_model", gpus),
    ):
        if model not in schema["$defs"]:
            continue
        field = schema["$defs"][model]["properties"][key]
        field["anyOf"] = [{"enum": sorted(known)}, {"type": "null"}]
    return schema


def _with_alternatives(models: Mapping[str, Schema]) -> dict[str, Schema]:
    """The models as files may write them: before presets and the server's own files are read in."""
    written: dict[str, Schema] = {**models}
    for name, alternative, replaced in _ALTERNATIVES:
        required = cast("list[str]", models[name].get("required", []))
        written[name] = {
            **models[name],
            "required": [key for key in required if key not in replaced],
            "anyOf": [{"required": list(replaced)}, {"required": [alternative]}],
        }
    return written


def reference() -> str:
    """The reference: every setting, every rule, every output."""
    return "\n".join(
        [
            "# Reference",
            "",
            "Written by `python -m docs.generate` from the code: edit that, not this file.",
            "",
            f"## Settings (`{NAMESPACE}:<key>` in a stack file)",
            "",
            *_models(_settings_schema(Settings), "stack file"),
            "## Settings on Kubernetes (`tf-serving:target: kubernetes`)",
            "",
            "What is not listed here is as above.",
            "",
            *_models(_of_kubernetes(), "stack file for Kubernetes"),
            "## Batching presets",
            "",
            "Where to begin; what a pool sets beside it wins. A lone request waits for the whole timeout.",
            "",
            *_presets(),
            "",
            "## Rules across settings",
            "",
            *_rules((*RULES, *KUBERNETES_RULES, *TEXT_RULES)),
            "",
            "In prod also, as the policy pack would refuse it there:",
            "",
            *_rules(PROD_RULES),
            "",
            f"## Outputs (contract version {CONTRACT_VERSION})",
            "",
            *_models(StackOutputs.model_json_schema(), "outputs"),
        ]
    )


def _rules(rules: Sequence[Callable[..., object]]) -> list[str]:
    return [f"- **{rule.__name__.replace('_', ' ')}**: {_first_line(rule.__doc__)}" for rule in rules]


def _of_kubernetes() -> Schema:
    """Models that only a stack on Kubernetes has, or the keys that their Docker counterparts lack."""
    known = _settings_schema(Settings)
    on_cluster = _settings_schema(KubernetesSettings)
    models = {"": known, **cast("dict[str, Schema]", known["$defs"])}
    counterparts = {
        "KubernetesPool": "Pool",
        "KubernetesFrontEnd": "FrontEnd",
        "KubernetesModel": "ServedModel",
    }
    own = {
        name: _beyond(schema, models[counterparts[name]]) if name in counterparts else schema
        for name, schema in cast("dict[str, Schema]", on_cluster["$defs"]).items()
        if name not in models
    }
    return {**_beyond(on_cluster, known), "$defs": own}


def _beyond(schema: Schema, known: Schema) -> Schema:
    there = cast("dict[str, Schema]", known["properties"])
    properties = cast("dict[str, Schema]", schema["properties"])
    return {**schema, "properties": {key: each for key, each in properties.items() if there.get(key) != each}}


def _presets() -> Iterator[str]:
    presets = facts().batching_presets
    keys = list(dict.fromkeys(key for preset in presets.values() for key in preset))
    yield f"| preset | {' | '.join(f'`{key}`' for key in keys)} |"
    yield f"|---|{'---|' * len(keys)}"
    for name, preset in presets.items():
        values = (preset[key] for key in keys)
        shown = (json.dumps(list(value) if isinstance(value, tuple) else value) for value in values)
        yield f"| `{name}` | {' | '.join(shown)} |"


def _models(schema: Schema, name: str) -> Iterator[str]:
    yield from _table(name, schema)
    for title, child in cast("dict[str, Schema]", schema.get("$defs", {})).items():
        yield from _table(title, child)


def _table(title: str, schema: Schema) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    yield from (str(schema.get("description", "")), "")
    yield "| key | accepted | default | what it is |"
    yield "|---|---|---|---|"
    required = cast("list[str]", schema.get("required", []))
    for key, field in cast("dict[str, Schema]", schema.get("properties", {})).items():
        default = _required(title, key) if key in required else _default(field.get("default"))
        words = str(field.get("description", "")).replace("\n", " ")
        yield f"| `{key}` | {_accepted(field)} | {default} | {words} |"
    yield ""


def _required(model: str, key: str) -> str:
    instead = next((other for name, other, keys in _ALTERNATIVES if name == model and key in keys), None)
    return f"required, or `{instead}`" if instead else "required"


def _default(value: object) -> str:
    if value is None:
        return "unset"
    return "its own" if isinstance(value, dict) and value else f"`{json.dumps(value)}`"


def _accepted(field: Schema) -> str:
    if "pattern" in field:
        return PATTERN_WORDS[str(field["pattern"])]
    if "anyOf" in field:
        options = cast("list[Schema]", field["anyOf"])
        return " or ".join(_accepted(option) for option in options if option.get("type") != "null")
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "const" in field:
        return json.dumps(field["const"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in cast("list[str]", field["enum"]))
    if field.get("type") == "array":
        return f"list of {_accepted(cast('Schema', field.get('items', {})))}"
    bounds = [
        f"{sign} {field[name]}"
        for name, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        if name in field
    ]
    kind = _FORMATS.get(str(field.get("format"))) or str(field.get("type", "object"))
    return " ".join([kind, *bounds])


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def generated() -> dict[Path, str]:
    """Every file that is generated, or quotes measurements, with its text."""
    own = {
        PROJECT / "docs" / "reference.md": reference(),
        PROJECT / "schemas" / "stack.schema.json": stack_schema(),
    }
    return own | policy_files() | quoting()


def main() -> None:
    """Write every file."""
    for file, text in generated().items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
