"""Which plugins a stack makes `make` install."""

from pathlib import Path

import pytest

from ops import paths, setup


@pytest.mark.parametrize(
    ("line", "plugins"),
    [
        ("  tf-serving:target: kubernetes", ("docker", "kubernetes")),
        ("  tf-serving:target: 'kubernetes' # of the team", ("docker", "kubernetes")),
        ('  "target": "kubernetes"', ("docker", "kubernetes")),
        ("  tf-serving:target: docker", ("docker",)),
        ("  # tf-serving:target: kubernetes", ("docker",)),
        ("  tf-serving:owner: kubernetes", ("docker",)),
    ],
)
def test_the_kubernetes_plugin_is_for_stacks_that_need_it(
    line: str, plugins: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    (tmp_path / "Pulumi.some.yaml").write_text(f"config:\n{line}\n")
    assert setup.plugins_of("some") == plugins


def test_of_the_committed_stacks_staging_needs_it() -> None:
    needing = {name for name in ("local", "prod", "staging") if "kubernetes" in setup.plugins_of(name)}
    assert needing == {"staging"}
