"""A Pulumi CLI that works, by the first route that can: PATH, official download, package registries."""

import os
from collections.abc import Sequence
from typing import Literal, get_args

from toolchain import official, on_path, rebuilt
from toolchain.errors import ToolchainError
from toolchain.progress import note
from toolchain.tools import Origin, Toolchain

__all__ = ["Origin", "Toolchain", "ensure"]

MODE_VARIABLE = "TOOLCHAIN"
Mode = Literal["auto", "path", "official", "registries"]


def ensure(*, plugins: Sequence[str], changes_stack: str | None = None) -> Toolchain:
    """Find, download or build Pulumi with these plugins ("docker", "kubernetes"); costs nothing once done.

    The variable TOOLCHAIN picks one route. `changes_stack` names a stack of a team that is about to change:
    for it, a CLI that we built is used only when TOOLCHAIN=registries asks for it. Raises ToolchainError.
    """
    mode = _mode()
    if mode == "registries":
        return rebuilt.get(plugins)
    if mode == "official":
        return _official_or_error()
    if mode == "path":
        return _on_path_or_error()
    return _first_that_works(plugins, changes_stack)


def _first_that_works(plugins: Sequence[str], changes_stack: str | None) -> Toolchain:
    reasons: list[str] = []
    try:
        if found := on_path.find():
            return found
        reasons.append("no `pulumi` on PATH")
    except ToolchainError as error:
        note(f"Pulumi on PATH is not used: {error}")
        reasons.append(str(error))
    if found := official.find():
        return found
    # What was built before comes ahead of a download: without a way out, each run would wait for one.
    if changes_stack is None and (found := rebuilt.find(plugins)):
        return found
    try:
        return official.get()
    except official.UnreachableError as error:
        reasons.append(f"no official download ({error})")
    if changes_stack is not None:
        raise ToolchainError(_ask_for_consent(changes_stack, reasons))
    note(f"Pulumi comes from package registries: {'; '.join(reasons)}")
    return rebuilt.get(plugins)


def _ask_for_consent(stack: str, reasons: Sequence[str]) -> str:
    return (
        f"the stack {stack} would be changed by a Pulumi that this project builds from package registries, "
        f"not by Pulumi's own release: {'; '.join(reasons)}.\n"
        f"Install Pulumi {on_path.supported_range()}, or agree to the rebuilt one: type TOOLCHAIN=registries "
        "in front of the command."
    )


def _official_or_error() -> Toolchain:
    try:
        return official.get()
    except official.UnreachableError as error:
        raise ToolchainError(
            f"TOOLCHAIN=official, and {error}. {official.BASE_VARIABLE} names a mirror with the same layout; "
            "TOOLCHAIN=registries builds Pulumi from package registries instead."
        ) from error


def _on_path_or_error() -> Toolchain:
    if found := on_path.find():
        return found
    raise ToolchainError(
        f"TOOLCHAIN=path, and there is no official `pulumi` on PATH; supported: {on_path.supported_range()}"
    )


def _mode() -> Mode:
    value = os.environ.get(MODE_VARIABLE, "auto")
    for mode in get_args(Mode):
        if value == mode:
            return mode  # type: ignore[no-any-return]
    raise ToolchainError(f"TOOLCHAIN={value}: accepted are {', '.join(get_args(Mode))}")
