"""Server files that people have already, `models.config` and batching parameters, turned into settings."""

import re
from collections.abc import Callable, Mapping
from typing import cast

from google.protobuf import text_format

from components import server_protos
from components.errors import Problem

Read = Callable[[str], str]
"""Text of a file of the project by its path there. Raises OSError or UnicodeDecodeError."""

_POSITION = re.compile(r"^(\d+):(\d+) : ")


def with_raw_files(config: Mapping[str, object], read: Read) -> tuple[dict[str, object], list[Problem]]:
    """The configuration with each pool's `models_file` and `batching_file` read into `models` and `batching`.

    What cannot be read is left out and reported. A pool that has both is reported too.
    """
    pools = config.get("pools")
    if not isinstance(pools, list):
        return dict(config), []
    problems: list[Problem] = []
    read_pools = []
    for position, pool in enumerate(pools):
        if isinstance(pool, dict):
            pool = dict(pool)
            for key, target, convert in _KINDS:
                name = pool.get(key)
                if isinstance(name, str) and (wrong := _replace(pool, name, target, convert, read)):
                    problems.append(Problem(f"pools[{position}].{key}", wrong, name))
        read_pools.append(pool)
    return {**config, "pools": read_pools}, problems


def _replace(
    pool: dict[str, object], name: str, target: str, convert: Callable[[str], object], read: Read
) -> str | None:
    """Set what the file holds; says what is wrong where that cannot be done."""
    if name.startswith("/") or ".." in name.split("/"):
        return "accepted: a file of this project"
    if target in pool:
        return f"give this or {target}, not both"
    try:
        pool[target] = convert(read(name))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        return f"is not UTF-8 text: byte {error.start}"
    except ValueError as error:  # a name that no file can have, one outside the project, no file at all
        return f"accepted: a file of this project ({error})"
    except text_format.ParseError as error:
        return f"{name}:{_with_position(error)}"
    return None


def _with_position(error: text_format.ParseError) -> str:
    found = _POSITION.match(str(error))
    text = _POSITION.sub("", str(error)).partition("\n")[0]
    return f"{found[1]}:{found[2]}: {text}" if found else text


def _models(text: str) -> list[object]:
    listed = server_protos.values(server_protos.model_server_config(text)).get("model_config_list", {})
    return [
        _model(cast("dict[str, object]", entry))
        for entry in cast("dict[str, list[object]]", listed).get("config", [])
    ]


def _model(entry: dict[str, object]) -> dict[str, object]:
    platform = entry.get("model_platform", "tensorflow")  # without one the server refuses to start
    if platform != "tensorflow":
        raise text_format.ParseError(f" model_platform {platform!r}: the server has tensorflow alone")
    model = {"name": entry.get("name"), "path": entry.get("base_path")}
    if "model_version_policy" in entry:
        model["versions"] = _policy(cast("dict[str, dict[str, object]]", entry["model_version_policy"]))
    if "version_labels" in entry:
        model["labels"] = entry["version_labels"]
    return {key: value for key, value in model.items() if value is not None}


def _policy(policy: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    if "specific" in policy:
        return {"specific": policy["specific"].get("versions", [])}
    if "all" in policy:
        return {"all": True}
    # Absent and zero both mean one to the server.
    return {"latest": policy.get("latest", {}).get("num_versions", 1)}


def _batching(text: str) -> dict[str, object]:
    values = server_protos.values(server_protos.batching_parameters(text))
    values.pop("thread_pool_name", None)  # only a name; ours is the same for every pool
    # What the server takes where the file says nothing; threads are ours, since one per CPU never batches.
    return {"max_batch_size": 1000, "batch_timeout_micros": 0, "max_enqueued_batches": 10, **values}


_KINDS: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("models_file", "models", _models),
    ("batching_file", "batching", _batching),
)
