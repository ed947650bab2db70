"""The files that a server reads, on the volume of its pool.

What it reads once, as it starts, has a name with a hash of the text: another text is another argument of the
server, so that it is replaced, and one that is not replaced yet still finds its own when it starts again. The
list of models is changed in place.
"""

import hashlib
from collections.abc import Sequence

from components.batching_parameters import batching_parameters
from components.model_config import models_config
from components.monitoring import monitoring_config
from components.plan import InstancePlan
from components.scripts import script
from components.server_spec import REST_PORT, Server

FOLDER = "/config"
"""Where a server sees the volume, read-only."""


def server_files(instance: Server) -> dict[str, str]:
    """Text by name of all that an instance reads; those of a pool have the same, but for a release."""
    files = {models_file(instance): models_config(instance.models), monitoring_file(): monitoring_config()}
    batching = batching_file(instance)
    if batching is not None and instance.batching is not None:
        files[batching] = batching_parameters(instance.batching)
    return files


def models_file(instance: Server) -> str:
    """Name of the list of models, which servers read again and again: what they see at /models is in it.

    Other mounts replace the servers; those that are not replaced yet must not read of folders that they lack.
    So do other versions where they must not be in memory beside the old ones.
    """
    versions = [(model.name, model.versions.specific) for model in instance.models]
    return _named("models", repr(instance.model_mounts) + (repr(versions) if instance.by_version else ""))


def serving_file(instance: Server) -> str:
    """Name of the list of models that a health check asks for, beside that list (`data/models.sh`)."""
    return f"{models_file(instance)}.serving"


def models_script() -> str:
    """What the publisher of a pool's files goes on with."""
    return script("server_status.sh") + script("models.sh")


def models_settings(instances: Sequence[InstancePlan]) -> str:
    """What `data/models.sh` is told of a pool's instances on a node: those of one list after the other."""
    lines = [f"wait {instances[0].load_timeout_s}"]
    for file, readers in by_list(instances).items():
        lines += [f"file {file}", *(["by-version"] if readers[0].by_version else [])]
        lines += [f"instance {instance.name} {instance.address}/{REST_PORT}" for instance in readers]
    return "".join(f"{line}\n" for line in lines)


def by_list(instances: Sequence[InstancePlan]) -> dict[str, list[InstancePlan]]:
    """A pool's instances by the list of models that they read: two while a release is under way."""
    readers: dict[str, list[InstancePlan]] = {}
    for instance in instances:
        readers.setdefault(models_file(instance), []).append(instance)
    return readers


def monitoring_file() -> str:
    """Name of the file that turns on the metrics page."""
    return _named("monitoring", monitoring_config())


def batching_file(instance: Server) -> str | None:
    """Name of the batching parameters; None where a pool does not batch."""
    return None if instance.batching is None else _named("batching", batching_parameters(instance.batching))


def path(name: str) -> str:
    """Where a server sees a file of that name."""
    return f"{FOLDER}/{name}"


def _named(what: str, text: str) -> str:
    return f"{what}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.config"
