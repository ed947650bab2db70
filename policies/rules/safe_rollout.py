"""A change replaces one server at a time, and never the last one that serves a model."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from pack.models import served
from pack.rollouts import Autoscaler, Rollout, autoscaler, rollout
from pack.rule import Finding, Params, Rule, about
from pack.stack import Stack
from pack.workload import Workload

NAME = "safe-rollout"
_PLAIN = "give it as a plain value"
_LEAST = 2.0
# What `helps` says of a pool that never takes over; a standby does.
_SHARES = ("canary", "dedicated", "mirror")
_SINGLE = "the label tf-serving.single: 'true' (`single` of a pool) says that it may be down"


def check(stack: Stack, params: Params) -> Iterator[Finding]:
    """Docker by dependencies between containers, Kubernetes by the strategy of its workloads."""
    docker = [
        one for one in stack.workloads if one.target == "docker" and one.role in ("server", "front-end")
    ]
    for workload in docker:
        if not workload.is_exempt_from(NAME):
            yield from _makes_room_first(workload)
    yield from _one_after_the_other(stack, [one for one in docker if one.is_server])
    yield from _kubernetes(stack)
    if params.environment == "prod":
        yield from _one_stays(stack, int(params.number("leastInstances", _LEAST)))


def _makes_room_first(workload: Workload) -> Iterator[Finding]:
    """Two containers of one name, or one port, or one GPU cannot be there at once."""
    if not workload.resource.delete_before_replace:
        what = "deleteBeforeReplace: unset: its successor would be made while it has the name, and the GPU"
        fix = "set the resource option delete_before_replace=True, and replace one at a time"
        yield about(workload, what, fix)


def _one_after_the_other(stack: Stack, servers: list[Workload]) -> Iterator[Finding]:
    """Of two servers of a pool one depends on the other: else both are replaced at once.

    A pool may have several such chains, where a label on what publishes its files says how many.
    """
    depends_on = {resource.urn: resource.depends_on for resource in stack.resources}
    depths = _depths(depends_on)
    for pool, members in _pools(stack, servers).items():
        counted = sorted(members, key=lambda one: (depths[one.urn], one.name))
        most = _most_at_once(stack, pool)
        ends: list[Workload] = []
        for later in counted:
            behind = [one for one in ends if _waits_for(later.urn, one.urn, depends_on, depths)]
            if behind:
                ends[ends.index(behind[0])] = later
            elif len(ends) < most:
                ends.append(later)
            else:
                earlier, ends[-1] = ends[-1], later
                what = f"dependsOn: {earlier.name} is not among what it waits for: both are replaced at once"
                chains = "one chain" if most == 1 else f"{most} chains"
                yield about(later, what, f"depends_on=[{earlier.name}]: servers of {pool} form {chains}")


def _most_at_once(stack: Stack, pool: str) -> int:
    """How many of a pool may be away at once, as the label of what publishes its files says."""
    labels = (one.label("max-unavailable") for one in stack.workloads if f"pool {one.label('pool')}" == pool)
    return max((int(said) for said in labels if said and said.isdecimal()), default=1)


def _pools(stack: Stack, servers: list[Workload]) -> Mapping[str, list[Workload]]:
    """Servers by the pool that their labels name, else by what they serve."""
    pools: dict[str, list[Workload]] = defaultdict(list)
    for server in servers:
        pool = server.label("pool")
        models = ", ".join(served(stack, server))
        if pool or models:
            pools[f"pool {pool}" if pool else f"model {models}"].append(server)
    return pools


def _depths(depends_on: Mapping[str, tuple[str, ...]]) -> Mapping[str, int]:
    """How long the longest line of dependencies behind each resource is."""
    depths: dict[str, int] = {}
    for urn in depends_on:
        waiting = [urn]
        while waiting:
            one = waiting[-1]
            if behind := [b for b in depends_on.get(one, ()) if b not in depths]:
                waiting.extend(behind)
                continue
            depths[waiting.pop()] = 1 + max((depths[b] for b in depends_on.get(one, ())), default=0)
    return depths


def _waits_for(
    later: str, earlier: str, depends_on: Mapping[str, tuple[str, ...]], depths: Mapping[str, int]
) -> bool:
    """Whether one resource depends on another, directly or not; what is nearer the start is not looked at."""
    seen: set[str] = set()
    waiting = [later]
    while waiting:
        one = waiting.pop()
        for behind in depends_on.get(one, ()):
            if behind == earlier:
                return True
            if behind not in seen and depths[behind] > depths[earlier]:
                seen.add(behind)
                waiting.append(behind)
    return False


def _kubernetes(stack: Stack) -> Iterator[Finding]:
    scalers = [one for each in stack.resources if (one := autoscaler(each)) is not None]
    for resource in stack.resources:
        found = rollout(resource)
        if found is None:
            continue
        servers = [one for one in stack.workloads if one.resource is resource and one.is_server]
        if not servers:
            continue
        scaler = next((one for one in scalers if one.target == (found.kind, found.name)), None)
        yield from _unread(found)
        yield from _strategy(found, servers[0])
        if scaler is not None:
            yield from _unread(scaler)
            yield from _scaled(scaler, found, servers[0])


def _unread(found: Rollout | Autoscaler) -> Iterator[Finding]:
    for name, what in (("strategy", "Strategy"), ("replicas", "Number of replicas")):
        for each in found.unread.get(name, ()):
            words = "cannot be read" if each.odd else "is not known in preview"
            yield Finding(resource=found.resource, what=f"{what} of {found.name} {words}: {each}", fix=_PLAIN)


def _strategy(found: Rollout, server: Workload) -> Iterator[Finding]:
    if found.unread.get("strategy") or found.strategy == "OnDelete":
        return
    at = "spec.strategy" if found.kind == "Deployment" else "spec.updateStrategy"
    if found.strategy == "Recreate":
        what = f"{at}.type: Recreate: all its pods are gone at once"
        yield about(found, what, "RollingUpdate with maxSurge: 0 and maxUnavailable: 1")
        return
    replicas = 1 if found.replicas is None else found.replicas
    gpus = sum(request.count or 0 for request in server.gpus if ".limits[" in request.path)
    room = _free_gpus(server, replicas * gpus)
    if found.surge * max(gpus, 1) > room:
        what = (
            f"{at}.rollingUpdate.maxSurge: {found.surge_text}: where every GPU is taken the new pod waits "
            "for ever"
        )
        yield about(found, what, "set maxSurge: 0 and maxUnavailable: 1, written out: neither is the default")
    elif found.surge == 0 and found.unavailable == 0:
        what = (
            f"{at}.rollingUpdate: maxSurge 0 and maxUnavailable {found.unavailable_text}: nothing can change"
        )
        yield about(found, what, "set maxUnavailable: 1")
    if replicas > 1 and found.unavailable >= replicas:
        what = f"{at}.rollingUpdate.maxUnavailable: {found.unavailable_text}: all {replicas} pods at once"
        yield about(found, what, "set maxUnavailable: 1")


def _free_gpus(server: Workload, taken: int) -> int:
    """GPUs of its nodes that its pods leave free; none where no label tells how many there are."""
    said = server.label("pool-gpus") or ""
    return max(0, int(said) - taken) if said.isdecimal() else 0


def _scaled(scaler: Autoscaler, found: Rollout, server: Workload) -> Iterator[Finding]:
    if found.replicas is not None:
        what = f"spec.replicas: {found.replicas}: {scaler.name} scales it, and every `up` would set it back"
        yield about(found, what, "leave spec.replicas out")
    if scaler.least < 1:
        what = f"spec.minReplicas: {scaler.least}: the last pod goes, and loading a model takes minutes"
        yield about(scaler, what, "set minReplicas to 1 or more")
    said, gpus = server.label("pool-gpus") or "", sum(one.count or 0 for one in server.gpus[:1])
    if said.isdecimal() and scaler.most * gpus > int(said):
        what = f"spec.maxReplicas: {scaler.most} want {scaler.most * gpus} GPUs, and their nodes have {said}"
        yield about(scaler, what, "lower maxReplicas, or add nodes")


def _one_stays(stack: Stack, least: int) -> Iterator[Finding]:
    """While one instance is replaced, another one serves its models."""
    of_model: dict[str, list[Workload]] = defaultdict(list)
    count: dict[str, int] = defaultdict(int)
    scalers = {one.target: one for each in stack.resources if (one := autoscaler(each)) is not None}
    # The label is on what publishes a pool's files, or on the server itself.
    shares = {one.label("pool") or one.urn for one in stack.workloads if one.label("helps") in _SHARES}
    for server in stack.servers:
        if (server.label("pool") or server.urn) in shares:
            continue
        scale = rollout(server.resource)
        scaler = scalers.get((scale.kind, scale.name)) if scale else None
        for model in served(stack, server):
            of_model[model].append(server)
            count[model] += scaler.least if scaler else server.replicas
    reported: set[str] = set()
    for model, servers in of_model.items():
        first = servers[0]
        if count[model] >= least or first.urn in reported or any(one.says("single") for one in servers):
            continue
        reported.add(first.urn)
        what = f"instances: {count[model]} of {model}: while it is replaced, nobody serves {model}"
        yield about(first, what, f"a second instance, on another GPU; or {_SINGLE}")


RULES = (
    Rule(
        name=NAME,
        scope="stack",
        protects="A change replaces servers one at a time, and at least one of each model stays",
        severity="high",
        steps=(
            "Docker: delete_before_replace, and each server depends on the one before it in its pool (with "
            "`max_unavailable: n`, on the n-th before it). "
            "Kubernetes: maxSurge 0 and maxUnavailable 1, written out, on nodes whose GPUs are all taken. "
            "Two instances of a model, or say that it may be down."
        ),
        why=(
            "https://github.com/defilantech/LLMKube/issues/192",
            "https://github.com/pulumi/pulumi-docker/issues/1356",
            "https://github.com/kserve/kserve/issues/4618",
        ),
        exempt=(
            "What only gets a share of another pool's requests says so (`tf-serving.helps: canary`, "
            "`dedicated` or `mirror`, on what publishes its files or on itself) and is not counted. "
            "Several at a time by `tf-serving.max-unavailable: '2'` on what publishes the pool's files. "
            "A front end by the label `tf-serving.exempt: safe-rollout`; a model with one instance by "
            "`tf-serving.single: 'true'` on it. A surge is accepted where the label `tf-serving.pool-gpus` "
            "says that there is room for it."
        ),
        levels={"local": "advisory", "staging": "mandatory", "prod": "mandatory"},
        check=check,
        schema={
            "leastInstances": {
                "type": "number",
                "minimum": 1,
                "default": _LEAST,
                "description": "instances of each model in prod",
            }
        },
    ),
)
