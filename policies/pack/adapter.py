"""Turns rules into policies of the SDK: the one place that knows both."""

from collections.abc import Callable, Iterable, Mapping
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
_Seen = dict[str, Resource]


def policies(rules: Iterable[Rule] | None = None) -> list[Policy]:
    """Every rule as a policy, which share what they have seen."""
    # Stack policies are shown outputs, in which a preview marks whatever the provider may fill in as unknown.
    # What a program said is in the inputs, which the same process was shown before: rules judge those.
    seen: _Seen = {}
    return [_policy(rule, seen) for rule in (all_rules() if rules is None else rules)]


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


def _policy(rule: Rule, seen: _Seen) -> Policy:
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
        return ResourceValidationPolicy(validate=_for_a_resource(rule, seen), **common)
    return StackValidationPolicy(validate=_for_a_stack(rule, seen), **common)


def _schema(rule: Rule) -> PolicyConfigSchema:
    environment = {"type": "string", "enum": list(ENVIRONMENTS), "default": "prod"}
    return PolicyConfigSchema({"environment": environment, **{k: dict(v) for k, v in rule.schema.items()}})


def _for_a_resource(rule: Rule, seen: _Seen) -> Callable[[ResourceValidationArgs, ReportViolation], None]:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        if not matters(args.resource_type):
            return
        resource = resource_of(args)
        seen[resource.urn] = resource
        for finding in judge(rule, Stack(resources=(resource,)), params_of(args.get_config())):
            report(str(finding), finding.resource.urn)

    return validate


def _for_a_stack(rule: Rule, seen: _Seen) -> Callable[[StackValidationArgs, ReportViolation], None]:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        found = tuple(_of_stack(each, args, seen) for each in args.resources if matters(each.resource_type))
        for finding in judge(rule, Stack(resources=found), params_of(args.get_config())):
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
