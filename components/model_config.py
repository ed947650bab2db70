"""`models.config`: the models of one server (config/model_server_config.proto of the server)."""

from collections.abc import Sequence

from components.model_plan import ModelPlan
from components.model_settings import VersionPolicy
from components.text_proto import Message, Value, render


def models_config(models: Sequence[ModelPlan]) -> str:
    """The text of `models.config`."""
    return render({"model_config_list": {"config": tuple(_config(model) for model in models)}})


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
