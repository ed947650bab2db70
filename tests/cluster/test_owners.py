"""Who owns what: an autoscaler beside the provider, evictions, ConfigMaps changed in place."""

import pytest

from ops.cluster import Cluster
from ops.kube_api import ApiError
from tests.cluster.objects import autoscaler, config_map, deployment, disruption_budget
from tests.cluster.program import Program, said
from tests.cluster.reading import CORE, pods, replicas
from tests.envoy.harness import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

Provider = dict[str, object]


def test_an_autoscaler_owns_replicas_that_nobody_writes_and_no_apply_conflicts(
    cluster: Cluster, program: Program, provider: Provider
) -> None:
    cluster.add_nodes("scaled", gpus=4, labels={"for": "scaled"})
    scaler = autoscaler("scaled", least=3, most=4)
    program.write(provider, [deployment("scaled", replicas=None, on="scaled"), scaler])
    assert program.up().code == 0
    wait_for("the autoscaler has seen to its minimum", lambda: replicas(cluster, "scaled") == 3)
    assert program.preview("--refresh", "--expect-no-changes").code == 0
    rolled = [deployment("scaled", replicas=None, on="scaled", annotations={"batching": "b"}), scaler]
    program.write(provider, rolled)
    done = program.up()
    assert done.code == 0, done.output
    assert replicas(cluster, "scaled") == 3
    # Whoever writes replicas all the same takes them from the autoscaler, and once it took them back is told.
    program.write(provider, [deployment("scaled", replicas=2, on="scaled"), scaler])
    assert program.up().code == 0
    wait_for("the autoscaler has taken them back", lambda: replicas(cluster, "scaled") == 3)
    program.write(provider, [deployment("scaled", replicas=4, on="scaled"), scaler])
    assert 'conflict with "kube-controller-manager" with subresource "scale"' in said(program.up())
    program.write(provider, rolled)
    assert program.up().code == 0
    assert replicas(cluster, "scaled") == 3
    program.destroy()


def test_a_budget_lets_one_pod_at_a_time_be_evicted(
    cluster: Cluster, program: Program, provider: Provider
) -> None:
    cluster.add_nodes("budget", gpus=4, labels={"for": "budget"})
    never_back = deployment("budget", replicas=4, on="budget")
    program.write(provider, [never_back, disruption_budget("budget")])
    assert program.up().code == 0
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/budget"
    wait_for("the budget is counted", lambda: allowed(cluster, path) == 1)
    cluster.api.merge("/api/v1/nodes/budget", {"spec": {"unschedulable": True}})
    first, second, *_ = (str(pod["metadata"]["name"]) for pod in pods(cluster, "budget"))
    evict(cluster, first)
    with pytest.raises(ApiError, match="429: Cannot evict pod as it would violate"):
        evict(cluster, second)
    cluster.api.merge("/api/v1/nodes/budget", {"spec": {"unschedulable": False}})
    wait_for("another is back", lambda: allowed(cluster, path) == 1)
    evict(cluster, second)
    program.destroy()


def test_a_config_map_is_changed_in_place_only_where_the_provider_was_told_so(
    cluster: Cluster, program: Program, provider: Provider
) -> None:
    in_place = {**provider, "enable_config_map_mutable": True}
    program.write(in_place, [config_map("in-place", "a")])
    assert program.up().code == 0
    identity = uid(cluster, "in-place")
    program.write(in_place, [config_map("in-place", "b")])
    assert program.up().changes() == {"updated": 1, "unchanged": 2}
    assert uid(cluster, "in-place") == identity
    program.write(provider, [config_map("in-place", "c")])
    assert program.up().changes()["replaced"] == 1
    assert uid(cluster, "in-place") != identity
    program.destroy()


def allowed(cluster: Cluster, path: str) -> int:
    return int(cluster.api.get(path).get("status", {}).get("disruptionsAllowed", 0))


def evict(cluster: Cluster, pod: str) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": "default"},
    }
    cluster.api.create(f"{CORE}/pods/{pod}/eviction", dict(eviction))


def uid(cluster: Cluster, name: str) -> str:
    return str(cluster.api.get(f"{CORE}/configmaps/{name}")["metadata"]["uid"])
