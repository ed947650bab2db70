"""image-driver-compat: the version table against the driver of the node."""

import pytest

from tests.kubernetes_stacks import four_gpus, settings
from tests.policies.good import UNKNOWN, Declared, deployment, front_end, publisher, server
from tests.policies.judge import messages, violations
from tests.policies.test_kubernetes_stacks import declared
from tests.stacks import changed

RULE = "image-driver-compat"
POD = "spec.template"


def judged(*declared: Declared) -> str:
    return "\n".join(messages(RULE, *declared))


def of(version: str) -> Declared:
    return server().changed("image", f"tensorflow/serving:{version}")


def test_a_driver_that_runs_the_image_or_is_not_known_is_accepted() -> None:
    assert violations(RULE, server(), front_end(), publisher(node_driver="535.129.03"), deployment()) == []
    assert violations(RULE, server(), front_end(), publisher(), deployment()) == []


@pytest.mark.parametrize(
    ("version", "driver", "needed"),
    [
        ("2.14.1-gpu", "440.33", "450.80.02"),
        ("2.14.1-gpu", "450.51.06", "450.80.02"),
        ("2.19.0-gpu", "470.82.01", "525.60.13"),
        ("2.20.0-gpu", "525.53", "525.60.13"),
    ],
)
def test_a_driver_that_is_too_old_is_refused(version: str, driver: str, needed: str) -> None:
    [found] = violations(RULE, of(version), publisher(node_driver=driver))
    assert found.resource == "gpu0"
    assert f"gpu0: image: tensorflow/serving:{version}: its CUDA " in found.message
    assert f"needs driver {needed}, tf-serving.node-driver is {driver}" in found.message
    assert f"Fix: update the driver to {needed} or newer, or use " in found.message


@pytest.mark.parametrize(
    ("version", "driver"),
    [
        ("2.14.1-gpu", "450.80.02"),
        ("2.19.0-gpu", "525.60.13"),
        ("2.20.0-gpu", "580.65.06"),
        ("2.11.0-gpu", "535"),
    ],
)
def test_the_oldest_driver_that_does_is_enough(version: str, driver: str) -> None:
    assert judged(of(version), publisher(node_driver=driver)) == ""


def test_the_fix_names_the_newest_version_that_the_driver_runs() -> None:
    assert "or use 2.14.1-gpu" in judged(of("2.19.0-gpu"), publisher(node_driver="470.82.01"))
    assert "no known version runs on this driver" in judged(of("2.14.1-gpu"), publisher(node_driver="440.33"))


def test_the_driver_is_the_one_of_the_servers_own_node() -> None:
    other = publisher(node_driver="440.33").on("ssh://deploy@gpu-02.example.com")
    assert judged(server(), other, publisher(node_driver="535.129.03").named("own")) == ""
    assert judged(server().on("ssh://deploy@gpu-02.example.com"), other) != ""


def test_a_driver_that_is_none_is_refused() -> None:
    found = judged(server(), publisher(node_driver="latest"))
    assert "gpu0: tf-serving.node-driver: latest: is no driver version" in found


def test_a_version_that_was_never_released_or_is_not_known_is_refused() -> None:
    assert "2.15.0 was never released\n  Fix: use 2.15.1-gpu" in judged(of("2.15.0-gpu"))
    assert "the table of versions does not know 9.9.9" in judged(of("9.9.9-gpu"))
    assert "image: tensorflow/serving:latest-gpu: names no version" in judged(of("latest-gpu"))


@pytest.mark.parametrize(
    "name", ["cuda.driver-version.full", "cuda.driver-version.major", "cuda.driver.major"]
)
def test_a_pod_says_its_driver_by_its_node_selector(name: str) -> None:
    pods = deployment()
    for driver, refused in (("440", True), ("535", False), ("450", False)):
        selector = {f"nvidia.com/{name}": driver}
        found = judged(pods.changed(f"{POD}.spec.nodeSelector", selector))
        assert (f"nodeSelector nvidia.com/{name} is 440" in found) is refused


def test_a_pod_says_its_driver_by_a_label_or_an_annotation() -> None:
    assert "tf-serving.node-driver is 440.33" in judged(deployment().labelled(node_driver="440.33"))
    annotated = deployment().changed(f"{POD}.metadata.annotations", {"tf-serving.node-driver": "440.33"})
    assert "main/server: image: " in judged(annotated)


@pytest.mark.parametrize("variable", ["NVIDIA_DISABLE_REQUIRE=true", "NVIDIA_DISABLE_REQUIRE=1"])
def test_the_engines_own_comparison_stays_on(variable: str) -> None:
    assert "gpu0: variable NVIDIA_DISABLE_REQUIRE: " in judged(server().changed("envs[2]", variable))
    assert judged(server().changed("envs[2]", "NVIDIA_DISABLE_REQUIRE=false")) == ""


def test_what_the_image_needs_is_not_written_over() -> None:
    found = judged(server().changed("envs[2]", "NVIDIA_REQUIRE_CUDA=cuda>=9.0"))
    assert "gpu0: variable NVIDIA_REQUIRE_CUDA: takes the place" in found


def test_a_server_without_a_gpu_needs_no_driver() -> None:
    idle = of("2.19.0").without("deviceRequests")
    assert judged(idle, publisher(node_driver="440.33")) == ""


def test_an_image_that_is_not_known_in_preview_is_refused_by_resource() -> None:
    found = judged(server().changed("image", UNKNOWN))
    assert "Image of gpu0 is not known in preview: image" in found
    assert found.count("gpu0") == 1


def test_where_the_gpu_is_not_known_the_image_is_compared_all_the_same() -> None:
    unsure = of("2.19.0-gpu").changed("deviceRequests", UNKNOWN)
    assert "needs driver 525.60.13" in judged(unsure, publisher(node_driver="470.82.01"))


def test_a_label_does_not_exempt_a_server() -> None:
    assert judged(server().labelled(exempt=RULE), publisher(node_driver="440.33")) != ""


def test_a_server_without_an_image_is_left_to_pinned_images() -> None:
    assert judged(server().without("image")) == ""


def test_the_fix_may_be_the_version_whose_oldest_driver_this_one_is() -> None:
    assert "or use 2.14.1-gpu" in judged(of("2.19.0-gpu"), publisher(node_driver="450.80.02"))


def test_pods_that_we_deploy_tell_the_driver_of_their_nodes() -> None:
    made = declared(settings(four_gpus()))
    assert judged(*made) == ""
    older = declared(settings(changed(four_gpus(), "node_pools[0].driver", "470.82.01")))
    image = "spec.template.spec.containers[0].image"
    newer = [
        one.changed(image, "tensorflow/serving:2.19.0-gpu") if one.name == "main" else one for one in older
    ]
    assert "needs driver 525.60.13, tf-serving.node-driver is 470.82.01" in judged(*newer)
