"""Batching presets, written out: `batching: {preset: text}` becomes the numbers that it stands for."""

from collections.abc import Mapping

from components.facts import facts


def with_presets(config: Mapping[str, object]) -> dict[str, object]:
    """The configuration with each pool's preset filled in below what the pool sets itself."""
    pools = config.get("pools")
    return {**config, "pools": [_pool(pool) for pool in pools]} if isinstance(pools, list) else dict(config)


def _pool(pool: object) -> object:
    batching = pool.get("batching") if isinstance(pool, dict) else None
    if not isinstance(pool, dict) or not isinstance(batching, dict):
        return pool
    name = batching.get("preset")
    preset = facts().batching_presets.get(name) if isinstance(name, str) else None
    if preset is None:
        return pool
    kept = dict(preset)
    if "max_batch_size" in batching:  # the sizes lead up to the preset's own maximum
        del kept["allowed_batch_sizes"]
    return {**pool, "batching": {**kept, **batching}}
