"""What the provider waits for with a Service and a Job, and what it says of one that fails."""

import pytest

from ops.cluster import Cluster
from tests.cluster.program import Program, said

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

Manifest = dict[str, object]


def test_a_load_balancer_has_its_address_and_a_policy_is_accepted(
    cluster: Cluster, program: Program, provider: dict[str, object]
) -> None:
    spec = {"type": "LoadBalancer", "selector": {"app": "envoy"}, "ports": [{"port": 80}]}
    allowed = {"podSelector": {"matchLabels": {"app": "envoy"}}, "policyTypes": ["Ingress"], "ingress": []}
    balancer: Manifest = {"kind": "Service", "metadata": named("balancer"), "spec": spec, "timeout": "60s"}
    program.write(
        provider, [balancer, {"kind": "NetworkPolicy", "metadata": named("policy"), "spec": allowed}]
    )
    made = program.up()
    assert made.code == 0, made.output
    status = cluster.api.get("/api/v1/namespaces/default/services/balancer")["status"]
    assert status["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.10"
    assert program.preview("--refresh", "--expect-no-changes").code == 0
    program.destroy()


def test_a_job_that_failed_fails_each_further_run_until_it_is_another_job(
    cluster: Cluster, program: Program, provider: dict[str, object]
) -> None:
    cluster.add_nodes("accepts", gpus=0, labels={"for": "accepts"})
    program.write(provider, [job("acceptance-a", "r/crashes:1")])
    assert 'Container "c" completed with exit code 1' in said(program.up())
    assert "[BackoffLimitExceeded]" in said(program.up())
    program.write(provider, [job("acceptance-b", "r/works:1")])
    assert {"created": 1, "deleted": 1}.items() <= program.up().changes().items()
    program.destroy()


def named(name: str) -> Manifest:
    return {"name": name, "namespace": "default"}


def job(name: str, image: str) -> Manifest:
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"for": "accepts"},
        "containers": [{"name": "c", "image": image}],
    }
    spec = {"backoffLimit": 0, "template": {"spec": pod}}
    return {"kind": "Job", "timeout": "30s", "metadata": named(name), "spec": spec}
