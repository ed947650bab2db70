"""Compares a container with its inputs in the state, in what the provider never reads back."""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ops import labels
from ops.errors import UserError
from ops.hosts import Host

_Json = Mapping[str, Any]
# Where a publisher has its files, and where it puts them on its volume (components/config_volume.py).
_PUBLISHED, _VOLUME = "/publish/files/", "/volume/"
_LIST = "/publish/list"
_RUN = "/publish/then/envoy.run"  # which Envoy, with which arguments (components/envoy_run.py)
_SCRIPTS = frozenset((_LIST, _RUN, *(f"/publish/{name}.sh" for name in ("publish", "first", "then"))))
# Those that Envoy's stages for the acceptance, which puts them there (components/envoy_files.py).
_STAGED = re.compile(r"/publish/then/((eds-.*|cds|rds-.*|lds)\.yaml)")
# A mount: type, source or volume's name, where it is seen, whether it can be written.
Mount = tuple[str, str, str, bool]


@dataclass(frozen=True)
class Container:
    """A container of the state; values that are secret there are left out.

    `files` by their path: those that it was given, and for a publisher those on its volume. `secret_files`
    are the paths of those that it was given and that nobody compares.
    """

    name: str
    node: str
    id: str
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    mounts: frozenset[Mount] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)
    secret_files: Sequence[str] = ()


@dataclass(frozen=True)
class Difference:
    """What differs, as the state has it and as it was found."""

    container: Container
    what: str
    state: str
    found: str


def declared(resource: _Json) -> Container:
    """A container as an exported state has it."""
    inputs: _Json = resource["inputs"]
    named = {one["label"]: one["value"] for one in inputs.get("labels") or ()}
    files, secret = _uploads(inputs.get("uploads") or ())
    on_volume = {there: text for file, text in files.items() if (there := _on_volume(file))}
    return Container(
        name=str(inputs["name"]),
        node=named.get(labels.NODE, ""),
        id=str(resource.get("id", "")),
        environment=dict(_pair(one) for one in inputs.get("envs") or () if isinstance(one, str)),
        labels={name: value for name, value in named.items() if isinstance(value, str)},
        mounts=frozenset(_declared_mounts(inputs)),
        files={**files, **on_volume},
        secret_files=secret,
    )


def _uploads(uploads: Any) -> tuple[dict[str, str], list[str]]:
    """Texts by their file, and the files that are secret.

    Where one is, the state has all of them as one secret, decrypted. Then only those are texts of which it is
    known that they are none: scripts, what anybody may read, and what Envoy reads again.
    """
    hidden = isinstance(uploads, Mapping)
    given = json.loads(uploads.get("plaintext", "[]")) if hidden else uploads
    contents = {one["file"]: one.get("content") for one in given}
    lines = map(str.split, str(contents.get(_LIST, "")).splitlines())
    modes = {words[2]: words[0] for words in lines if len(words) == 3}
    files = {
        file: text
        for file, text in contents.items()
        if isinstance(text, str)
        and (not hidden or file in _SCRIPTS or _STAGED.fullmatch(file) or _is_open(file, modes))
    }
    return files, sorted(file for file in contents if file not in files)


def _is_open(file: str, modes: Mapping[str, str]) -> bool:
    return _PUBLISHED in file and not modes.get(file.removeprefix(_PUBLISHED), "00").endswith("00")


def _on_volume(file: str) -> str | None:
    """Where a publisher's file is on its volume; None for what does not go there under one name for good."""
    if staged := _STAGED.fullmatch(file):
        return f"{_VOLUME}{staged[1]}"
    return file.replace(_PUBLISHED, _VOLUME) if _PUBLISHED in file else None


def _declared_mounts(inputs: _Json) -> Iterator[Mount]:
    for one in inputs.get("mounts") or ():
        yield one["type"], one.get("source") or "", one["target"], not one.get("readOnly", False)
    for one in inputs.get("volumes") or ():
        source = one.get("volumeName") or one.get("hostPath") or ""
        kind = "volume" if one.get("volumeName") else "bind"
        yield kind, source, one["containerPath"], not one.get("readOnly", False)


def differences(container: Container, host: Host) -> list[Difference]:
    """How what the node's engine has differs. Raises UserError where the engine does not answer."""
    answer = host.docker("inspect", "--type=container", container.name)
    if answer.code != 0:
        if "no such container" not in answer.stderr.lower():
            raise UserError(f"node {container.node} ({host.endpoint}): {answer.said}")
        return [Difference(container, "container", "is there", "is not there")]
    [there] = json.loads(answer.stdout)
    image = _image_config(host, there["Image"])
    config: _Json = there["Config"]
    return [
        *_identity(container, there),
        *_environment(container, config.get("Env") or (), image.get("Env") or ()),
        *_labels(container, config.get("Labels") or {}, image.get("Labels") or {}),
        *_mounts(container, there.get("Mounts") or (), image.get("Volumes") or {}),
        *(one for file in sorted(container.files) for one in _file(container, host, file)),
    ]


def _identity(container: Container, there: _Json) -> Iterator[Difference]:
    if there["Id"] != container.id:
        yield Difference(container, "container", container.id[:12], f"another one, {there['Id'][:12]}")


def _environment(container: Container, there: Sequence[str], image: Sequence[str]) -> Iterator[Difference]:
    """By name: a value that somebody else put there may be a secret, and a report may be public."""
    found, given = dict(map(_pair, there)), dict(map(_pair, image))
    for name in sorted(found.keys() | container.environment.keys()):
        what, state = f"environment {name}", container.environment.get(name)
        if state is not None and name not in found:
            yield Difference(container, what, state, "not set")
        elif state is not None and found[name] != state:
            yield Difference(container, what, state, "another value")
        elif state is None and found[name] != given.get(name):
            yield Difference(container, what, "the image's" if name in given else "not set", "another value")


def _labels(container: Container, there: Mapping[str, str], image: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(there.keys() | container.labels.keys()):
        state, found = container.labels.get(name, image.get(name)), there.get(name)
        if state != found:
            yield Difference(container, f"label {name}", _said(state), _said(found))


def _mounts(
    container: Container, there: Sequence[_Json], image: Mapping[str, object]
) -> Iterator[Difference]:
    found = {
        (one["Type"], one.get("Name") or one.get("Source", ""), one["Destination"], bool(one["RW"]))
        for one in there
    }
    for kind, source, target, writable in sorted(container.mounts ^ found):
        if (kind, source, target, writable) in found and kind == "volume" and target in image:
            continue  # a volume that the image itself asks for
        told = f"{kind} {source}{', writable' if writable else ''}"
        sides = ("none", told) if (kind, source, target, writable) in found else (told, "not so")
        yield Difference(container, f"mount {target}", *sides)


def _file(container: Container, host: Host, file: str) -> Iterator[Difference]:
    """By digest: files may be long."""
    wanted = _digest(container.files[file].encode())
    try:
        copied = host.docker("cp", f"{container.name}:{file}", "-")
    except UnicodeDecodeError:
        yield Difference(container, f"file {file}", wanted, "no text")
        return
    if copied.code != 0:
        yield Difference(container, f"file {file}", wanted, copied.said)
        return
    content = only_file(copied.stdout)
    found = "no file" if content is None else _digest(content)
    if found != wanted:
        yield Difference(container, f"file {file}", wanted, found)


def only_file(archive: str) -> bytes | None:
    """The one file of a tar archive, as `docker cp` writes it; None where it is none, or no text."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive.encode())) as tar:
            member = tar.next()
            opened = tar.extractfile(member) if member else None
            return opened.read() if opened else None
    except tarfile.TarError:
        return None


def _digest(content: bytes) -> str:
    return f"sha256 {hashlib.sha256(content).hexdigest()[:12]}"


def _image_config(host: Host, image: str) -> _Json:
    answer = host.docker("image", "inspect", image)
    found: _Json = json.loads(answer.stdout)[0].get("Config") or {} if answer.code == 0 else {}
    return found


def _pair(variable: str) -> tuple[str, str]:
    name, _, value = variable.partition("=")
    return name, value


def _said(value: str | None) -> str:
    return "none" if value is None else repr(value)
