"""What the pack refuses in prod, the settings refuse there too: so our own components need no pack.

Each row is a stack that the settings take in staging. What it comes to is judged by the real rules at the
level of prod, and the same stack file in prod must be refused where the row says.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.kubernetes_settings import KubernetesSettings
from components.settings import Settings
from tests import kubernetes_stacks, stacks
from tests.mock_engine import Deploy, Engine, Registered
from tests.policies.good import Declared
from tests.policies.judge import messages
from tests.policies.test_kubernetes_stacks import declared as declared_on_a_cluster
from tests.stacks import Config, changed, one_node, without

PACK = Path(__file__).resolve().parents[2] / "policies"
PROD = json.loads((PACK / "config" / "prod.json").read_text())
MANDATORY = [rule for rule, said in PROD.items() if said["enforcementLevel"] == "mandatory"]
POOL = "pools[0]"
TOKENS: Config = {
    "jwt": {
        "issuer": "https://issuer.example.com",
        "audiences": ["serving"],
        "keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}],
    }
}
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what must be refused


@dataclass(frozen=True, kw_only=True)
class Row:
    """What provokes a rule, a stack with it, and where the settings refuse that in prod."""

    rule: str
    what: str
    stack: Config
    told_at: str


def _one_pool_more() -> Config:
    """`main` on three GPUs, and a pool with one."""
    config = changed(one_node(), f"{POOL}.slots[0].gpus", [0, 1, 2])
    second = {**config["pools"][0], "name": "second", "slots": [{"node": "gpu-01", "gpus": [3]}]}
    return changed(config, "pools[1]", second | {"models": [{"name": "bert", "path": "/srv/models/bert"}]})


def _helped(gpus: list[int], traffic: Config) -> Config:
    """`main` on these GPUs, and a pool `trial` of one instance that serves the same."""
    config = changed(one_node(), f"{POOL}.slots[0].gpus", gpus)
    trial = {**config["pools"][0], "name": "trial", "slots": [{"node": "gpu-01", "gpus": [3]}]}
    return changed(changed(config, "pools[1]", trial), f"{POOL}.traffic", traffic)


def _without_cpus(**pool: object) -> Config:
    config = one_node()
    for gpu in range(4):
        config = without(config, f"nodes[0].gpus[{gpu}].cpus")
    config["pools"][0] |= pool
    return config


def _on_a_cluster(path: str, value: object) -> Config:
    return changed(kubernetes_stacks.four_gpus(), path, value)


def _many_gpus() -> Config:
    config = _on_a_cluster(f"{POOL}.models[0].multi_gpu", True)
    return changed(config, f"{POOL}.nodes", {"pool": "a100", "replicas": 2, "cpus": 16, "gpus": 2})


def _shared_gpus() -> Config:
    config = _on_a_cluster("node_pools[0].gpu_resource", "nvidia.com/gpu.shared")
    return changed(config, f"{POOL}.gpu_memory", {"fraction": 0.2})


ROWS = [
    Row(
        rule="batching",
        what="a pool without batching",
        stack=without(one_node(), f"{POOL}.batching"),
        told_at=f"{POOL}.batching",
    ),
    Row(
        rule="batching",
        what="batches that wait for nobody",
        stack=changed(one_node(), f"{POOL}.batching.batch_timeout_micros", 0),
        told_at=f"{POOL}.batching.batch_timeout_micros",
    ),
    Row(
        rule="batching",
        what="a thread for every request",
        stack=changed(one_node(), f"{POOL}.batching.num_batch_threads", 17),
        told_at=f"{POOL}.batching.num_batch_threads",
    ),
    Row(
        rule="cpu-affinity",
        what="CPUs of two servers",
        stack=changed(
            changed(one_node(), "nodes[0].share_cpus", True), "nodes[0].gpus[1].cpus", "0-15,64-79"
        ),
        told_at="nodes[0].share_cpus",
    ),
    Row(rule="cpu-affinity", what="no CPUs", stack=_without_cpus(), told_at=f"{POOL}.threads"),
    Row(
        rule="cpu-affinity",
        what="no CPUs and half of the threads",
        stack=_without_cpus(threads={"intra_op": 4}),
        told_at=f"{POOL}.threads",
    ),
    Row(
        rule="cpu-affinity",
        what="no CPUs and no threads for requests",
        stack=_without_cpus(threads={"intra_op": 4, "inter_op": 2}, batching=None, unbatched=True),
        told_at=f"{POOL}.threads",
    ),
    Row(
        rule="credentials-need-tls",
        what="tokens in the open",
        stack=changed(one_node(), "front_end", {"auth": TOKENS}),
        told_at="front_end.tls",
    ),
    Row(
        rule="credentials-need-tls",
        what="tokens in the open on a cluster",
        stack=_on_a_cluster("front_end", {"auth": TOKENS}),
        told_at="front_end.tls_secret",
    ),
    Row(
        rule="credentials-need-tls",
        what="keys in the open on a cluster",
        stack=_on_a_cluster("front_end", {"api_keys_secret": "keys"}),
        told_at="front_end.tls_secret",
    ),
    Row(
        rule="one-model-per-gpu",
        what="a slot of two pools",
        stack=stacks.sharing(),
        told_at=f"{POOL}.sharing",
    ),
    Row(
        rule="one-model-per-gpu",
        what="all GPUs in one container",
        stack=stacks.with_all_gpus(),
        told_at=f"{POOL}.all_gpus",
    ),
    Row(
        rule="one-model-per-gpu",
        what="pods that share a GPU",
        stack=_shared_gpus(),
        told_at="node_pools[0].gpu_resource",
    ),
    Row(
        rule="only-the-front-end-publishes",
        what="a front end on all addresses",
        stack=without(one_node(), "nodes[0].bind"),
        told_at="nodes[0].bind",
    ),
    Row(
        rule="only-the-front-end-publishes",
        what="a node that takes all addresses though the front end names one",
        stack=changed(changed(one_node(), "front_end", {"bind": "10.0.0.7"}), "nodes[0].bind", EVERYWHERE),
        told_at="nodes[0].bind",
    ),
    Row(
        rule="only-the-front-end-publishes",
        what="a port of every node",
        stack=_on_a_cluster("front_end", {"service": "NodePort"}),
        told_at="front_end.service",
    ),
    Row(
        rule="only-the-front-end-publishes",
        what="a balancer for everybody",
        stack=_on_a_cluster("front_end", {"service": "LoadBalancer"}),
        told_at="front_end.source_ranges",
    ),
    Row(
        rule="pinned-images",
        what="a tag that moves",
        stack=changed(one_node(), "images.envoy", "envoyproxy/envoy:v1.40-latest"),
        told_at="images.envoy",
    ),
    Row(
        rule="pinned-images",
        what="a tag of two numbers",
        stack=changed(one_node(), "images.envoy", "envoyproxy/envoy:v1.40"),
        told_at="images.envoy",
    ),
    Row(
        rule="pinned-images",
        what="the simulator",
        stack=changed(one_node(), "images.server", "tf-serving-simulator:2.14.1-gpu"),
        told_at="images.server",
    ),
    Row(
        rule="pinned-images",
        what="an image of models under a tag that moves",
        stack=_on_a_cluster(f"{POOL}.model_volume", {"image": "registry.example.com/models:7"}),
        told_at=f"{POOL}.model_volume.image",
    ),
    Row(
        rule="required-labels",
        what="an owner that is nobody",
        stack=changed(one_node(), "owner", "unknown"),
        told_at="owner",
    ),
    Row(
        rule="safe-rollout",
        what="one instance of a model",
        stack=_one_pool_more(),
        told_at="pools[1].single",
    ),
    Row(
        rule="safe-rollout",
        what="one instance of a model beside a mirror",
        stack=_helped([0], {"mirror": {"pool": "trial", "percent": 100}}),
        told_at=f"{POOL}.single",
    ),
    Row(
        rule="safe-rollout",
        what="one pod of a model",
        stack=_on_a_cluster(f"{POOL}.nodes.replicas", 1),
        told_at=f"{POOL}.single",
    ),
]

REFUSED_EVERYWHERE = {
    "gpu-memory": changed(one_node(), f"{POOL}.gpu_memory", {"allow_growth": False}),
    "gpu-memory-shared": without(stacks.sharing(), f"{POOL}.gpu_memory"),
    "host-memory": changed(one_node(), f"{POOL}.memory", {"container_mib": 64, "shm_mib": 65}),
    "host-memory-total": changed(one_node(), "nodes[0].memory_mib", 4 * 98304),
    "image-driver-compat": changed(one_node(), "nodes[0].driver", "440.33"),
    "least-privilege": changed(one_node(), f"{POOL}.models[0].path", "/var/run"),
    "no-secrets-in-the-open": changed(one_node(), f"{POOL}.models[0].path", "/srv/token=0a1b2c3d4e5f"),
    "server-flags": changed(one_node(), f"{POOL}.server", {"mixed_precision": "bfloat16"}),
    "explicit-provider": changed(one_node(), "nodes[0].docker", {"endpoint": "tcp://gpu-01:2376"}),
    "explicit-provider-per-node": changed(
        stacks.two_nodes(), "nodes[1].docker.endpoint", "ssh://me@gpu-01.example.com"
    ),
}
"""What no environment may have, by the rule that would refuse it."""

CANNOT_BE_SAID = {
    "health-and-restart": "checks, patience, restart and stop follow from load_timeout_s and stop_timeout_s",
    "pinned-images": "a digest of images.lock.yaml is put on an image by itself",
    "safe-rollout": "the order of replacements is ours, and a surge needs spare GPUs",
}
"""Why a setting cannot provoke (the rest of) a rule."""


def staged(config: Config) -> Config:
    """In staging, where prod's own rules are not asked."""
    return config if "environment" in config else stacks.in_staging(config)


def on_the_engine(engine: Engine) -> list[Declared]:
    """What a program declared, for the pack."""
    return list(_declared(engine))


def _declared(engine: Engine) -> Iterator[Declared]:
    hosts = {found.urn: str(found.inputs.get("host")) for found in engine.resources if _is_provider(found)}
    names = {found.urn: found.name for found in engine.resources}
    for found in engine.resources:
        if found.type.startswith("docker:"):
            yield Declared(
                type=found.type,
                name=found.name,
                props=found.inputs,
                host=hosts[found.provider.rpartition("::")[0]],
                depends_on=tuple(_resources_behind(engine, found, names)),
                delete_before_replace=found.delete_before_replace,
            )


def _is_provider(found: Registered) -> bool:
    return found.type.startswith("pulumi:providers:")


def _resources_behind(engine: Engine, found: Registered, names: dict[str, str]) -> Iterator[str]:
    """Names of what it waits for; a component is waited for as everything in it is."""
    for urn in found.dependencies:
        yield names[urn]


def judged(config: Config, deploy: Deploy) -> dict[str, list[str]]:
    """What each mandatory rule of prod says about what a stack comes to."""
    settings = stacks.settings(config)
    made = (
        declared_on_a_cluster(settings, digests=False)
        if isinstance(settings, KubernetesSettings)
        else on_the_engine(deploy(lambda: _program(settings)))
    )
    return {rule: said for rule in MANDATORY if (said := messages(rule, *made))}


def _program(settings: Settings) -> dict[str, object]:
    args = ServingDeploymentArgs(settings=settings, stack="test", project_folder=stacks.PROJECT_FOLDER)
    return dict(ServingDeployment("serving", args).outputs.model_dump())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_what_the_pack_refuses_in_prod_the_settings_refuse_there(row: Row, deploy: Deploy) -> None:
    assert row.rule in judged(staged(row.stack), deploy)
    told = {problem.path for problem in stacks.problems({**row.stack, "environment": "prod"})}
    assert row.told_at in told


@pytest.mark.parametrize("rule", REFUSED_EVERYWHERE)
def test_what_no_environment_may_have_is_refused_before_the_pack_sees_it(rule: str) -> None:
    for environment in ("local", "staging", "prod"):
        assert stacks.problems({**REFUSED_EVERYWHERE[rule], "environment": environment}) != ()


def test_every_mandatory_rule_of_prod_has_a_setting_that_provokes_it_or_a_reason_why_none_can() -> None:
    rows = {row.rule for row in ROWS}
    assert rows | REFUSED_EVERYWHERE.keys() | CANNOT_BE_SAID.keys() == set(MANDATORY)


GOOD = {
    "one node": one_node(),
    "two nodes": stacks.two_nodes(),
    "MIG": stacks.with_mig(),
    "hardware": stacks.with_hardware(),
    "faster form": stacks.optimized("fp16"),
    "threads for CPUs": _without_cpus(threads={"intra_op": 4, "inter_op": 2}),
    "one of a model": changed(_one_pool_more(), "pools[1].single", True),
    "a canary of one": _helped([0, 1, 2], {"canary": {"pool": "trial", "percent": 5}}),
    "a standby of one": _helped([0], {"standby": {"pool": "trial"}}),
    "a folder of models": changed(
        changed(one_node(), f"{POOL}.models_folder", "/srv/models"),
        f"{POOL}.models[1]",
        {"name": "bert", "path": "/srv/models/bert"},
    ),
    "tokens behind TLS": changed(one_node(), "front_end", {"auth": TOKENS | {"tls_in_front": True}}),
    "pods": kubernetes_stacks.four_gpus(),
    "pods with tokens behind TLS": _on_a_cluster("front_end", {"auth": TOKENS | {"tls_in_front": True}}),
    "pods with keys behind TLS": _on_a_cluster(
        "front_end", {"api_keys_secret": "keys", "tls_in_front": True}
    ),
    "pods with keys and TLS": _on_a_cluster(
        "front_end", {"api_keys_secret": "keys", "tls_secret": "serving-tls"}
    ),
    "pods with tokens and TLS": _on_a_cluster("front_end", {"auth": TOKENS, "tls_secret": "serving-tls"}),
    "pods with two GPUs": _many_gpus(),
    "pods of models in an image": _on_a_cluster(f"{POOL}.model_volume", {"image": "models:7.0.0"}),
    "pods without batching": changed(
        without(kubernetes_stacks.four_gpus(), f"{POOL}.batching"), f"{POOL}.unbatched", True
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_the_settings_take_in_prod_passes_the_pack(name: str, deploy: Deploy) -> None:
    assert judged(GOOD[name], deploy) == {}
