"""Turns rules into policies of the SDK: the one place that knows both."""

import threading
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    PolicyProviderResource,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)

from pack.judge import judge
from pack.plain import UNKNOWN, plain_properties
from pack.registry import all_rules
from pack.resource import Provider, Resource
from pack.rule import ENVIRONMENTS, Rule, params_of
from pack.stack import Stack, matters

PACK = "tf-serving"


class _Views(threading.local):
    """What a thread's policies are shown, as rules see it: made once where they are shown the same.

    They are where the SDK's properties are the same objects; `pack.once` sees to that within a request.
    """

    def __init__(self, seen: dict[str, Resource]) -> None:
        # Stack policies are shown outputs, in which a preview marks whatever the provider may fill in as
        # unknown. What a program said is in the inputs, which the same process was shown before, by whichever
        # thread: rules judge those.
        self._seen = seen
        self._shown: tuple[Mapping[str, Any], ...] = ()
        self._stack = Stack(resources=())

    def alone(self, args: ResourceValidationArgs) -> Stack:
        """The one resource that is about to be made or changed."""
        if not self._same((args.props,)):
            resource = resource_of(args)
            self._seen[resource.urn] = resource
            self._remember((args.props,), Stack(resources=(resource,)))
        return self._stack

    def together(self, args: StackValidationArgs) -> Stack:
        """All resources of a stack that rules could look at."""
        shown = tuple(each.props for each in args.resources)
        if not self._same(shown):
            found = (
                _of_stack(each, args, self._seen) for each in args.resources if matters(each.resource_type)
            )
            self._remember(shown, Stack(resources=tuple(found)))
        return self._stack

    def _same(self, shown: tuple[Mapping[str, Any], ...]) -> bool:
        return bool(shown) and len(shown) == len(self._shown) and all(map(is_, shown, self._shown))

    def _remember(self, shown: tuple[Mapping[str, Any], ...], stack: Stack) -> None:
        self._shown, self._stack = shown, stack


def policies(rules: Iterable[Rule] | None = None) -> list[Policy]:
    """Every rule as a policy, which share what they have seen."""
    views = _Views({})
    return [_policy(rule, views) for rule in (all_rules() if rules is None else rules)]


def resource_of(args: ResourceValidationArgs) -> Resource:
    """The plain view of a resource that is about to be made or changed."""
    return Resource(
        type=args.resource_type,
        urn=args.urn,
        name=args.name,
        props=plain_properties(args.props),
        provider=_provider(args.provider),
        parent=args.opts.parent,
        delete_before_replace=bool(args.opts.delete_before_replace),
        protect=bool(args.opts.protect),
        ignore_changes=tuple(args.opts.ignore_changes),
        stack_tags=dict(args.stack_tags),
    )


def _policy(rule: Rule, views: _Views) -> Policy:
    common: dict[str, Any] = {
        "name": rule.name,
        "description": rule.protects,
        "enforcement_level": EnforcementLevel(rule.levels["prod"]),
        "config_schema": _schema(rule),
        "severity": Severity(rule.severity),
        "remediation_steps": rule.steps,
        "url": rule.why[0],
    }
    if rule.scope == "resource":
        return ResourceValidationPolicy(validate=_for_a_resource(rule, views), **common)
    return StackValidationPolicy(validate=_for_a_stack(rule, views), **common)


def _schema(rule: Rule) -> PolicyConfigSchema:
    environment = {"type": "string", "enum": list(ENVIRONMENTS), "default": "prod"}
    return PolicyConfigSchema({"environment": environment, **{k: dict(v) for k, v in rule.schema.items()}})


def _for_a_resource(rule: Rule, views: _Views) -> Callable[[ResourceValidationArgs, ReportViolation], None]:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        if not matters(args.resource_type):
            return
        for finding in judge(rule, views.alone(args), params_of(args.get_config())):
            report(str(finding), finding.resource.urn)

    return validate


def _for_a_stack(rule: Rule, views: _Views) -> Callable[[StackValidationArgs, ReportViolation], None]:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        for finding in judge(rule, views.together(args), params_of(args.get_config())):
            report(str(finding), finding.resource.urn)

    return validate


def _of_stack(each: PolicyResource, args: StackValidationArgs, seen: Mapping[str, Resource]) -> Resource:
    known = seen.get(each.urn)
    return Resource(
        type=each.resource_type,
        urn=each.urn,
        name=each.name,
        props=known.props if known else _said(each.props),
        provider=(known.provider if known else None) or _provider(each.provider),
        parent=each.parent.urn if each.parent else None,
        depends_on=tuple(dependency.urn for dependency in each.dependencies),
        delete_before_replace=bool(each.opts.delete_before_replace),
        protect=bool(each.opts.protect),
        ignore_changes=tuple(each.opts.ignore_changes),
        stack_tags=dict(args.stack_tags),
    )


def _said(outputs: Mapping[str, object]) -> dict[str, object]:
    """Outputs without what is unknown as a whole: mostly what the provider will fill in."""
    found = plain_properties(outputs)
    return {name: value for name, value in found.items() if value is not UNKNOWN}


def _provider(provider: PolicyProviderResource | None) -> Provider | None:
    if provider is None:
        return None
    return Provider(urn=provider.urn, type=provider.resource_type, props=plain_properties(provider.props))
