"""Resources of rendered Kubernetes YAML (or JSON): files of many documents, and Lists."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pack.plain import plain
from pack.resource import Resource

from audit.errors import AuditError

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_VALUES = 1_000_000


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads a date as the text that it is in Kubernetes."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
    for first, found in _Loader.yaml_implicit_resolvers.items()
}


def resources_of_folder(folder: Path) -> tuple[Resource, ...]:
    """Every object in the files of a folder and of those below it, or in one file. Raises AuditError."""
    if not folder.exists():
        raise AuditError(f"{folder}: there is no such file or folder")
    files = [folder]
    if folder.is_dir():
        files = sorted(file for file in folder.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    found = tuple(resource for file in files for resource in _of_file(file, folder))
    if not found:
        raise AuditError(f"{folder}: holds no Kubernetes object in a file {', '.join(_SUFFIXES)}")
    return found


def _of_file(file: Path, folder: Path) -> Iterator[Resource]:
    shown = str(file.relative_to(folder)) if file != folder else file.name
    try:
        text = file.read_text(encoding="utf-8")
        documents = [json.loads(text)] if file.suffix == ".json" else list(yaml.load_all(text, _Loader))
    except yaml.YAMLError as error:
        raise AuditError(f"{shown}: is no YAML{_where(error)}: render templates first") from None
    except json.JSONDecodeError as error:
        raise AuditError(f"{shown}: is no JSON: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise AuditError(f"{shown}: cannot be read: {error}") from None
    except RecursionError:
        raise AuditError(f"{shown}: is nested too deeply") from None
    for number, document in enumerate(documents, 1):
        at = f"{shown}, document {number}" if len(documents) > 1 else shown
        if document is not None:
            _check_size(document, at)
            yield from _objects(document, shown, at)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "odd characters"
    return f" (line {mark.line + 1}: {problem})" if mark else f" ({problem})"


def _check_size(document: object, at: str) -> None:
    """Aliases make a few lines stand for millions of values, or for themselves."""
    queue, seen = [document], 0
    while queue:
        value = queue.pop()
        seen += 1
        if seen > _MOST_VALUES:
            raise AuditError(f"{at}: stands for more than {_MOST_VALUES} values")
        queue += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _objects(document: Any, file: str, at: str, *, of: tuple[str, str] = ("", "")) -> Iterator[Resource]:
    """An object, or those of a List. `of` is what a typed list (DeploymentList) says for its items."""
    if not isinstance(document, dict):
        raise AuditError(f"{at}: is no Kubernetes object, but {type(document).__name__}")
    version, kind = (
        document.get(name) or given for name, given in zip(("apiVersion", "kind"), of, strict=True)
    )
    if not (isinstance(version, str) and isinstance(kind, str) and version and kind):
        raise AuditError(f"{at}: apiVersion and kind: each object has both, as text")
    if kind.endswith("List") and "items" in document:
        items = document["items"] or []
        if not isinstance(items, list):
            raise AuditError(f"{at}: items: is no list")
        typed = (version, kind.removesuffix("List")) if kind != "List" else ("", "")
        for position, item in enumerate(items):
            yield from _objects(item, file, f"{at}, items[{position}]", of=typed)
        return
    yield _resource(document, version, kind, file)


def _resource(document: Mapping[str, Any], version: str, kind: str, file: str) -> Resource:
    metadata = document.get("metadata")
    named: Mapping[str, object] = metadata if isinstance(metadata, dict) else {}
    name = str(named.get("name") or named.get("generateName") or "unnamed")
    place = "/".join(str(part) for part in (named.get("namespace"), name) if part)
    group = version if "/" in version else f"core/{version}"
    props = plain(document)
    return Resource(
        type=f"kubernetes:{group}:{kind}",
        urn=f"{file}: {kind} {place}",
        name=name,
        props=props if isinstance(props, dict) else {},
    )
