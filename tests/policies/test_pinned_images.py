"""pinned-images: exact tags, digests in prod, GPU code where there is a GPU, no simulator outside local."""

from pathlib import Path

import pytest

from tests.policies.good import UNKNOWN, Declared, deployment, exporter, front_end, publisher, server
from tests.policies.judge import messages, violations

RULE, DIGEST = "pinned-images", "pinned-images-digest"
SHA, OTHER = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"
TAG = "tensorflow/serving:2.14.1-gpu"
CONTAINER = "spec.template.spec.containers[0]"


def judged(*declared: Declared, environment: str = "prod", **config: object) -> str:
    return "\n".join(messages(RULE, *declared, environment=environment, **config))


def of(image: str) -> Declared:
    return server().changed("image", image)


@pytest.fixture
def lock(tmp_path: Path) -> str:
    """A lock file with the server's image."""
    file = tmp_path / "images.lock.yaml"
    file.write_text(f"images:\n  {TAG}: {SHA}\n")
    return str(file)


def test_exact_versions_with_digests_are_accepted() -> None:
    assert violations(RULE, server(), front_end(), publisher(), exporter(), deployment()) == []
    assert violations(DIGEST, server(), front_end(), publisher(), exporter(), deployment()) == []


@pytest.mark.parametrize("environment", ["local", "staging", "prod"])
@pytest.mark.parametrize("tag", ["latest", "latest-gpu", "nightly-gpu", "2.14-gpu", "2-gpu"])
def test_a_server_names_an_exact_version_everywhere(tag: str, environment: str) -> None:
    found = judged(of(f"tensorflow/serving:{tag}"), environment=environment)
    assert f"gpu0: image: tensorflow/serving:{tag}: " in found
    assert "Fix: name an exact version, such as 2.14.1-gpu" in found
    assert judged(of(f"tensorflow/serving:{tag}@{SHA}"), environment=environment) != ""


def test_without_a_tag_it_is_latest() -> None:
    [found] = messages(RULE, of("tensorflow/serving"))
    assert "gpu0: image: tensorflow/serving: without a tag it is `latest`" in found
    [found] = messages(RULE, front_end().changed("image", "envoyproxy/envoy"))
    assert "envoy: image: envoyproxy/envoy: without a tag it is `latest`" in found
    assert "Fix: name an exact version, such as 1.40.0" in found
    assert "does not say which version" in judged(of(f"tensorflow/serving@{SHA}"))
    [found] = messages(RULE, of(SHA))  # an id: only the label tells that it is a server
    assert "an id does not say which version it is" in found


def test_latest_is_another_image_after_every_release() -> None:
    says = "`{}` is another image after every release"
    without_gpu = judged(of("tensorflow/serving:latest"))
    assert f"{says.format('latest')}, and has no GPU code\n" in without_gpu
    assert f"{says.format('latest-gpu')}\n" in judged(of("tensorflow/serving:latest-gpu"))
    for tag in ("latest", "1.40.0-latest"):
        assert f"{says.format(tag)}\n" in judged(front_end().changed("image", f"envoyproxy/envoy:{tag}"))


@pytest.mark.parametrize("tag", ["latest", "v1", "1.40", "main", "stable", "edge-latest"])
def test_what_is_no_server_has_an_exact_tag_as_well(tag: str) -> None:
    found = judged(front_end().changed("image", f"registry:5000/envoyproxy/envoy:{tag}"))
    assert f"envoy: image: registry:5000/envoyproxy/envoy:{tag}: " in found


@pytest.mark.parametrize("tag", ["v1.40.0", "1.40.0-rc1", "20260730", "9d981c5", f"main@{SHA}"])
def test_a_version_a_date_a_commit_and_a_digest_are_exact(tag: str) -> None:
    assert judged(front_end().changed("image", f"envoyproxy/envoy:{tag}")) == ""


def test_a_digest_alone_or_an_id_is_exact_for_what_is_no_server() -> None:
    assert judged(front_end().changed("image", f"envoyproxy/envoy@{SHA}")) == ""
    assert judged(exporter().changed("image", SHA)) == ""
    assert messages(DIGEST, exporter().changed("image", SHA)) == []


def test_an_image_has_gpu_code_if_and_only_if_there_is_a_gpu() -> None:
    found = judged(of(f"tensorflow/serving:2.14.1@{SHA}"))
    assert "has no GPU code, and deviceRequests[0].deviceIds gives it a GPU" in found
    assert "Fix: use the tag 2.14.1-gpu" in found
    idle = server().without("deviceRequests")
    assert "is built for a GPU, and is given none" in judged(idle)
    assert judged(idle.changed("image", f"tensorflow/serving:2.14.1@{SHA}")) == ""
    assert judged(server().changed("deviceRequests", UNKNOWN)) == ""  # another rule's to say


def test_pods_are_judged_alike() -> None:
    bad = deployment().changed(f"{CONTAINER}.image", f"tensorflow/serving:2.14.1@{SHA}")
    assert "main/server: image: " in judged(bad)
    assert "resources.limits[nvidia.com/gpu] gives it a GPU" in judged(bad)
    assert "main/server: image: unset" in judged(deployment().without(f"{CONTAINER}.image"))
    first = {"name": "warm-up", "image": "busybox:latest"}
    assert "main/warm-up: image: busybox:latest" in judged(
        deployment().changed("spec.template.spec.initContainers", [first])
    )


@pytest.mark.parametrize("environment", ["staging", "prod"])
def test_a_simulator_is_for_local_stacks(environment: str) -> None:
    simulated = of(f"tf-serving-simulator:2.14.1-gpu@{SHA}")
    assert "a simulator answers without any model" in judged(simulated, environment=environment)
    assert judged(simulated, environment="local") == ""


def test_in_prod_the_digest_of_the_lock_file_is_a_must(lock: str) -> None:
    found = judged(of(TAG), lockFile=lock)
    assert f"gpu0: image: {TAG}: in prod an image is named by its digest" in found
    assert f"Fix: write {TAG}@{SHA}" in found
    assert judged(of(f"{TAG}@{SHA}"), lockFile=lock) == ""
    assert judged(of(TAG), environment="staging", lockFile=lock) == ""


def test_docker_hubs_own_name_makes_no_difference(lock: str) -> None:
    assert f"image: docker.io/{TAG}: in prod" in judged(of(f"docker.io/{TAG}"), lockFile=lock)


@pytest.mark.parametrize("environment", ["local", "staging", "prod"])
def test_another_digest_than_the_lock_files_is_refused_everywhere(lock: str, environment: str) -> None:
    found = judged(of(f"{TAG}@{OTHER}"), environment=environment, lockFile=lock)
    assert f"images.lock.yaml has {SHA}" in found


def test_a_digest_that_is_none_is_refused() -> None:
    assert "is no digest" in judged(of(f"{TAG}@sha256:abc"))


def test_before_the_lock_file_has_an_image_its_digest_is_asked_for_once(lock: str) -> None:
    envoy = "envoyproxy/envoy:v1.40.0"
    stack = (of(TAG), front_end().changed("image", envoy), front_end().named("two").changed("image", envoy))
    assert judged(*stack[1:], lockFile=lock) == ""
    [found] = violations(DIGEST, *stack, lockFile=lock)
    assert found.resource == "envoy"
    assert (
        f"envoy: image: {envoy}: a tag can be moved, a digest cannot (and 1 more containers)" in found.message
    )
    assert "Fix: run `make pin`" in found.message
    assert len(violations(DIGEST, *stack, lockFile=f"{lock}.absent")) == 2
    [alone] = messages(DIGEST, stack[1], lockFile=lock)
    assert "a digest cannot\n" in alone


@pytest.mark.parametrize("text", ["images: [", "images: {a: b}", "[]", "other: {}", b"\xff"])
def test_a_lock_file_that_cannot_be_used_is_said_in_prod(tmp_path: Path, text: str | bytes) -> None:
    file = tmp_path / "images.lock.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert "images.lock.yaml cannot be used: " in judged(of(TAG), lockFile=str(file))
    assert judged(server(), lockFile=str(file)) == ""
    assert judged(of(TAG), lockFile=str(file), environment="staging") == ""
    assert "cannot be used" in judged(of(TAG), lockFile=str(tmp_path))  # a folder


def test_an_image_that_is_not_known_in_preview_is_refused_by_resource() -> None:
    [found] = messages(RULE, server().changed("image", UNKNOWN))
    assert "Image of gpu0 is not known in preview: image" in found


def test_only_what_is_no_model_server_is_exempt() -> None:
    moving = exporter().changed("image", "exporter:latest").labelled(exempt=RULE)
    assert judged(moving) == ""
    assert messages(DIGEST, moving) == []
    tagged = exporter().changed("image", "exporter:1.2.3")
    assert messages(DIGEST, tagged) != []
    assert messages(DIGEST, tagged.labelled(exempt=DIGEST)) == []
    assert judged(of("tensorflow/serving:latest").labelled(exempt=RULE)) != ""
