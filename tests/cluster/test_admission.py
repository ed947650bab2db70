"""Every object of every kind of stack, as the API server itself checks it: a dry run with strict fields."""

import pytest

from components.kubernetes_manifests import objects
from components.kubernetes_plan import KubernetesPlan, make_kubernetes_plan
from ops.cluster import Cluster
from ops.kube_api import ApiError
from tests.kubernetes_stacks import plan
from tests.unit.test_kubernetes_manifests import KUBERNETES, every_config

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

PLANS: dict[str, KubernetesPlan] = {
    **{stack: make_kubernetes_plan(found, stack=stack) for stack, found in KUBERNETES.items()},
    **{f"with {which}": plan(config) for which, config in every_config().items()},
}
PLURALS = {"NetworkPolicy": "networkpolicies"}


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> str:
    name = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "serving"}}
    cluster.api.create("/api/v1/namespaces", name)
    return "serving"


@pytest.mark.parametrize("which", PLANS)
def test_the_api_server_takes_every_object_of_a_stack(cluster: Cluster, namespace: str, which: str) -> None:
    refused = {}
    for each in objects(PLANS[which]):
        if each.kind == "Namespace":
            continue
        below = f"/apis/{each.api_version}" if "/" in each.api_version else f"/api/{each.api_version}"
        plural = PLURALS.get(each.kind, f"{each.kind.lower()}s")
        path = f"{below}/namespaces/{namespace}/{plural}?dryRun=All&fieldValidation=Strict"
        try:
            cluster.api.create(path, dict(each.manifest))
        except ApiError as error:
            refused[each.key] = str(error)
    assert refused == {}


def test_a_field_that_is_none_is_refused(cluster: Cluster, namespace: str) -> None:
    (job,) = [each for each in objects(next(iter(PLANS.values()))) if each.kind == "Job"]
    odd = {**job.manifest, "spec": {**dict(job.manifest["spec"]), "backofLimit": 1}}  # type: ignore[call-overload]
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All&fieldValidation=Strict"
    with pytest.raises(ApiError, match="backofLimit"):
        cluster.api.create(path, odd)
