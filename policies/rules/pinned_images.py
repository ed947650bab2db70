"""What runs tomorrow under the same name is what runs today."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from pack import image_lock, images
from pack.rule import EVERYWHERE, Finding, Params, Rule, about, unread
from pack.stack import Stack
from pack.workload import Workload

NAME = "pinned-images"
DIGEST = "pinned-images-digest"
_PLAIN = "write the image in plain text, as repository:tag@sha256:…: what will run must be known before"
_PIN = (
    f"run `make pin`, which writes the digest to {image_lock.FILE}, or write repository:tag@sha256:<digest>"
)
_SIMULATOR = re.compile(r"(^|[/_.-])simulator($|[_.-])")
_LATEST = re.compile(r"(^|[-.])latest($|[-.])")
# Three numbers, a date or a commit: a tag that is given once.
_EXACT = re.compile(r"\d+\.\d+\.\d+|(^|\D)\d{8}(\D|$)|(^|[-.])[0-9a-f]{7,40}($|[-.])")
_GPU = re.compile(r"-gpu($|[-.])")


def check(stack: Stack, params: Params) -> Iterator[Finding]:
    """Tag, digest and kind of each image."""
    for workload in stack.workloads:
        if workload.is_exempt_from(NAME):
            continue
        yield from unread(workload, "image", "Image", _PLAIN)
        if workload.image:
            yield from _tag(workload, workload.image)
            yield from _fits(workload, workload.image, params)
            yield from _digest(workload, workload.image, params)
        elif not workload.unread.get("image"):
            yield about(workload, "image: unset", _PLAIN)


def check_digest(stack: Stack, params: Params) -> Iterator[Finding]:
    """Images of which no digest is known yet, each once."""
    users: dict[str, list[Workload]] = defaultdict(list)
    for workload in stack.workloads:
        exempt = workload.is_exempt_from(DIGEST) or workload.is_exempt_from(NAME)
        image = workload.image or "sha256:"
        if not exempt and not image.startswith("sha256:") and not images.digest(image):
            users[image].append(workload)
    for image, workloads in users.items():
        if image_lock.name(image) not in _lock(params):
            others = f" (and {len(workloads) - 1} more containers)" if len(workloads) > 1 else ""
            yield about(workloads[0], f"image: {image}: a tag can be moved, a digest cannot{others}", _PIN)


def _tag(workload: Workload, image: str) -> Iterator[Finding]:
    tag, digest = images.tag(image), images.digest(image)
    if image.startswith("sha256:"):
        if workload.is_server:
            what = f"image: {image}: an id does not say which version it is"
            yield about(workload, what, "write repository:tag@sha256:<digest>")
    elif tag is None:
        if workload.is_server or digest is None:
            says = "does not say which version it is" if digest else "without a tag it is `latest`"
            yield about(workload, f"image: {image}: {says}", _exact(workload))
    elif _LATEST.search(tag):
        what = f"image: {image}: `{tag}` is another image after every release"
        if workload.is_server and not _GPU.search(tag):
            what += ", and has no GPU code"
        yield about(workload, what, _exact(workload))
    elif workload.is_server and images.server_version(image) is None:
        yield about(workload, f"image: {image}: the tag names no exact version", _exact(workload))
    elif not digest and not _EXACT.search(tag):
        yield about(workload, f"image: {image}: `{tag}` moves along with releases", _exact(workload))


def _exact(workload: Workload) -> str:
    example = "2.14.1-gpu" if workload.is_server else "1.40.0"
    return f"name an exact version, such as {example}"


def _fits(workload: Workload, image: str, params: Params) -> Iterator[Finding]:
    """An image without GPU code beside a GPU, or the other way round, runs on CPUs and says so nowhere."""
    if params.environment != "local" and _SIMULATOR.search(images.repository(image).rpartition("/")[2]):
        what = f"image: {image}: a simulator answers without any model, and is for local stacks"
        yield about(workload, what, "use tensorflow/serving")
    tag = images.tag(image)
    if not workload.is_server or workload.unread.get("gpus") or tag is None or image.startswith("sha256:"):
        return
    if workload.gpus and not _GPU.search(tag):
        what = f"image: {image}: has no GPU code, and {workload.gpus[0].path} gives it a GPU"
        version = images.server_version(image) or "<version>"
        yield about(workload, what, f"use the tag {version}-gpu")
    elif not workload.gpus and _GPU.search(tag):
        what = f"image: {image}: is built for a GPU, and is given none: it would serve from CPUs"
        yield about(workload, what, "request its GPU, or use the tag without -gpu")


def _digest(workload: Workload, image: str, params: Params) -> Iterator[Finding]:
    digest = images.digest(image)
    if digest and not image_lock.is_digest(digest):
        yield about(workload, f"image: {image}: is no digest", "write sha256: and 64 hex digits")
        return
    try:
        known = image_lock.locked(_path(params)).get(image_lock.name(image))
    except image_lock.BrokenLockError as error:
        if params.environment == "prod" and not digest:
            what = f"image: {image}: {_path(params).name} cannot be used: {error}"
            yield about(workload, what, "run `make pin`")
        return
    if known and digest and digest != known:
        yield about(workload, f"image: {image}: {image_lock.FILE} has {known}", "run `make pin`, or drop one")
    elif known and not digest and params.environment == "prod":
        what = f"image: {image}: in prod an image is named by its digest, and {image_lock.FILE} has it"
        yield about(workload, what, f"write {image}@{known}")


def _lock(params: Params) -> Mapping[str, str]:
    try:
        return image_lock.locked(_path(params))
    except image_lock.BrokenLockError:
        return {}


def _path(params: Params) -> Path:
    """The lock of the program: Pulumi starts the pack in the project's folder."""
    return Path(params.text("lockFile", image_lock.FILE))


_WHY = (
    "https://github.com/pulumi/pulumi-docker/issues/726",
    "https://github.com/pulumi/pulumi-docker/issues/342",
    "https://github.com/tensorflow/serving/issues/1768",
)
_SCHEMA: Mapping[str, Mapping[str, object]] = {
    "lockFile": {
        "type": "string",
        "default": image_lock.FILE,
        "description": "the file with digests, relative to the project's folder",
    }
}
RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="An image is one exact release, with GPU code if and only if it is given a GPU",
        severity="high",
        steps=(
            "Name an exact version, never `latest`; for a server with a GPU a tag that ends in -gpu. In prod "
            f"also the digest that {image_lock.FILE} has of it. The simulator is for local stacks."
        ),
        why=_WHY,
        exempt="What is no model server, by the label `tf-serving.exempt: pinned-images`.",
        levels=EVERYWHERE,
        check=check,
        schema=_SCHEMA,
    ),
    Rule(
        name=DIGEST,
        scope="stack",
        protects=f"In prod an image is named by its digest, also where {image_lock.FILE} has none yet",
        severity="medium",
        steps=(
            f"Run `make pin STACK=…`: it writes the digests of a stack's images to {image_lock.FILE}. For an "
            "image that is in there, pinned-images demands the digest."
        ),
        why=_WHY,
        exempt="What is no model server, by the label `tf-serving.exempt: pinned-images-digest`.",
        levels={"local": "disabled", "staging": "disabled", "prod": "advisory"},
        check=check_digest,
        schema=_SCHEMA,
    ),
)
