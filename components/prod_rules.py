"""Rules for prod alone: what the policy pack refuses there is refused here too, without any pack.

`tests/policies/test_prod_settings.py` holds the two against each other, rule by rule.
"""

import re
from collections import Counter
from collections.abc import Iterator

from components.errors import Problem
from components.labels import helping_labels
from components.placement_rules import placements
from components.pool_settings import Pool, leading_pools
from components.settings import Settings
from components.slots import slots_of

MOST_BATCH_THREADS = 16
_SIMULATOR = re.compile(r"(^|[/_.-])simulator($|[_.-])")
_MOVES = re.compile(r"(^|[-.])latest($|[-.])")
# Three numbers, a date or a commit: a tag that is given once.
_EXACT = re.compile(r"\d+\.\d+\.\d+|(^|\D)\d{8}(\D|$)|(^|[-.])[0-9a-f]{7,40}($|[-.])")
_NOBODY = re.compile(r"(todo|tbd|fixme|unknown|none|null|na|change[-_]?me|-+|x{2,})$", re.IGNORECASE)


def instances_are_kept_apart(settings: Settings) -> Iterator[Problem]:
    """What gives up isolation, by name, is not for prod."""
    for p, pool in enumerate(settings.pools):
        if pool.sharing:
            message = "is refused in prod: give each pool slots of its own, or MIG"
            yield Problem(f"pools[{p}].sharing", message, True)
        if pool.all_gpus:
            message = "is refused in prod: one instance a GPU uses all of them"
            yield Problem(f"pools[{p}].all_gpus", message, True)


def cpus_are_not_shared(settings: Settings) -> Iterator[Problem]:
    """Servers on the same CPUs each start threads as if alone."""
    for n, node in enumerate(settings.nodes):
        if node.share_cpus:
            message = (
                "is refused in prod: give each slot CPUs of its own; or leave cpus out, and set "
                "threads.intra_op and threads.inter_op of the pools"
            )
            yield Problem(f"nodes[{n}].share_cpus", message, True)


def threads_are_said_where_cpus_are_not(settings: Settings) -> Iterator[Problem]:
    """Without CPUs of its own, a server starts threads for every CPU of its node, beside its neighbours."""
    slots = {node.name: slots_of(node) for node in settings.nodes}
    servers = Counter(placed.node for placed in placements(settings))
    reported: set[int] = set()
    for _, p, pool, node, key in placements(settings):
        slot = slots.get(node, {}).get(key)
        if p in reported or slot is None or slot.cpus or servers[node] < 2:
            continue
        said = {"intra_op": pool.threads.intra_op, "inter_op": pool.threads.inter_op}
        if pool.unbatched:  # else they follow from batching
            said |= {"grpc_max": pool.threads.grpc_max, "rest": pool.threads.rest}
        if missing := [name for name, value in said.items() if not value]:
            reported.add(p)
            message = (
                f"in prod {', '.join(missing)} must be set, since slot {key} of {node} has no CPUs of its "
                "own: each server would start threads for all CPUs of the node; or give its slots cpus"
            )
            given = pool.threads.model_dump(exclude_none=True)
            yield Problem(f"pools[{p}].threads", message, given)


def front_ends_name_their_address(settings: Settings) -> Iterator[Problem]:
    """On all addresses, whoever reaches the machine in any way reaches the models."""
    for n, node in enumerate(settings.nodes):
        bind = node.bind or settings.front_end.bind
        if bind.is_unspecified:
            where = "" if node.bind else f", and front_end.bind is {settings.front_end.bind}"
            message = f"in prod the address of the node that clients reach, not all of them{where}"
            yield Problem(f"nodes[{n}].bind", message, str(node.bind) if node.bind else "unset")


def keys_travel_encrypted(settings: Settings) -> Iterator[Problem]:
    """Whoever listens has the key or the token that a client shows in the open."""
    front_end = settings.front_end
    encrypted = front_end.tls is not None or getattr(front_end, "tls_secret", None) is not None
    keys_secret = getattr(front_end, "api_keys_secret", None) is not None
    asked = front_end.auth is not None or keys_secret
    if asked and not encrypted and not front_end.given_up:
        name = "tls_secret" if settings.target == "kubernetes" else "tls"
        shown, way_out = ("api_keys_secret", "") if keys_secret else ("auth", "auth.")
        message = (
            f"is required in prod with front_end.{shown}: keys and tokens would travel in the open; or set "
            f"{way_out}tls_in_front: true where something before the front end speaks TLS"
        )
        yield Problem(f"front_end.{name}", message)


def models_are_batched(settings: Settings) -> Iterator[Problem]:
    """Without batching each request runs alone, and its GPU waits for the next."""
    for p, pool in enumerate(settings.pools):
        if pool.batching is None and not pool.unbatched:
            message = "is required in prod; or set unbatched: true where the models cannot be batched"
            yield Problem(f"pools[{p}].batching", message)


def batches_wait_for_company(settings: Settings) -> Iterator[Problem]:
    """With no time to wait, or a free thread for every request, none is joined by a second one."""
    for p, pool in enumerate(settings.pools):
        batching, path = pool.batching, f"pools[{p}].batching"
        if batching is None:
            continue
        if batching.batch_timeout_micros == 0:
            message = "in prod above 0, such as 1000 to 10000: a batch would never wait for a second request"
            yield Problem(f"{path}.batch_timeout_micros", message, 0)
        if batching.num_batch_threads > MOST_BATCH_THREADS:
            message = (
                f"in prod at most {MOST_BATCH_THREADS}: each request would find a free thread, and run alone"
            )
            yield Problem(f"{path}.num_batch_threads", message, batching.num_batch_threads)


def models_outlive_a_replacement(settings: Settings) -> Iterator[Problem]:
    """While the one instance of a model is replaced, nobody serves it, unless a standby takes over.

    Pools for hot requests and canaries hand theirs to the pool that they help, not the other way; what a
    mirror answers nobody reads.
    """
    count: Counter[str] = Counter()
    leading = {pool.name for pool in leading_pools(settings.pools)}
    for pool in settings.pools:
        if helping_labels(pool, settings.pools):
            continue
        for model in pool.models:
            count.update(dict.fromkeys(model.served_names, _fewest(pool)))
    may_be_down = {
        name for pool in settings.pools if pool.single for model in pool.models for name in model.served_names
    }
    told: set[str] = set()
    for p, pool in enumerate(settings.pools):
        if pool.name not in leading:
            continue
        names = [name for model in pool.models for name in model.served_names]
        alone = [name for name in names if count[name] < 2 and name not in may_be_down | told]
        told.update(alone)
        if alone:
            message = (
                f"is required in prod: the one instance of {', '.join(alone)} is away while it is replaced; "
                "set it to true where that may be, or give the pool a second instance"
            )
            yield Problem(f"pools[{p}].single", message)


def _fewest(pool: Pool) -> int:
    """Instances at least."""
    nodes = getattr(pool, "nodes", None)  # on Kubernetes
    # By GPUs: that one instance has all of them is told by itself.
    return nodes.fewest if nodes else sum(len(group.gpus) for group in pool.slots)


def images_are_exact_releases(settings: Settings) -> Iterator[Problem]:
    """What runs tomorrow under the same name is what runs today, and it is the real thing."""
    if _is_simulator(settings.images.server):
        message = "is refused in prod: a simulator answers without any model; use tensorflow/serving"
        yield Problem("images.server", message, settings.images.server)
    images = {"images.envoy": settings.images.envoy}  # the server's tag names its version anyway
    for p, pool in enumerate(settings.pools):
        of_models = getattr(getattr(pool, "model_volume", None), "image", None)
        images |= {f"pools[{p}].model_volume.image": of_models} if of_models else {}
    for path, image in images.items():
        name, _, digest = image.partition("@")
        tag = name.rpartition(":")[2]
        if _MOVES.search(tag) or (not digest and not _EXACT.search(tag)):
            message = (
                "is refused in prod: its tag moves along with releases; name an exact one, such as 1.40.0"
            )
            yield Problem(path, message, image)


def _is_simulator(image: str) -> bool:
    repository = image.partition("@")[0].rpartition(":")[0]
    return _SIMULATOR.search(repository.rpartition("/")[2]) is not None


def somebody_owns_it(settings: Settings) -> Iterator[Problem]:
    """Whoever finds a container of prod on a machine must find out whom to ask."""
    if settings.owner is None:
        yield Problem("owner", "is required in prod: the team to ask about what runs")
    elif _NOBODY.match(settings.owner):
        yield Problem("owner", "says nothing: in prod the team to ask about what runs", settings.owner)
