"""What the name of an image tells."""

import re

_SERVER = re.compile(r"(^|/)tensorflow/serving$|(^|[/-])(tf|tensorflow)[-_]?serving([-_]simulator)?$")


def repository(image: str) -> str:
    """The name without tag and digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def tag(image: str) -> str | None:
    """The tag, or None."""
    found = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return found or None


def digest(image: str) -> str | None:
    """The digest, or None."""
    return image.partition("@")[2] or None


def is_server(image: str) -> bool:
    """Whether it is an image of TensorFlow Serving, or one that stands in for it."""
    name = repository(image)
    return bool(_SERVER.search(name))


def is_envoy(image: str) -> bool:
    """Whether it is an image of Envoy."""
    return bool(re.search(r"(^|[/-])envoy$", repository(image)))


def server_version(image: str) -> str | None:
    """The TensorFlow Serving version that the tag names (`2.14.1-gpu`), or None."""
    match = re.match(r"(\d+\.\d+\.\d+)(?:[-.][A-Za-z0-9_.-]+)?$", tag(image) or "")
    return match[1] if match else None
