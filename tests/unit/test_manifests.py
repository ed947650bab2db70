from typing import Any

import pytest

from tests.manifests import VERSIONS, problems


def deployment() -> dict[str, Any]:
    container = {"name": "server", "image": "i:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "pool"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"app": "pool"}},
            "template": {"metadata": {"labels": {"app": "pool"}}, "spec": {"containers": [container]}},
        },
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_good_manifest_has_no_problem(version: str) -> None:
    assert problems(deployment(), version) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_type_and_an_unknown_field_are_each_named_with_their_place(version: str) -> None:
    broken = deployment()
    broken["spec"]["replicas"] = "four"
    broken["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    replicas, unknown = problems(broken, version)
    assert replicas.startswith("spec.replicas: 'four' is not of type 'integer'")
    assert unknown.startswith("spec.template.spec.containers[0]: ")
    assert "livenessprobe" in unknown


def test_a_kind_that_a_version_does_not_have_is_no_silent_pass() -> None:
    removed = {
        "apiVersion": "autoscaling/v2beta1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
    }
    with pytest.raises(LookupError, match=r"1\.34 has no schema horizontalpodautoscaler-autoscaling-v2beta1"):
        problems(removed, "1.34")
