"""Pulumi's requests through the SDK's own server: read once, with the same answers."""

from typing import Any

import pytest
from google.protobuf import json_format
from pack.encrypted import EncryptedText, keep_what_is_secret
from pack.once import read_once
from pack.plain import UNKNOWN, plain_properties
from pack.registry import all_rules
from pulumi_policy import policy as sdk
from pulumi_policy.deserialize import SPECIAL_SECRET_SIG, SPECIAL_SIG_KEY

from tests.policies import good
from tests.policies.good import Declared, front_end, server
from tests.policies.server import answers, request
from tests.policies.server import server as policy_server

_CHANGED = ("_PolicyAnalyzerServicer", "json_format", "deserialize_properties", "unknown_checking_proxy")
SECRET = {SPECIAL_SIG_KEY: SPECIAL_SECRET_SIG, "value": "-----BEGIN PRIVATE KEY-----\nabc"}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was read of requests, message by message."""
    found: list[Any] = []

    class Counting:
        @staticmethod
        def MessageToDict(message: Any) -> Any:  # noqa: N802 - protobuf's name
            found.append(message)
            return json_format.MessageToDict(message)

    for name in _CHANGED:
        monkeypatch.setattr(sdk, name, getattr(sdk, name))
    monkeypatch.setattr(sdk, "json_format", Counting)
    keep_what_is_secret()
    return found


def shown(*declared: Declared) -> list[Any]:
    """The requests that Pulumi sends about resources."""
    provider = {"type": "pulumi:providers:docker", "urn": "urn:pulumi:t::p::pulumi:providers:docker::n"}
    return [
        request(one.type, one.urn, one.props, {**provider, "props": {"host": one.host}} if one.host else None)
        for one in declared
    ]


BROKEN = (
    server().changed("image", "tensorflow/serving:latest"),
    server(1).changed("image", good.UNKNOWN).changed("memory", good.UNKNOWN),
    server(2).changed("envs[0]", SECRET),
    front_end(),
)


def test_answers_are_the_same_as_the_sdks_own(reads: list[Any]) -> None:
    before = answers(policy_server(), shown(*BROKEN))
    read_once()
    assert answers(policy_server(), shown(*BROKEN)) == before
    assert len({rule for rule, _, _ in before}) > 3
    assert any("is not known in preview" in message for _, _, message in before)


def test_a_resource_is_read_once_whatever_the_number_of_rules(reads: list[Any]) -> None:
    read_once()
    made = policy_server()
    reads.clear()
    [one] = shown(server())
    made.Analyze(one, None)
    assert len(reads) == 2  # its properties and those of its provider
    assert len(all_rules()) > 2


def test_a_resource_that_no_rule_looks_at_is_not_read(reads: list[Any]) -> None:
    read_once()
    made = policy_server()
    reads.clear()
    one = request(
        "tf-serving:index:Pool", "urn:pulumi:t::p::tf-serving:index:Pool::pool", {"image": "latest"}
    )
    assert not made.Analyze(one, None).diagnostics
    made.Remediate(one, None)
    assert reads == []


def test_a_changed_resource_is_judged_anew(reads: list[Any]) -> None:
    read_once()
    made = policy_server()
    assert answers(made, shown(BROKEN[0]))
    fine, broken = answers(made, shown(server(), front_end())), answers(made, shown(BROKEN[0], front_end()))
    assert [said for said in fine if "latest" in said[2]] == []
    assert [said for said in broken if "latest" in said[2]]


def test_an_unknown_and_a_secret_arrive_as_such(reads: list[Any]) -> None:
    read_once()
    found: list[dict[str, object]] = []

    class Looks(sdk.ResourceValidationPolicy):
        def validate(self, args: Any, _report: Any) -> None:
            found.append(plain_properties(args.props))

    made: Any = sdk._PolicyAnalyzerServicer("p", "1", [Looks("a", "b")], sdk.EnforcementLevel.MANDATORY)
    made.Analyze(shown(server().changed("image", good.UNKNOWN).changed("name", SECRET))[0], None)
    assert found[0]["image"] is UNKNOWN
    assert isinstance(found[0]["name"], EncryptedText)
