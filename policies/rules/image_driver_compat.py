"""An image whose CUDA is newer than the node's driver allows does not start."""

import re
from collections.abc import Iterator

from pack import images
from pack.facts import Release, facts, version_number
from pack.rule import EVERYWHERE, Finding, Params, Rule, about, unread
from pack.stack import Stack
from pack.workload import Workload

NAME = "image-driver-compat"
_PLAIN = "write the image in plain text: its version says which driver it needs"
_DRIVER = re.compile(r"\d+(\.\d+)*")
# What NVIDIA's feature discovery says of a node, newer and older name.
_SELECTORS = (
    "nvidia.com/cuda.driver-version.full",
    "nvidia.com/cuda.driver-version.major",
    "nvidia.com/cuda.driver.major",
)
_NO_CHECK = "NVIDIA_DISABLE_REQUIRE"
_OWN_CHECK = re.compile(r"NVIDIA_REQUIRE_\w+")


def check(stack: Stack, _params: Params) -> Iterator[Finding]:
    """Servers with a GPU: the version table against the driver of their node, where that is known."""
    for server in stack.servers:
        if not (server.gpus or server.unread.get("gpus")):
            continue
        yield from unread(server, "image", "Image", _PLAIN)
        yield from _engine_checks(server)
        release = facts().release(images.server_version(server.image or "") or "")
        if release is None:
            yield from _unknown_version(server)
        else:
            for where, driver in _drivers(stack, server):
                yield from _driver(server, release, where, driver)


def _unknown_version(server: Workload) -> Iterator[Finding]:
    version = images.server_version(server.image or "")
    if server.image is None:
        return
    known = facts()
    newest = known.releases[-1].versions[-1]
    if version is None:
        what = f"image: {server.image}: names no version, so that nobody can tell which driver it needs"
        fix = f"use a tag such as {newest}-gpu"
    elif version in known.never_released:
        what = f"image: {server.image}: {version} was never released"
        fix = f"use {known.never_released[version]}-gpu"
    else:
        what = f"image: {server.image}: the table of versions does not know {version}"
        versions = ", ".join(version for release in known.releases for version in release.versions)
        fix = f"use one of {versions}, or add it to the table (components/data/facts.yaml)"
    yield about(server, what, fix)


def _drivers(stack: Stack, server: Workload) -> Iterator[tuple[str, str]]:
    driver = stack.node(server).driver
    if driver:
        yield "tf-serving.node-driver", driver
    for name in _SELECTORS:
        if name in server.node_selector:
            yield f"nodeSelector {name}", server.node_selector[name]


def _driver(server: Workload, release: Release, where: str, driver: str) -> Iterator[Finding]:
    needed = release.minimum_driver
    if not _DRIVER.fullmatch(driver):
        what = f"{where}: {driver}: is no driver version"
        yield about(server, what, "write what nvidia-smi prints, such as 535.129.03")
    # Where only the first number is given, only that is compared.
    elif version_number(driver) < version_number(needed)[: len(version_number(driver))]:
        what = f"image: {server.image}: its CUDA {release.cuda} needs driver {needed}, {where} is {driver}"
        yield about(server, what, f"update the driver to {needed} or newer, or use {_older(driver)}")


def _older(driver: str) -> str:
    runs = [one for one in facts().releases if version_number(one.minimum_driver) <= version_number(driver)]
    return f"{runs[-1].versions[-1]}-gpu" if runs else "another node: no known version runs on this driver"


def _engine_checks(server: Workload) -> Iterator[Finding]:
    for name, value in server.env.items():
        if name == _NO_CHECK and value.lower() in ("true", "1"):
            what = f"variable {name}: {value}: nothing compares the image with the driver any more"
            yield about(server, what, "remove it, and use an image that the driver can run")
        elif _OWN_CHECK.fullmatch(name):
            what = f"variable {name}: takes the place of what the image says it needs"
            yield about(server, what, "remove it: the image brings its own")


RULES = (
    Rule(
        name=NAME,
        scope="stack",
        protects="The driver of a node is new enough for the CUDA of the images on it",
        severity="high",
        steps=(
            "Use an image of the version table whose CUDA the driver can run (11.x from 450.80.02, 12.x from "
            "525.60.13), or update the driver. Another CUDA toolkit on the node does not help."
        ),
        why=(
            "https://github.com/NVIDIA/nvidia-docker/issues/1512",
            "https://github.com/NVIDIA/nvidia-container-toolkit/issues/152",
        ),
        exempt=(
            "A server without a GPU has no driver to fit. The driver is known where a container of the node "
            "carries the label `tf-serving.node-driver`, or a pod's nodeSelector names it."
        ),
        levels=EVERYWHERE,
        check=check,
    ),
)
