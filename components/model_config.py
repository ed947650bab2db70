"""`models.config`: the models of one server (config/model_server_config.proto of the server)."""

from collections.abc import Iterator, Sequence

from components.model_plan import ModelPlan
from components.model_settings import VersionPolicy
from components.text_proto import Message, Value, render


def models_config(models: Sequence[ModelPlan]) -> str:
    """The text of `models.config`; comments say it once more, as `data/models.sh` reads it."""
    comments = "".join(f"#: {line}\n" for line in model_lines(models))
    return comments + render({"model_config_list": {"config": tuple(_config(model) for model in models)}})


def model_lines(models: Sequence[ModelPlan]) -> Iterator[str]:
    """The same in lines that a script in bash can read."""
    for model in models:
        yield from _lines(model)


def _lines(model: ModelPlan) -> Iterator[str]:
    policy = model.versions
    yield f"model {model.name} {model.target}"
    if policy.specific is not None:
        yield f"versions {model.name} specific {' '.join(map(str, policy.specific))}"
    else:
        yield f"versions {model.name} {'all' if policy.all else f'latest {policy.latest or 1}'}"
    for label, version in model.labels:
        yield f"label {model.name} {label}={version}"


def _config(model: ModelPlan) -> Message:
    labels: tuple[Message, ...] = tuple({"key": label, "value": version} for label, version in model.labels)
    config: dict[str, Value] = {
        "name": model.name,
        "base_path": model.target,
        "model_platform": "tensorflow",  # has no default here, unlike with --model_name
        "model_version_policy": _policy(model.versions),
    }
    if labels:
        config["version_labels"] = labels
    return config


def _policy(policy: VersionPolicy) -> Message:
    if policy.specific is not None:
        return {"specific": {"versions": policy.specific}}
    if policy.all:
        return {"all": {}}
    return {"latest": {"num_versions": policy.latest or 1}}
