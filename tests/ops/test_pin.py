"""`make pin`: what it writes, and that the lock file then wins."""

import shutil
from pathlib import Path

import pytest

from components.errors import SettingsError
from components.image_lock import FILE
from components.kubernetes_settings import KubernetesSettings
from components.stack_file import load_stack_file
from ops import pin
from ops.errors import UserError
from tests.pulumi_project import CHECKOUT

DIGEST = "sha256:" + "0f" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(CHECKOUT / "Pulumi.prod.yaml", tmp_path)
    return tmp_path


def test_the_digests_that_were_found_win_over_the_tags(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pin, "digest_of", lambda _image, _config: DIGEST)
    pin.pin("prod", folder, folder / "none.json")
    images = load_stack_file(folder / "Pulumi.prod.yaml").images
    assert images.server == f"tensorflow/serving:2.14.1-gpu@{DIGEST}"
    assert images.envoy == f"envoyproxy/envoy:v1.40.0@{DIGEST}"


def test_what_was_pinned_for_other_stacks_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / FILE).write_text(f"images:\n  a/b:v1: {DIGEST}\n")
    monkeypatch.setattr(pin, "digest_of", lambda _image, _config: DIGEST)
    pin.pin("prod", folder, folder / "none.json")
    assert f"  a/b:v1: {DIGEST}\n" in (folder / FILE).read_text()


def test_an_image_with_models_is_pinned_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "Pulumi.parts.yaml"
    shutil.copy(CHECKOUT / "examples" / "kubernetes-mig" / "Pulumi.example.yaml", file)
    monkeypatch.setattr(pin, "digest_of", lambda _image, _config: DIGEST)
    pin.pin("parts", tmp_path, tmp_path / "none.json")
    settings = load_stack_file(file)
    assert isinstance(settings, KubernetesSettings)
    assert settings.pools[0].model_volume.image == f"registry.example.com/models/tagger:7.0.0@{DIGEST}"
    assert settings.images.server.endswith(DIGEST)
    file.write_text(file.read_text().replace("tagger:7.0.0", f"tagger:7.0.0@sha256:{'1' * 64}"))
    with pytest.raises(
        SettingsError, match=r"pools\[0\].model_volume.image: .*images.lock.yaml has sha256:0f"
    ):
        load_stack_file(file)


def test_nothing_is_written_unless_every_digest_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_of_two(image: str, _config: Path) -> str:
        if "envoy" in image:
            raise UserError("cannot be reached")
        return DIGEST

    monkeypatch.setattr(pin, "digest_of", one_of_two)
    with pytest.raises(UserError):
        pin.pin("prod", folder, folder / "none.json")
    assert not (folder / FILE).exists()
