"""Rules about what fits: memory of nodes, containers and GPUs, and what the image and the driver can do."""

from collections.abc import Iterator

from components.errors import Problem
from components.facts import Release, facts, is_gpu_image, server_version, version_number
from components.model_sizes import most_at_once, smallest, too_much, usable_mib
from components.settings import Settings
from components.slots import slots_of

# For the engine, the kernel and the cache of model files.
_NODE_RESERVE_MIB = 1024


def memory_fits_the_node(settings: Settings) -> Iterator[Problem]:
    """The limits of a node's containers together stay below its RAM: otherwise the kernel picks a victim."""
    front_end = settings.front_end.container_mib
    for n, node in enumerate(settings.nodes):
        demands = [(pool, pool.instances_on(node.name)) for pool in settings.pools]
        total = front_end + sum(count * pool.memory.container_mib for pool, count in demands)
        if total + _NODE_RESERVE_MIB > node.memory_mib:
            parts = " + ".join(
                f"{count} x {pool.memory.container_mib} ({pool.name})" for pool, count in demands if count
            )
            yield Problem(
                f"nodes[{n}].memory_mib",
                f"its containers may use {parts} + {front_end} (Envoy) = {total} MiB, "
                f"and {_NODE_RESERVE_MIB} are kept for the node itself",
                node.memory_mib,
            )


def models_fit_twice(settings: Settings) -> Iterator[Problem]:
    """A new version is loaded beside the old one, so GPU and container hold one more than is kept.

    Checked where models say their sizes (gpu_mib, disk_mib) and the kind of GPU is known.
    """
    slots = {node.name: slots_of(node) for node in settings.nodes}
    for p, pool in enumerate(settings.pools):
        needed = most_at_once(pool, "gpu_mib")
        placed = (slots.get(group.node, {}).get(key) for group in pool.slots for key in group.gpus)
        room = smallest(slot for slot in placed if slot)
        if needed is not None and room is not None and needed > usable_mib(pool, room):
            yield Problem(f"pools[{p}].models", too_much(needed, usable_mib(pool, room)))
        needed = most_at_once(pool, "disk_mib")
        if needed is not None and needed > pool.memory.container_mib:
            yield Problem(
                f"pools[{p}].memory.container_mib",
                f"its models need {needed} MiB while a new version replaces an old one",
                pool.memory.container_mib,
            )


def image_is_known(settings: Settings) -> Iterator[Problem]:
    """The server's tag names a version that exists, with GPU code."""
    image = settings.images.server
    version = server_version(image)
    known = facts()
    if version is None:
        yield Problem(
            "images.server", "the tag must name the version, such as tensorflow/serving:2.14.1-gpu", image
        )
    elif version in known.never_released:
        yield Problem(
            "images.server", f"{version} was never released; use {known.never_released[version]}", image
        )
    elif known.release(version) is None:
        yield Problem("images.server", f"unknown version; accepted: {', '.join(known.versions())}", image)
    elif not is_gpu_image(image):
        yield Problem("images.server", f"has no GPU code; use the tag {version}-gpu", image)


def _release(settings: Settings) -> Release | None:
    """What the server's image is; None where `image_is_known` has a finding."""
    return facts().release(server_version(settings.images.server) or "")


def driver_runs_the_image(settings: Settings) -> Iterator[Problem]:
    """Each node's driver is new enough for the CUDA of the image."""
    image, release = settings.images.server, _release(settings)
    if release is None:
        return
    for n, node in enumerate(settings.nodes):
        if node.driver and version_number(node.driver) < version_number(release.minimum_driver):
            yield Problem(
                f"nodes[{n}].driver",
                f"{image} carries CUDA {release.cuda}, which needs driver {release.minimum_driver} or newer",
                node.driver,
            )


def gpu_is_in_the_image(settings: Settings) -> Iterator[Problem]:
    """The image has kernels for each GPU: without them it compiles for minutes at every start, or fails."""
    image, release = settings.images.server, _release(settings)
    if release is None:
        return
    for n, node in enumerate(settings.nodes):
        for g, gpu in enumerate(node.all_gpus()):
            card = facts().gpus.get(gpu.model or "")
            if card and _major(card.capability) > _major(release.newest_capability):
                path = f"nodes[{n}].gpus[{g}].model" if node.gpus else f"nodes[{n}].hardware"
                yield Problem(
                    path,
                    f"{image} was built for compute capability {release.newest_capability} at most, "
                    f"{gpu.model} has {card.capability}; use a newer image",
                    gpu.model if node.gpus else node.hardware,
                )
                if node.hardware:
                    break  # one kind of GPU


def _major(capability: str) -> int:
    # Kernels run on later cards of the same generation.
    return version_number(capability)[0]


def flags_exist_in_the_version(settings: Settings) -> Iterator[Problem]:
    """A flag that the server's version lacks would be printed by it and ignored."""
    version = server_version(settings.images.server)
    if version is None or facts().release(version) is None:
        return
    flags = facts().flags_of(version)
    for p, pool in enumerate(settings.pools):
        for name, value in pool.server.model_dump(exclude_none=True).items():
            if name not in flags:
                since = facts().flags[name].since
                yield Problem(
                    f"pools[{p}].server.{name}",
                    f"TensorFlow Serving {version} lacks it; since {since}",
                    value,
                )


def optimized_models_run(settings: Settings) -> Iterator[Problem]:
    """TF-TRT models need the TensorRT that they were converted with; GPU XLA needs a build that has it."""
    image, release = settings.images.server, _release(settings)
    if release is None:
        return
    for p, pool in enumerate(settings.pools):
        for m, model in enumerate(pool.models):
            form, path = model.optimized, f"pools[{p}].models[{m}].optimized"
            if form is None:
                continue
            if form.kind == "xla" and not release.xla_gpu:
                first = facts().versions(lambda each: each.xla_gpu)[0]
                yield Problem(
                    f"{path}.kind", f"{image} cannot compile for the GPU; {first} and newer can", form.kind
                )
            if form.kind == "tensorrt" and release.tensorrt is None:
                last = facts().versions(lambda each: each.tensorrt is not None)[-1]
                yield Problem(
                    f"{path}.kind",
                    f"{image} was built without TensorRT; {last} is the last with it",
                    form.kind,
                )
            if form.tensorrt and release.tensorrt and form.tensorrt != release.tensorrt:
                message = f"{image} has TensorRT {release.tensorrt}; convert the model with that one"
                yield Problem(f"{path}.tensorrt", message, form.tensorrt)
