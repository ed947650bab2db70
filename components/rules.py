"""Rules that hold between parts of a stack file: one function a rule, named for it.

Each yields a `Problem` per finding; `RULES` is all of them, in the order in which they are reported.
"""

from collections.abc import Callable, Iterator
from itertools import combinations

from components import versions
from components.errors import Problem
from components.settings import Pool, Settings, SlotGroup

Rule = Callable[[Settings], Iterator[Problem]]
Placed = tuple[str, Pool, SlotGroup, int]
"""Path of a GPU index in the stack file, its pool, its group and the index."""


def _placements(settings: Settings) -> Iterator[Placed]:
    for p, pool in enumerate(settings.pools):
        for g, group in enumerate(pool.slots):
            for i, gpu in enumerate(group.gpus):
                yield f"pools[{p}].slots[{g}].gpus[{i}]", pool, group, gpu


def names_are_unique(settings: Settings) -> Iterator[Problem]:
    """Nodes, pools and GPUs are told apart by name, name and UUID."""
    seen: dict[tuple[str, str], str] = {}
    named = [
        *((("node", node.name), f"nodes[{n}].name") for n, node in enumerate(settings.nodes)),
        *((("pool", pool.name), f"pools[{p}].name") for p, pool in enumerate(settings.pools)),
        *(
            (("GPU", gpu.uuid), f"nodes[{n}].gpus[{g}].uuid")
            for n, node in enumerate(settings.nodes)
            for g, gpu in enumerate(node.gpus)
        ),
    ]
    for (kind, value), path in named:
        first = seen.setdefault((kind, value), path)
        # Twins inside one node are that node's own finding.
        if first != path and first.partition("].")[0] != path.partition("].")[0]:
            yield Problem(path, f"is also {first}", value)


def slots_exist(settings: Settings) -> Iterator[Problem]:
    """A pool can only take GPUs that a node has."""
    nodes = {node.name: {gpu.index for gpu in node.gpus} for node in settings.nodes}
    for p, pool in enumerate(settings.pools):
        for g, group in enumerate(pool.slots):
            if group.node not in nodes:
                yield Problem(
                    f"pools[{p}].slots[{g}].node", f"no such node; accepted: {', '.join(nodes)}", group.node
                )
    for path, _, group, gpu in _placements(settings):
        if group.node in nodes and gpu not in nodes[group.node]:
            accepted = ", ".join(str(index) for index in sorted(nodes[group.node]))
            yield Problem(path, f"node {group.node} has no such GPU; accepted: {accepted}", gpu)


def slots_have_one_owner(settings: Settings) -> Iterator[Problem]:
    """Two servers on one GPU: the first takes its memory, the second runs out of it."""
    owner: dict[tuple[str, int], tuple[str, str]] = {}
    for path, pool, group, gpu in _placements(settings):
        first, owning_pool = owner.setdefault((group.node, gpu), (path, pool.name))
        if first != path:
            yield Problem(
                path, f"GPU {gpu} of {group.node} is already taken by {first} (pool {owning_pool})", gpu
            )


def models_belong_to_one_pool(settings: Settings) -> Iterator[Problem]:
    """Envoy routes by model name, so a name leads to one pool."""
    owner: dict[str, str] = {}
    for p, pool in enumerate(settings.pools):
        for m, model in enumerate(pool.models):
            first = owner.setdefault(model.name, pool.name)
            if first != pool.name:
                yield Problem(f"pools[{p}].models[{m}].name", f"is also served by pool {first}", model.name)


def memory_fits_the_node(settings: Settings) -> Iterator[Problem]:
    """The limits of a node's containers together stay below its RAM: otherwise the kernel picks a victim."""
    for n, node in enumerate(settings.nodes):
        demands = [
            (pool, sum(len(group.gpus) for group in pool.slots if group.node == node.name))
            for pool in settings.pools
        ]
        front_end = settings.front_end.memory_mib
        total = front_end + sum(count * pool.memory.container_mib for pool, count in demands)
        if total >= node.memory_mib:
            parts = " + ".join(
                f"{count} x {pool.memory.container_mib} ({pool.name})" for pool, count in demands if count
            )
            yield Problem(
                f"nodes[{n}].memory_mib",
                f"its containers may use {parts} + {front_end} (Envoy) = {total} MiB: more than it can give",
                node.memory_mib,
            )


def image_runs_on_the_node(settings: Settings) -> Iterator[Problem]:
    """The server's version is known, has GPU code, and each node's driver runs its CUDA."""
    facts = versions.facts()
    image = settings.images.server
    version = versions.server_version(image)
    if version is None:
        yield Problem(
            "images.server", "the tag must name the version, such as tensorflow/serving:2.14.1-gpu", image
        )
        return
    if version in facts.never_released:
        yield Problem(
            "images.server", f"{version} was never released; use {facts.never_released[version]}", image
        )
        return
    release = facts.release(version)
    if release is None:
        yield Problem("images.server", f"unknown version; accepted: {', '.join(facts.versions())}", image)
        return
    if not versions.is_gpu_image(image):
        yield Problem("images.server", f"has no GPU code; use the tag {version}-gpu", image)
    for n, node in enumerate(settings.nodes):
        if node.driver and versions.version_number(node.driver) < versions.version_number(
            release.minimum_driver
        ):
            yield Problem(
                f"nodes[{n}].driver",
                f"{image} carries CUDA {release.cuda}, which needs driver {release.minimum_driver} or newer",
                node.driver,
            )


def relative_paths_are_local(settings: Settings) -> Iterator[Problem]:
    """`./…` means this project's folder, which another machine does not have."""
    remote = {node.name for node in settings.nodes if node.docker.endpoint.startswith("ssh://")}
    for p, pool in enumerate(settings.pools):
        nodes = sorted(remote & {group.node for group in pool.slots})
        for m, model in enumerate(pool.models):
            if nodes and model.path.startswith("./"):
                yield Problem(
                    f"pools[{p}].models[{m}].path",
                    f"is relative to this project, absent on {', '.join(nodes)}; give an absolute path",
                    model.path,
                )


def subnets_are_apart(settings: Settings) -> Iterator[Problem]:
    """Nodes on one Docker Engine need networks that do not overlap."""
    for (a, first), (b, second) in combinations(enumerate(settings.nodes), 2):
        if first.docker.endpoint == second.docker.endpoint and first.subnet.overlaps(second.subnet):
            yield Problem(
                f"nodes[{b}].subnet", f"overlaps nodes[{a}].subnet {first.subnet}", str(second.subnet)
            )


def front_end_ports_are_apart(settings: Settings) -> Iterator[Problem]:
    """Nodes on one Docker Engine would publish the same front-end ports twice."""
    for (a, first), (b, second) in combinations(enumerate(settings.nodes), 2):
        if first.docker.endpoint == second.docker.endpoint:
            yield Problem(
                f"nodes[{b}].docker.endpoint",
                f"is also that of nodes[{a}]; one node per Docker Engine: each publishes the same ports",
                second.docker.endpoint,
            )


def nodes_have_work(settings: Settings) -> Iterator[Problem]:
    """A front end without instances would answer 503 to everything."""
    used = {group.node for pool in settings.pools for group in pool.slots}
    for n, node in enumerate(settings.nodes):
        if node.name not in used:
            yield Problem(f"nodes[{n}]", "no pool has a slot on it; add one or remove the node", node.name)


RULES: tuple[Rule, ...] = (
    names_are_unique,
    slots_exist,
    slots_have_one_owner,
    models_belong_to_one_pool,
    memory_fits_the_node,
    image_runs_on_the_node,
    relative_paths_are_local,
    subnets_are_apart,
    front_end_ports_are_apart,
    nodes_have_work,
)


def broken_rules(settings: Settings) -> Iterator[Problem]:
    """Every finding of every rule."""
    for rule in RULES:
        yield from rule(settings)
