"""`make pin`: writes the digests of a stack's images, as their registries give them, to images.lock.yaml.

Runs in the virtual environment, which reading a stack file needs (`.venv/bin/python -m ops.pin STACK`).
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ops import paths
from ops.errors import UserError
from ops.registry import digest_of

_HEAD = """\
# The digest of each image, as its registry gave it to `make pin`. Stack files name tags; these win.
images:
"""


def pin(stack: str, folder: Path, docker_config: Path) -> dict[str, str]:
    """Look up every image of a stack and add its digest to the lock file; what was found.

    Nothing is written unless all are found. Raises UserError and SettingsError.
    """
    from components.image_lock import FILE, read_lock
    from components.kubernetes_settings import KubernetesSettings
    from components.stack_file import load_stack_file

    settings = load_stack_file(folder / f"Pulumi.{stack}.yaml")
    named = [settings.images.server, settings.images.envoy]
    if isinstance(settings, KubernetesSettings):
        named += [pool.model_volume.image for pool in settings.pools if pool.model_volume.image]
    tags = [image.partition("@")[0] for image in named]
    found = {tag: digest_of(tag, docker_config) for tag in tags}
    lock = {**read_lock(folder), **found}
    text = _HEAD + "".join(f"  {tag}: {digest}\n" for tag, digest in sorted(lock.items()))
    (folder / FILE).write_text(text, encoding="utf-8")
    return found


def docker_config(env: Mapping[str, str]) -> Path:
    """Where `docker login` keeps logins."""
    return Path(env.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def main(stack: str) -> int:
    """Pin and print; 1 with the reason where that fails."""
    from components.errors import SettingsError

    try:
        for tag, digest in pin(stack, paths.ROOT, docker_config(os.environ)).items():
            print(f"{tag}  {digest}")
    except (UserError, SettingsError) as error:
        print(f"make pin: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
