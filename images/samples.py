"""Sample models for the local stack: shaped like a SavedModel, with nothing that a real server could load."""

from pathlib import Path

MODEL = "half_plus_two"
PLACEHOLDER = b"placeholder of a SavedModel: only the simulator takes it\n"


def write_sample_models(folder: Path, *, versions: tuple[int, ...] = (1,)) -> Path:
    """Write `half_plus_two/<version>/` below a folder, unless it is there, and return the model's base path.

    A version directory appears whole, by renaming: a server that polls meanwhile never sees half of one.
    """
    base = folder / MODEL
    base.mkdir(parents=True, exist_ok=True)
    for version in versions:
        if (base / str(version)).exists():
            continue
        unfinished = base / f"{version}.unfinished"
        (unfinished / "variables").mkdir(parents=True, exist_ok=True)
        for name in (
            "saved_model.pb",
            "variables/variables.data-00000-of-00001",
            "variables/variables.index",
        ):
            (unfinished / name).write_bytes(PLACEHOLDER)
        unfinished.rename(base / str(version))
    return base
