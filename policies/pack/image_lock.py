"""`images.lock.yaml` of the program that is judged: the digest of each image, by `repository:tag`."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

from pack.yaml_text import parsed

FILE = "images.lock.yaml"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DOCKER_HUB = re.compile(r"^(?:(?:index\.)?docker\.io/)?(?:library/)?")


class BrokenLockError(ValueError):
    """The file is there and cannot be used; says why."""


def locked(path: Path) -> Mapping[str, str]:
    """Digest by image name; empty where there is no file. Raises BrokenLockError."""
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BrokenLockError(str(error.strerror)) from None
    return _read(path, changed)


def is_digest(text: str) -> bool:
    """Whether it is `sha256:` and 64 hex digits."""
    return _DIGEST.fullmatch(text) is not None


def name(image: str) -> str:
    """`repository:tag` without Docker Hub's own name in front: how the lock is asked."""
    return _DOCKER_HUB.sub("", image.partition("@")[0])


@cache
def _read(path: Path, _changed: int) -> Mapping[str, str]:
    try:
        document = parsed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BrokenLockError(type(error).__name__) from None
    images = document.get("images") if isinstance(document, dict) else None
    if not isinstance(images, dict) or not all(is_digest(str(digest)) for digest in images.values()):
        raise BrokenLockError("holds no `images:` with `repository:tag: sha256:<64 hex digits>`")
    return {name(str(image)): str(digest) for image, digest in images.items()}
