"""What holds for every rule: names, levels, what is said about it, and that nothing makes it throw."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pack.adapter import policies
from pack.plain import UNKNOWN, plain_properties
from pack.registry import all_rules
from pack.rule import ENVIRONMENTS, Params
from pack.stack import Stack
from pulumi_policy.proxy import unknown_checking_proxy

from tests.policies import good
from tests.policies.good import Declared
from tests.policies.judge import messages, plain_resource, violations

PACK = Path(__file__).resolve().parents[2] / "policies"
RULES = {rule.name: rule for rule in all_rules()}
# The level of each rule in local, staging and prod: a change is a decision about what may reach a machine.
LEVELS = {
    "batching": "advisory mandatory mandatory",
    "credentials-need-tls": "disabled advisory mandatory",
    "cpu-affinity": "advisory mandatory mandatory",
    "explicit-provider": "advisory mandatory mandatory",
    "explicit-provider-per-node": "mandatory mandatory mandatory",
    "gpu-memory": "mandatory mandatory mandatory",
    "gpu-memory-shared": "mandatory mandatory mandatory",
    "health-and-restart": "advisory mandatory mandatory",
    "host-memory": "mandatory mandatory mandatory",
    "host-memory-total": "mandatory mandatory mandatory",
    "image-driver-compat": "mandatory mandatory mandatory",
    "least-privilege": "mandatory mandatory mandatory",
    "no-secrets-in-the-open": "advisory mandatory mandatory",
    "one-model-per-gpu": "mandatory mandatory mandatory",
    "only-the-front-end-publishes": "mandatory mandatory mandatory",
    "pinned-images": "mandatory mandatory mandatory",
    "pinned-images-digest": "disabled disabled advisory",
    "required-labels": "advisory mandatory mandatory",
    "safe-rollout": "advisory mandatory mandatory",
    "server-flags": "mandatory mandatory mandatory",
}
GOOD = (
    good.server(),
    good.server(1).after("gpu0"),
    good.front_end(),
    good.publisher(),
    good.exporter(),
    good.deployment(),
    good.config_map(),
    good.service(),
)


def test_levels_are_as_decided() -> None:
    found = {name: " ".join(rule.levels[env] for env in ENVIRONMENTS) for name, rule in RULES.items()}
    assert found == LEVELS


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_committed_configuration_names_every_rule_and_no_other(environment: str) -> None:
    found = json.loads((PACK / "config" / f"{environment}.json").read_text())
    assert set(found) == set(RULES)
    assert {settings["environment"] for settings in found.values()} == {environment}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_says_what_a_reader_needs(rule: object) -> None:
    said = RULES[rule.name]  # type: ignore[attr-defined]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", said.name)
    assert said.protects
    assert not said.protects.endswith(".")
    assert all(url.startswith("https://") for url in said.why)
    assert len(said.steps) > 40
    assert said.exempt.endswith(".")
    assert "environment" not in said.schema


def test_names_are_unique() -> None:
    assert len(RULES) == len(all_rules()) == len(policies())


@pytest.mark.parametrize("rule", RULES)
def test_good_resources_keep_every_rule(rule: str) -> None:
    assert messages(rule, *GOOD) == []


@pytest.mark.parametrize("declared", GOOD, ids=lambda declared: declared.name)
def test_no_property_that_is_unknown_odd_or_missing_makes_a_rule_throw(declared: Declared) -> None:
    others = [plain_resource(other) for other in GOOD if other is not declared]
    for path in _paths(declared.props):
        broken = [declared.without(path), *(declared.changed(path, value) for value in _ODD)]
        for one in broken:
            stack = Stack(resources=(plain_resource(one), *others))
            for rule in RULES.values():
                findings = list(rule.check(stack, Params()))
                assert all(finding.what and finding.fix for finding in findings), (rule.name, path)


# What stands in place of a value: unknown, absent, of another kind, and lists and objects of the like.
_ODD: tuple[object, ...] = (good.UNKNOWN, None, True, "odd", [None], {"odd": "odd"}, [{"odd": 1.0}])


def _paths(value: object, below: str = "") -> list[str]:
    if isinstance(value, dict):
        children = [(f"{below}.{key}".lstrip("."), child) for key, child in value.items() if "." not in key]
    elif isinstance(value, list):
        children = [(f"{below}[{position}]", child) for position, child in enumerate(value)]
    else:
        return []
    return [path for at, child in children for path in (at, *_paths(child, at))]


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.just(good.UNKNOWN),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.dictionaries(st.text(max_size=3), _PLAIN, max_size=4))
def test_plain_values_are_what_stands_behind_the_proxies(props: dict[str, object]) -> None:
    assert plain_properties(unknown_checking_proxy(props)) == _marked(props)


def _marked(value: object) -> object:
    if isinstance(value, dict):
        return {key: _marked(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_marked(child) for child in value]
    return UNKNOWN if value == good.UNKNOWN else value


TEMPLATE = "spec.template"
KNOW = {
    "one-model-per-gpu": "GPU",
    "gpu-memory": "GPU memory",
    "host-memory": "Memory",
    "pinned-images": "Image",
}


@pytest.mark.parametrize("rule", KNOW)
@pytest.mark.parametrize(
    "path",
    ["spec", TEMPLATE, f"{TEMPLATE}.spec", f"{TEMPLATE}.spec.containers", f"{TEMPLATE}.spec.containers[0]"],
)
def test_pods_that_are_not_known_in_preview_are_refused_by_resource(rule: str, path: str) -> None:
    [found] = [
        one
        for one in violations(rule, good.deployment().changed(path, good.UNKNOWN))
        if one.message.startswith(f"{KNOW[rule]} of main")
    ]  # and once: the rule about GPUs would ask for variables too
    assert found.resource == "main"
    assert f"is not known in preview: {path}\n" in found.message


def test_a_part_of_a_pod_that_is_not_known_leaves_the_rest_as_it_is() -> None:
    pod = good.deployment().changed(f"{TEMPLATE}.spec.initContainers", good.UNKNOWN)
    for rule, what in KNOW.items():
        found = [one.partition(" is not known")[0] for one in messages(rule, pod)]
        assert set(found) == {f"{what} of main"}, rule
    one_more = good.deployment().changed(f"{TEMPLATE}.spec.containers[1]", good.UNKNOWN)
    at = f"{TEMPLATE}.spec.containers[1]"
    for rule, what in KNOW.items():
        found = [one.partition(" is not known")[0] for one in messages(rule, one_more)]
        assert set(found) == {f"{what} of main/{at}"}, rule


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_templates_of_every_kind_are_asked_for(kind: str) -> None:
    group = "batch/v1" if "Job" in kind else "apps/v1"
    spec = {"jobTemplate": good.UNKNOWN} if kind == "CronJob" else {"template": good.UNKNOWN}
    made = Declared(type=f"kubernetes:{group}:{kind}", name="some", props={"spec": spec}, host=good.CLUSTER)
    for rule, what in KNOW.items():
        assert any(f"{what} of some is not known in preview" in one for one in messages(rule, made)), rule


def test_an_odd_template_is_refused_as_well() -> None:
    pod = good.deployment().changed(TEMPLATE, "a text")
    [found] = messages("pinned-images", pod)
    assert found.startswith("Image of main cannot be read: spec.template is a text, not an object")


@pytest.mark.parametrize("role", ["publisher", "acceptance", "drain"])
@pytest.mark.parametrize("rule", RULES)
def test_a_container_that_does_one_thing_and_ends_is_no_server(rule: str, role: str) -> None:
    assert messages(rule, *GOOD, good.publisher().labelled(role=role).named("once")) == []
