"""How a version gets into a request: over REST into the path, over gRPC into the message, by a Lua filter."""

import re

from components.envoy_config import Config, extension, typed
from components.envoy_targets import Target
from components.front_end_plan import FrontEndPlan
from components.scripts import script

MODEL_SPEC_FILTER = "envoy.filters.http.lua"
_SCRIPT = "model_spec.lua"


def rest_rewrite(model: str, target: Target, prediction: str) -> Config:
    """The part of a route that puts the target's version into the path.

    Where a header holds it, `prediction` is what is asked (`predict`): the path is then written as a whole.
    """
    begin = f"/v1/models/{model}"
    if target.number_in is not None:
        return {"path_rewrite": f"{begin}/versions/%REQ({target.number_in})%:{prediction}"}
    chosen = f"labels/{target.label}" if target.label is not None else f"versions/{target.version}"
    pattern = f"^/v1/models/{re.escape(model)}"
    return {"regex_rewrite": {"pattern": {"regex": pattern}, "substitution": f"{begin}/{chosen}"}}


def grpc_rewrite(target: Target, *, required: bool) -> Config:
    """The part of a route that has the filter put the target's version into the message.

    `required`: a message that cannot be changed is refused rather than passed on for the newest version.
    """
    context: Config = {"required": "yes"} if required else {}
    if target.number_in is not None:
        context["number_in"] = target.number_in
    else:
        context["spec"] = model_spec(target).hex()
    per_route = typed("extensions.filters.http.lua.v3.LuaPerRoute", {"filter_context": context})
    return {"typed_per_filter_config": {MODEL_SPEC_FILTER: per_route}}


def model_spec_filter() -> Config:
    """The filter that the routes of `grpc_rewrite` switch on; for all others it is not there."""
    source = {"default_source_code": {"inline_string": script(_SCRIPT)}}
    return {**extension("filters.http.lua", "filters.http.lua.v3.Lua", source), "disabled": True}


def rewrites_messages(front_end: FrontEndPlan) -> bool:
    """Whether any gRPC request may be given a version."""
    return front_end.spec.versions.grpc


def model_spec(target: Target) -> bytes:
    """Field 1 of a request, a ModelSpec with nothing but the target's label or version."""
    if target.label is not None:
        return _field(1, _field(4, target.label.encode()))
    assert target.version is not None  # noqa: S101 - a target that rewrites names one of them
    return _field(1, _field(2, bytes([1 << 3]) + _varint(target.version)))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])
