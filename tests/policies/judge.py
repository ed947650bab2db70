"""Runs the pack's policies as the SDK's server does: inputs and outputs behind its own proxies."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pack.adapter import policies, resource_of
from pack.resource import Resource
from pulumi_policy import (
    PolicyCustomTimeouts,
    PolicyProviderResource,
    PolicyResource,
    PolicyResourceOptions,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import unknown_checking_proxy

from tests.policies.good import Declared


@dataclass(frozen=True)
class Violation:
    """What was reported about which resource."""

    resource: str
    message: str


def violations(
    rule: str, *declared: Declared, environment: str = "prod", **config: object
) -> list[Violation]:
    """What a rule reports about a stack, at first seen resource by resource, then as a whole."""
    settings = {"environment": environment, **config}
    found: list[Violation] = []
    names = {resource.urn: resource.name for resource in declared}

    def report(message: str, urn: str | None = None) -> None:
        found.append(Violation(names[urn or ""], message))

    # As in one process: a rule about a whole stack judges the inputs that a rule about resources was shown.
    made = policies()
    shown = [policy for policy in made if isinstance(policy, ResourceValidationPolicy)]
    judging = next(policy for policy in made if policy.name == rule)
    for resource in declared:
        if isinstance(judging, ResourceValidationPolicy):
            judging.validate(_resource_args(resource, settings), report)
        else:
            shown[0].validate(_resource_args(resource, settings), _ignored)
    if isinstance(judging, StackValidationPolicy):
        judging.validate(StackValidationArgs(_resources(declared), settings), report)
    return found


def plain_resource(declared: Declared) -> Resource:
    """A resource as the adapter hands it to rules."""
    return resource_of(_resource_args(declared, {}))


def messages(rule: str, *declared: Declared, environment: str = "prod", **config: object) -> list[str]:
    """The messages alone."""
    return [found.message for found in violations(rule, *declared, environment=environment, **config)]


def _ignored(_message: str, _urn: str | None = None) -> None:
    """Another rule's finding."""


Report = Callable[[str, str | None], None]


def _resource_args(declared: Declared, config: dict[str, Any]) -> ResourceValidationArgs:
    return ResourceValidationArgs(
        resource_type=declared.type,
        props=unknown_checking_proxy(declared.props),
        urn=declared.urn,
        name=declared.name,
        opts=_options(declared),
        provider=_provider(declared),
        config=config,
    )


def _resources(declared: Iterable[Declared]) -> list[PolicyResource]:
    made = {
        resource.name: PolicyResource(
            resource_type=resource.type,
            props=unknown_checking_proxy(resource.props),
            urn=resource.urn,
            name=resource.name,
            opts=_options(resource),
            provider=_provider(resource),
            parent=None,
            dependencies=[],
            property_dependencies={},
        )
        for resource in declared
    }
    for resource in declared:
        made[resource.name].dependencies.extend(made[name] for name in resource.depends_on)
    return list(made.values())


def _provider(declared: Declared) -> PolicyProviderResource | None:
    if declared.host is None:
        return None
    package = declared.type.partition(":")[0]
    return PolicyProviderResource(
        resource_type=f"pulumi:providers:{package}",
        props=unknown_checking_proxy({"host": declared.host}),
        urn=f"urn:pulumi:test::project::pulumi:providers:{package}::{declared.host}",
        name="provider",
    )


def _options(declared: Declared) -> PolicyResourceOptions:
    return PolicyResourceOptions(
        protect=False,
        ignore_changes=[],
        delete_before_replace=declared.delete_before_replace or None,
        aliases=[],
        custom_timeouts=PolicyCustomTimeouts(0, 0, 0),
        additional_secret_outputs=[],
    )
