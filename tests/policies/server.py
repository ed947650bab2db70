"""The SDK's own server over the pack's policies, without the CLI: what is sent, and what is answered."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from pack.adapter import policies
from pulumi.runtime import proto
from pulumi_policy import EnforcementLevel
from pulumi_policy import policy as sdk

CONFIG = Path(__file__).resolve().parents[2] / "policies" / "config"


def server(environment: str = "prod") -> Any:
    """A server as PolicyPack() makes it, with the committed configuration of an environment."""
    made: Any = sdk._PolicyAnalyzerServicer("pack", "0.0.1", policies(), EnforcementLevel.MANDATORY)
    request = proto.ConfigureAnalyzerRequest()
    for name, said in json.loads((CONFIG / f"{environment}.json").read_text()).items():
        one = request.policyConfig[name]
        one.enforcementLevel = proto.EnforcementLevel.Value(said["enforcementLevel"].upper())
        one.properties.update({"environment": said["environment"]})
    made.Configure(request, None)
    return made


def request(
    type_token: str,
    urn: str,
    props: Mapping[str, object],
    provider: Mapping[str, Any] | None = None,
    delete_before_replace: bool = False,
) -> Any:
    """A resource that is about to be made; a provider by `type`, `urn` and `props`."""
    made = proto.AnalyzeRequest(type=type_token, urn=urn, name=urn.rpartition("::")[2])
    json_format.ParseDict(dict(props), made.properties)
    made.options.deleteBeforeReplaceDefined = made.options.deleteBeforeReplace = delete_before_replace
    if provider:
        made.provider.type, made.provider.urn, made.provider.name = (
            provider["type"],
            provider["urn"],
            "provider",
        )
        json_format.ParseDict(dict(provider["props"]), made.provider.properties)
    return made


def whole(shown: Iterable[Any]) -> Any:
    """The same resources as a stack."""
    made = proto.AnalyzeStackRequest()
    for one in shown:
        each = made.resources.add(type=one.type, urn=one.urn, name=one.name)
        each.properties.CopyFrom(one.properties)
        each.options.CopyFrom(one.options)
        if one.HasField("provider"):
            each.provider.CopyFrom(one.provider)
    return made


def answers(to: Any, shown: Iterable[Any]) -> list[tuple[str, str, str]]:
    """What is said of each resource, and then of all: rule, URN and message."""
    found = []
    requests = list(shown)
    for response in (*(to.Analyze(one, None) for one in requests), to.AnalyzeStack(whole(requests), None)):
        found += [(one.policyName, one.urn, one.message) for one in response.diagnostics]
    return found
