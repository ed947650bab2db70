"""Rules between parts of a stack file for Kubernetes: what fits the nodes, and what would never be placed."""

import re
from collections.abc import Callable, Iterator, Mapping

from components.cluster_settings import SHARED, NodePool
from components.errors import Problem
from components.facts import facts, server_version, version_number
from components.kubernetes_settings import KubernetesPool, KubernetesSettings
from components.model_sizes import most_at_once, room_of, too_much, usable_mib

Rule = Callable[[KubernetesSettings], Iterator[Problem]]
_MIG = "nvidia.com/mig-"
# Names of objects that belong to no pool, and what is put behind the name of a pool for its own.
_TAKEN = ("acceptance", "adapter-rules", "envoy", "namespace", "servers-network")
_PARTS = ("autoscaler", "budget", "files", "models", "service")


def _placed(settings: KubernetesSettings) -> Iterator[tuple[str, KubernetesPool, NodePool | None]]:
    """Each pool: where it says its nodes, itself, and the node pool if there is one of that name."""
    by_name = {pool.name: pool for pool in settings.node_pools}
    for p, pool in enumerate(settings.pools):
        yield f"pools[{p}].nodes", pool, by_name.get(pool.nodes.pool)


def _on(settings: KubernetesSettings, name: str) -> list[KubernetesPool]:
    return [pool for pool in settings.pools if pool.nodes.pool == name]


def node_pools_exist(settings: KubernetesSettings) -> Iterator[Problem]:
    """A pool can only go to nodes that are said."""
    accepted = ", ".join(pool.name for pool in settings.node_pools)
    for path, pool, nodes in _placed(settings):
        if nodes is None:
            yield Problem(f"{path}.pool", f"no such node pool; accepted: {accepted}", pool.nodes.pool)


def node_pools_have_work(settings: KubernetesSettings) -> Iterator[Problem]:
    """A node pool that no pool names is a slip."""
    used = {pool.nodes.pool for pool in settings.pools}
    for n, nodes in enumerate(settings.node_pools):
        if nodes.name not in used:
            yield Problem(f"node_pools[{n}]", "no pool goes there; name it in one or remove it", nodes.name)


def gpus_are_enough(settings: KubernetesSettings) -> Iterator[Problem]:
    """Pods beyond the GPUs of their nodes would stay Pending, those of an autoscaler too."""
    for n, nodes in enumerate(settings.node_pools):
        pools = _on(settings, nodes.name)
        wanted = sum(pool.nodes.most * pool.nodes.gpus for pool in pools) + nodes.spare_gpus
        if wanted > nodes.gpus:
            parts = [f"{pool.nodes.most} x {pool.nodes.gpus} ({pool.name})" for pool in pools]
            parts += [f"{nodes.spare_gpus} (spare)"] if nodes.spare_gpus else []
            yield Problem(
                f"node_pools[{n}]",
                f"its pods ask for {' + '.join(parts)} = {wanted} GPUs, and {nodes.nodes} x "
                f"{nodes.gpus_per_node} = {nodes.gpus} are there",
                nodes.name,
            )


def pods_fit_a_node(settings: KubernetesSettings) -> Iterator[Problem]:
    """A pod is on one node, and as many are as it has GPUs for."""
    for path, pool, nodes in _placed(settings):
        if nodes is None:
            continue
        count = pool.nodes.on_the_fullest(nodes)
        if not count:
            message = f"a node of {nodes.name} has {nodes.gpus_per_node}"
            yield Problem(f"{path}.gpus", message, pool.nodes.gpus)
            continue
        if nodes.cpus_per_node is not None and count * pool.nodes.cpus > nodes.cpus_per_node:
            message = f"{count} pods on a node of {nodes.name} need more than its {nodes.cpus_per_node} CPUs"
            yield Problem(f"{path}.cpus", message, pool.nodes.cpus)
        memory, limit = nodes.memory_mib_per_node, pool.memory.container_mib
        if memory is not None and count * limit > memory:
            place = f"{path.removesuffix('.nodes')}.memory.container_mib"
            message = f"{count} pods on a node of {nodes.name} need more than its {memory} MiB"
            yield Problem(place, message, limit)


def surges_have_spare_gpus(settings: KubernetesSettings) -> Iterator[Problem]:
    """A new pod without a free GPU waits for the old one, which waits for the new one: for ever."""
    for nodes in settings.node_pools:
        left = nodes.spare_gpus
        for path, pool, placed in _placed(settings):
            if placed is nodes and pool.nodes.surge:
                left -= pool.nodes.surge * pool.nodes.gpus
                if left < 0:
                    message = (
                        f"needs {pool.nodes.surge * pool.nodes.gpus} free GPUs while a change rolls, and "
                        f"{nodes.name} has spare_gpus {nodes.spare_gpus}: it would never end; set surge: 0"
                    )
                    yield Problem(f"{path}.surge", message, pool.nodes.surge)


def gpu_models_are_known(settings: KubernetesSettings) -> Iterator[Problem]:
    """What a GPU can be is in the facts."""
    for n, nodes in enumerate(settings.node_pools):
        if nodes.gpu_model is not None and nodes.gpu_model not in facts().gpus:
            accepted = ", ".join(facts().gpus)
            yield Problem(f"node_pools[{n}].gpu_model", f"accepted: {accepted}", nodes.gpu_model)


def mig_profiles_exist(settings: KubernetesSettings) -> Iterator[Problem]:
    """Each card has profiles of its own, and so many of each."""
    for n, nodes in enumerate(settings.node_pools):
        card = facts().gpus.get(nodes.gpu_model or "")
        if card is None or not nodes.gpu_resource.startswith(_MIG):
            continue
        profile = nodes.gpu_resource.removeprefix(_MIG)
        if profile not in card.mig:
            accepted = ", ".join(f"{_MIG}{name}" for name in card.mig) or "none: it cannot be cut"
            message = f"{nodes.gpu_model} has no such profile; accepted: {accepted}"
            yield Problem(f"node_pools[{n}].gpu_resource", message, nodes.gpu_resource)


def models_fit_twice(settings: KubernetesSettings) -> Iterator[Problem]:
    """As on Docker: where models say their sizes (gpu_mib) and the kind of GPU is known."""
    for path, pool, nodes in _placed(settings):
        needed = most_at_once(pool, "gpu_mib")
        room = room_of(nodes.gpu_model, nodes.gpu_resource) if nodes else None
        if needed is not None and room is not None and needed > usable_mib(pool, room):
            place = f"{path.removesuffix('.nodes')}.models"
            yield Problem(place, too_much(needed, usable_mib(pool, room)))


def shared_gpus_say_how_much(settings: KubernetesSettings) -> Iterator[Problem]:
    """Pods on one GPU are not kept apart: not in prod, and each must say what it takes."""
    for path, pool, nodes in _placed(settings):
        if nodes is None or not nodes.gpu_resource.endswith(SHARED):
            continue
        if settings.environment == "prod":
            n = settings.node_pools.index(nodes)
            message = "is refused in prod: pods that share a GPU are not kept apart; cut it up (MIG)"
            yield Problem(f"node_pools[{n}].gpu_resource", message, nodes.gpu_resource)
        elif pool.gpu_memory.fraction is None:
            place = f"{path.removesuffix('.nodes')}.gpu_memory.fraction"
            yield Problem(place, "is required on shared GPUs: by default one server takes all")


def nodes_run_the_image(settings: KubernetesSettings) -> Iterator[Problem]:
    """Driver and GPU suit the CUDA of the server's image."""
    image = settings.images.server
    release = facts().release(server_version(image) or "")
    if release is None:
        return
    for n, nodes in enumerate(settings.node_pools):
        if nodes.driver and version_number(nodes.driver) < version_number(release.minimum_driver):
            message = f"{image} carries CUDA {release.cuda}: driver {release.minimum_driver} or newer"
            yield Problem(f"node_pools[{n}].driver", message, nodes.driver)
        card = facts().gpus.get(nodes.gpu_model or "")
        if card and version_number(card.capability)[0] > version_number(release.newest_capability)[0]:
            message = f"{image} was built for compute capability {release.newest_capability} at most"
            yield Problem(f"node_pools[{n}].gpu_model", message, nodes.gpu_model)


def paths_are_absolute(settings: KubernetesSettings) -> Iterator[Problem]:
    """`./…` means this project's folder, which no pod has."""
    for p, pool in enumerate(settings.pools):
        for m, model in enumerate(pool.models):
            paths = {"path": model.path} | (
                {"optimized.path": model.optimized.path} if model.optimized else {}
            )
            for name, path in paths.items():
                if path.startswith("./"):
                    message = "is relative to this project, which no pod has; give an absolute path"
                    yield Problem(f"pools[{p}].models[{m}].{name}", message, path)


def names_are_free(settings: KubernetesSettings) -> Iterator[Problem]:
    """Objects of pools and of the front end are told apart by the pool's name."""
    names = {pool.name for pool in settings.pools}
    for p, pool in enumerate(settings.pools):
        whole, _, part = pool.name.rpartition("-")
        taken = pool.name in _TAKEN or pool.name.startswith(("acceptance-", "envoy-"))
        if taken or (part in _PARTS and whole in names):
            yield Problem(
                f"pools[{p}].name", "is taken on Kubernetes: another object has this name", pool.name
            )


def prod_is_not_open_on_every_node(settings: KubernetesSettings) -> Iterator[Problem]:
    """A port of all nodes is on all of their addresses."""
    if settings.environment == "prod" and settings.front_end.service == "NodePort":
        message = "is refused in prod: open on all addresses of all nodes; ClusterIP or LoadBalancer"
        yield Problem("front_end.service", message, "NodePort")


# Clouds' words for a balancer that only their own network reaches, and for an address that it is given; the
# policy pack has the same (only_the_front_end_publishes.py).
_INTERNAL = re.compile(r"internal", re.IGNORECASE)
_ADDRESS = re.compile(r"source-?ranges|eip|static-?ip|ip-?name|ip-?address|ips?$", re.IGNORECASE)


def prod_says_who_reaches_a_balancer(settings: KubernetesSettings) -> Iterator[Problem]:
    """By default a cloud gives a balancer a public address, for everybody."""
    front_end = settings.front_end
    if settings.environment != "prod" or front_end.service != "LoadBalancer" or front_end.source_ranges:
        return
    if not any(_narrows(name, value) for name, value in front_end.service_annotations.items()):
        message = (
            "is required in prod with service: LoadBalancer: networks that may connect; or your cloud's "
            "annotation for an internal balancer or an address, in service_annotations"
        )
        yield Problem("front_end.source_ranges", message)


def _narrows(name: str, value: str) -> bool:
    if value.lower() in ("", "false"):
        return False
    return bool(_INTERNAL.search(name) or _ADDRESS.search(name)) or value.lower() == "internal"


def versions_change_in_place(settings: KubernetesSettings) -> Iterator[Problem]:
    """A cluster rolls pods by itself, and all of them have the pool's versions."""
    for p, pool in enumerate(settings.pools):
        named = {"release": pool.release is not None, "new_versions": pool.new_versions == "replace"}
        for name in (name for name, said in named.items() if said):
            message = (
                "is for Docker; on Kubernetes give a pool of its own the new version and a share of the "
                "requests (traffic.canary), or change versions: pods take that up in place"
            )
            yield Problem(f"pools[{p}].{name}", message)


KUBERNETES_RULES: tuple[Rule, ...] = (
    node_pools_exist,
    node_pools_have_work,
    gpus_are_enough,
    pods_fit_a_node,
    surges_have_spare_gpus,
    gpu_models_are_known,
    mig_profiles_exist,
    models_fit_twice,
    shared_gpus_say_how_much,
    nodes_run_the_image,
    paths_are_absolute,
    names_are_free,
    prod_is_not_open_on_every_node,
    prod_says_who_reaches_a_balancer,
    versions_change_in_place,
)

NEEDED_WHOLE: Mapping[Rule, tuple[str, ...]] = {
    node_pools_exist: ("node_pools",),
    node_pools_have_work: ("pools",),
    nodes_run_the_image: ("images",),
    shared_gpus_say_how_much: ("environment",),
    prod_is_not_open_on_every_node: ("environment", "front_end"),
    prod_says_who_reaches_a_balancer: ("environment", "front_end"),
}
