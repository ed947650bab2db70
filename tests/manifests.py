"""Manifests held against the OpenAPI schemas of several minor versions of Kubernetes."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

# The oldest that GPU clusters still run, the one of `make cluster`, and the newest that has schemas.
VERSIONS = ("1.31", "1.34", "1.37")


def problems(manifest: Mapping[str, object], version: str) -> list[str]:
    """Each place where a manifest breaks the schema of its kind, as `path: what is wrong`.

    Unknown fields are problems too. Raises LookupError for a kind that this version does not have.
    """
    validator = _validator(str(manifest["apiVersion"]), str(manifest["kind"]), version)
    found = sorted(validator.iter_errors(manifest), key=lambda error: error.json_path)
    return [f"{error.json_path.removeprefix('$.')}: {error.message}" for error in found]


@cache
def _validator(api_version: str, kind: str, version: str) -> Draft202012Validator:
    # apps/v1 is `apps-v1`, networking.k8s.io/v1 is `networking-v1`, v1 is `v1`.
    group, _, plain = api_version.rpartition("/")
    suffix = f"{group.partition('.')[0]}-{plain}" if group else plain
    schema = _read(version, f"{kind.lower()}-{suffix}.json")
    return Draft202012Validator(schema, registry=_definitions(version) @ Registry())


@cache
def _definitions(version: str) -> "Resource[object]":
    return Resource.from_contents(_read(version, "_definitions.json"))


def _read(version: str, name: str) -> Mapping[str, object]:
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    try:
        document: Mapping[str, object] = json.loads((folder / name).read_text())
    except FileNotFoundError:
        raise LookupError(f"Kubernetes {version} has no schema {name}") from None
    return document
