"""What else can be told of a stack file that has a mistake: rules run on the parts that are right."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from components.errors import Problem
from components.node_settings import Node
from components.partly_right import wrong_fields
from components.pool_settings import Pool
from components.rules import broken_rules
from components.settings import Images, Settings

_LISTS = ("nodes", "node_pools", "pools")
_ITEM = re.compile(rf"\b({'|'.join(_LISTS)})\[(\d+)\]")


class _RightParts(Settings):
    """Settings that may lack what they must have."""

    nodes: tuple[Node, ...] = ()
    pools: tuple[Pool, ...] = ()
    images: Images = Images.model_construct(server="", envoy="")

    def _rules(self) -> Iterator[Problem]:
        """Told beside the mistakes (`partly_right.py`)."""
        yield from ()


def _model_of_right_parts(model: type[Settings]) -> type[Settings]:
    if model is Settings:
        return _RightParts
    from components.cluster_settings import Cluster, NodePool
    from components.kubernetes_settings import KubernetesPool, KubernetesSettings

    class _RightKubernetesParts(KubernetesSettings):
        cluster: Cluster = Cluster.model_construct(namespace="")
        node_pools: tuple[NodePool, ...] = ()
        pools: tuple[KubernetesPool, ...] = ()
        images: Images = Images.model_construct(server="", envoy="")

        def _rules(self) -> Iterator[Problem]:
            yield from ()

    return _RightKubernetesParts


def broken_rules_of_right_parts(
    config: Mapping[str, object], error: ValidationError, model: type[Settings]
) -> Iterator[Problem]:
    """Findings of the rules that need nothing of what `error` says is wrong in `config`.

    A node or a pool with a mistake is left out; what only follows from that is not told.
    """
    wrong = {tuple(detail["loc"][:2]) for detail in error.errors(include_url=False)}
    parts, kept = _right_parts(config, wrong)
    try:
        settings = _model_of_right_parts(model).model_validate_json(json.dumps(parts, default=str))
    except ValidationError:  # not even JSON
        return
    absent = wrong_fields(model, (str(place[0]) for place in wrong if place))
    absent |= {name for name, field in model.model_fields.items() if field.is_required()} - parts.keys()
    for problem in broken_rules(settings, absent):
        yield replace(
            problem, path=_renumbered(problem.path, kept), message=_renumbered(problem.message, kept)
        )


def _right_parts(
    config: Mapping[str, object], wrong: set[tuple[int | str, ...]]
) -> tuple[dict[str, object], dict[str, list[int]]]:
    """The parts without a mistake, and for each list where its items stood."""
    parts: dict[str, object] = {}
    kept: dict[str, list[int]] = {}
    for key, value in config.items():
        if key in _LISTS and isinstance(value, list) and (key,) not in wrong:
            kept[key] = [position for position in range(len(value)) if (key, position) not in wrong]
            parts[key] = [value[position] for position in kept[key]]
        elif not any(place[:1] == (key,) for place in wrong):
            parts[key] = value
    return parts, kept


def _renumbered(text: str, kept: Mapping[str, Sequence[int]]) -> str:
    return _ITEM.sub(lambda found: f"{found[1]}[{kept[found[1]][int(found[2])]}]", text)
