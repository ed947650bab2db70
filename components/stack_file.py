"""Loads a stack's configuration into Settings, from Pulumi or straight from `Pulumi.<stack>.yaml`."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from components.errors import Problem, SettingsError, in_file_order, problems_of
from components.image_lock import FILE, read_lock, with_digests
from components.partly import broken_rules_of_right_parts
from components.partly_right import broken_rules_beside_mistakes, models_in
from components.presets import with_presets
from components.raw_files import with_raw_files
from components.rules import broken_rules, broken_text_rules
from components.settings import Settings
from components.stack_yaml import StackFileSyntaxError, read_yaml

NAMESPACE = "tf-serving"


def load_settings(config: Mapping[str, object], source: str, folder: Path | None = None) -> Settings:
    """Settings from configuration values keyed without the `tf-serving:` prefix.

    Files that it names, and the lock file of its images, are looked for in `folder`. Raises SettingsError
    with every problem found; `source` names the stack file in its message.
    """
    model = settings_model(config)
    config, problems = _with_files(config, source, folder) if folder else (dict(config), [])
    settings = None
    try:
        config = with_presets(config)
        # JSON, so that strict models still take lists for tuples and text for addresses.
        settings = model.model_validate_json(json.dumps(config, default=str))
        problems += _news(broken_rules(settings), problems)
    except RecursionError:
        raise SettingsError(source, [Problem("config", "is nested too deeply")]) from None
    except ValidationError as error:
        problems += _news(problems_of(error, accepted_keys(model)), problems)
        mistakes = [detail["loc"] for detail in error.errors(include_url=False)]
        problems += _news(broken_rules_beside_mistakes(model, config, mistakes), problems)
        problems += _news(broken_rules_of_right_parts(config, error, model), problems)
    problems += _news(broken_text_rules(config), problems)
    if settings is None or problems:
        raise SettingsError(source, in_file_order(problems, config))
    return settings


def settings_model(config: Mapping[str, object]) -> type[Settings]:
    """What a stack file may say, by its target."""
    if config.get("target") != "kubernetes":
        return Settings
    # Imported here: a stack of Docker Engines does not wait for it.
    from components.kubernetes_settings import KubernetesSettings

    return KubernetesSettings


def _with_files(
    config: Mapping[str, object], source: str, folder: Path
) -> tuple[dict[str, object], list[Problem]]:
    try:
        lock = read_lock(folder)
    except ValueError as error:
        raise SettingsError(source, [Problem(FILE, str(error))]) from None
    pinned, conflicts = with_digests(config, lock)
    read, unread = with_raw_files(pinned, lambda name: _file_of(folder, name))
    return read, conflicts + unread


_MOST_BYTES = 2**20


def _file_of(folder: Path, name: str) -> str:
    """Text of a file of the project: a regular one inside it, of at most 1 MiB."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError("it leads out of the project")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError("it is no regular file")
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        raise ValueError("it is larger than 1 MiB")
    return path.read_text(encoding="utf-8")


def _news(found: Iterable[Problem], known: Sequence[Problem]) -> list[Problem]:
    """Without what only follows from a file that could not be read, and what was told of it already."""
    told = {problem.path for problem in known}
    return [problem for problem in found if problem.path not in told and f"{problem.path}_file" not in told]


def load_stack_file(path: Path) -> Settings:
    """Settings of a stack file, read without Pulumi.

    Raises SettingsError, also for a file that is missing or is not YAML.
    """
    try:
        document = read_yaml(path.read_bytes())
    except FileNotFoundError:
        raise SettingsError(path.name, [Problem(str(path), "no such stack file")]) from None
    except OSError as error:
        raise SettingsError(path.name, [Problem(str(path), f"cannot be read: {error.strerror}")]) from None
    except StackFileSyntaxError as error:
        raise SettingsError(path.name, [Problem(path.name, str(error))]) from None
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise SettingsError(path.name, [Problem("config", "is required")])
    if twice := [key for key in config if key.startswith(f"{NAMESPACE}:") and _short(key) in config]:
        raise SettingsError(
            path.name, [Problem(key, f"is also given as {_short(key)}: keep one of them") for key in twice]
        )
    own = own_values(config)
    keys = settings_model(own).model_fields
    settings = {key: value for key, value in own.items() if key in keys or not _is_secret(value)}
    return load_settings(settings, path.name, path.parent)


def _is_secret(value: object) -> bool:
    """An encrypted value: where it is no setting, what Envoy's files take in, by the name a setting has."""
    return isinstance(value, dict) and list(value) == ["secure"]


def settings_from_pulumi(
    config: Mapping[str, object], secret_keys: Collection[str], stack: str, folder: Path
) -> Settings:
    """Settings from what Pulumi hands a program (`pulumi.runtime.get_config_env` and `…_secret_keys_env`).

    `folder` is the project's. Raises SettingsError, also for a setting that is encrypted.
    """
    # Pulumi decrypts it for the program, and from here it would go into state in plain text.
    secret = own_values(dict.fromkeys(sorted(secret_keys)))
    own = own_values(config)
    keys = settings_model({"target": own.get("target")}).model_fields
    if wrong := [key for key in secret if key in keys]:
        message = "no setting is a secret: write it in plain, without `pulumi config set --secret`"
        raise SettingsError(f"Pulumi.{stack}.yaml", [Problem(key, message) for key in wrong])
    # Every value comes as text: objects as JSON, a bare word as it is. A secret's is not even looked at.
    values = {key: _parsed(text) for key, text in own.items() if key not in secret}
    settings = load_settings(values, f"Pulumi.{stack}.yaml", folder)
    if problems := list(_secrets_are_there(settings, secret)):
        raise SettingsError(f"Pulumi.{stack}.yaml", problems)
    return settings


def _secrets_are_there(settings: Settings, secret: Collection[str]) -> Iterator[Problem]:
    named = settings.front_end.secrets
    for setting, key in named.items():
        if key not in secret:
            message = f"names no secret of this stack; set it: pulumi config set --secret {key}"
            yield Problem(f"front_end.{setting}", message)
    for key in secret:
        if key not in named.values():
            yield Problem(key, "a secret that no setting names; `pulumi config rm` removes it")


def _parsed(text: object) -> object:
    try:
        value = json.loads(str(text))
    except (ValueError, RecursionError):  # not JSON, or numbers and nesting beyond what Python reads
        return text
    # What is no object is text: "123" comes without its quotes and looks like a number.
    return value if isinstance(value, dict | list | str) else text


def own_values(config: Mapping[str, object]) -> dict[str, object]:
    """The values of our namespace, keyed without it; those of providers and of Pulumi are left out."""
    # To Pulumi a key without a namespace belongs to the project.
    return {
        _short(key): value
        for key, value in config.items()
        if key.startswith(f"{NAMESPACE}:") or ":" not in key
    }


def _short(key: str) -> str:
    return key.removeprefix(f"{NAMESPACE}:")


def accepted_keys(model: type[BaseModel], path: str = "") -> dict[str, list[str]]:
    """Keys of `model` and of every model below it, by path (`pools[].batching`)."""
    keys = {path: list(model.model_fields)}
    for name, field in model.model_fields.items():
        for child, suffix in models_in(field.annotation):
            keys |= accepted_keys(child, f"{path}.{name}{suffix}".lstrip("."))
    return keys
