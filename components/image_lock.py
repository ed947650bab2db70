"""`images.lock.yaml`: each image's digest, as `make pin` found it in its registry. It wins over a tag."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from components.errors import Problem
from components.stack_yaml import StackFileSyntaxError, read_yaml
from components.types import DIGEST

FILE = "images.lock.yaml"


def read_lock(folder: Path) -> dict[str, str]:
    """Digest by `repository:tag`; empty where there is no lock file. Raises ValueError for a broken one."""
    try:
        document = read_yaml((folder / FILE).read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{FILE} cannot be read: {error.strerror}") from None
    except StackFileSyntaxError as error:
        raise ValueError(f"{FILE} {error}") from None
    images = document.get("images") if isinstance(document, dict) else None
    if not isinstance(images, dict) or not all(
        isinstance(name, str) and isinstance(digest, str) and DIGEST.fullmatch(digest)
        for name, digest in images.items()
    ):
        raise ValueError(
            f"{FILE} must hold `images:` with `repository:tag: sha256:<64 hex digits>`; mend it, or delete "
            "it and run `make pin` for each stack"
        )
    return cast("dict[str, str]", images)


def with_digests(
    config: Mapping[str, object], lock: Mapping[str, str]
) -> tuple[dict[str, object], list[Problem]]:
    """The configuration with the lock's digests on its images; a digest that says otherwise is reported.

    Those are `images.*` and, on Kubernetes, each pool's `model_volume.image`.
    """
    problems: list[Problem] = []
    if not lock:
        return dict(config), problems

    def pinned(reference: object, path: str) -> object:
        name, _, digest = str(reference).partition("@")
        locked = lock.get(name)
        if locked and digest and digest != locked:
            problems.append(
                Problem(path, f"{FILE} has {locked}: drop the digest here, or that line there", reference)
            )
        return f"{name}@{locked}" if locked and isinstance(reference, str) else reference

    def with_models(pool: object, path: str) -> object:
        volume = pool.get("model_volume") if isinstance(pool, dict) else None
        if not isinstance(pool, dict) or not isinstance(volume, dict) or "image" not in volume:
            return pool
        image = pinned(volume["image"], f"{path}.model_volume.image")
        return {**pool, "model_volume": {**volume, "image": image}}

    images, pools = config.get("images"), config.get("pools")
    changed = dict(config)
    if isinstance(images, dict):
        changed["images"] = {key: pinned(each, f"images.{key}") for key, each in images.items()}
    if isinstance(pools, list):
        changed["pools"] = [with_models(pool, f"pools[{p}]") for p, pool in enumerate(pools)]
    return changed, problems
