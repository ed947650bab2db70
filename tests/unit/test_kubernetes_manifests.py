"""What a stack comes to on Kubernetes, object by object."""

from typing import Any

import pytest
import yaml

from components.kubernetes_envoy import clusters_hash, dynamic_files
from components.kubernetes_manifests import objects
from components.kubernetes_plan import make_kubernetes_plan
from components.kubernetes_settings import KubernetesSettings
from components.stack_file import load_stack_file
from tests import golden
from tests.kubernetes_stacks import four_gpus, plan, rendered_to
from tests.manifests import VERSIONS, problems
from tests.stacks import Config, changed

Json = dict[str, Any]
KUBERNETES = {
    stack: loaded
    for stack, file in golden.stack_files().items()
    if isinstance(loaded := load_stack_file(file), KubernetesSettings)
}


def made(config: Config) -> dict[str, Json]:
    return {each.key: each.manifest for each in objects(plan(config))}


def pod(manifest: Json) -> Json:
    spec: Json = manifest["spec"]["template"]["spec"]
    return spec


def container(manifest: Json) -> Json:
    (only,) = pod(manifest)["containers"]
    return dict(only)


def sticky() -> Config:
    return changed(four_gpus(), "pools[0].balancing", {"sticky": True})


def autoscaled(**measure: int) -> Config:
    nodes = {"pool": "a100", "cpus": 16, "autoscale": {"least": 2, "most": 4, **measure}}
    return changed(four_gpus(), "pools[0].nodes", nodes)


def with_volume(**volume: object) -> Config:
    return changed(four_gpus(), "pools[0].model_volume", volume)


def every_config() -> dict[str, Config]:
    return {
        "sticky": sticky(),
        "cpu": autoscaled(),
        "gpu": autoscaled(gpu_percent=80),
        "queue": autoscaled(queue_ms=20),
        "host": with_volume(host_path=True),
        "image": with_volume(image="models:1.0.0"),
        "tls": changed(four_gpus(), "front_end", {"tls_secret": "serving-tls"}),
        "keys": changed(
            four_gpus(),
            "front_end",
            {"api_keys_secret": "keys", "tls_in_front": True, "rate_limit": {"per_second": 10}},
        ),
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stack", KUBERNETES)
def test_every_committed_stack_is_valid_in_three_versions_of_kubernetes(stack: str, version: str) -> None:
    for each in objects(make_kubernetes_plan(KUBERNETES[stack], stack=stack)):
        assert problems(each.manifest, version) == [], each.key


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("which", every_config())
def test_every_kind_of_stack_is_valid_in_three_versions_of_kubernetes(which: str, version: str) -> None:
    for each in objects(plan(every_config()[which])):
        assert problems(each.manifest, version) == [], each.key


@pytest.mark.parametrize("which", every_config())
def test_names_and_keys_are_told_apart_and_all_is_in_the_namespace(which: str) -> None:
    every = objects(plan(every_config()[which]))
    assert len({each.key for each in every}) == len(every)
    assert len({(each.kind, each.name) for each in every}) == len(every)
    for each in every:
        assert each.manifest["metadata"]["namespace"] == "serving"  # type: ignore[index]
        assert len(each.name) <= 63


def test_what_an_object_waits_for_is_made_before_it() -> None:
    known: set[str] = set()
    for each in objects(plan(four_gpus())):
        assert set(each.after) <= known
        known.add(each.key)


@pytest.mark.parametrize("which", every_config())
def test_no_object_is_a_secret(which: str) -> None:
    assert "Secret" not in {each.kind for each in objects(plan(every_config()[which]))}


def test_a_pod_asks_for_one_gpu_in_limits_alone_and_for_whole_cpus() -> None:
    resources = container(made(four_gpus())["main"])["resources"]
    assert resources == {"limits": {"cpu": "16", "memory": "98304Mi", "nvidia.com/gpu": "1"}}


def test_envoy_asks_for_no_gpu_and_goes_to_no_gpu_node() -> None:
    manifest = made(four_gpus())["envoy"]
    assert set(container(manifest)["resources"]["limits"]) == {"cpu", "memory"}
    assert "tolerations" not in pod(manifest)
    assert "runtimeClassName" not in pod(manifest)


def test_nobody_hands_out_gpus_past_the_scheduler() -> None:
    manifest = made(with_volume(image="models:1.0.0"))["main"]
    assert "NVIDIA_VISIBLE_DEVICES" not in {each["name"] for each in container(manifest)["env"]}
    (unpacker,) = pod(manifest)["initContainers"]
    assert unpacker["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert "nvidia.com/gpu" not in unpacker["resources"]["limits"]


def test_a_runtime_class_is_absent_unless_it_is_said() -> None:
    assert "runtimeClassName" not in pod(made(four_gpus())["main"])
    said = changed(four_gpus(), "node_pools[0].runtime_class", "nvidia")
    assert pod(made(said)["main"])["runtimeClassName"] == "nvidia"


def test_servers_tolerate_the_taints_of_their_nodes_and_go_nowhere_else() -> None:
    spec = pod(made(four_gpus())["main"])
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def test_full_nodes_roll_without_a_surge() -> None:
    strategy = made(four_gpus())["main"]["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def test_up_waits_as_long_as_loading_may_take() -> None:
    slow = changed(four_gpus(), "pools[0].load_timeout_s", 1500)
    (servers,) = [each for each in objects(plan(slow)) if each.key == "main"]
    assert servers.create_timeout_s is not None
    assert servers.create_timeout_s > 1500
    assert servers.update_timeout_s is not None
    assert servers.update_timeout_s > 4 * 1500
    assert servers.manifest["spec"]["progressDeadlineSeconds"] > 1500  # type: ignore[index]


def test_a_pod_is_ready_once_its_models_are_loaded_and_not_before() -> None:
    server = container(made(four_gpus())["main"])
    for probe in ("startupProbe", "readinessProbe"):
        assert server[probe]["exec"]["command"][-1] == "/v1/models/resnet50/metadata"
    startup = server["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 600
    assert server["livenessProbe"]["exec"]["command"][-1] == "/v1/models/resnet50"


def test_a_pod_that_is_to_go_answers_what_it_has_first() -> None:
    manifest = made(four_gpus())["main"]
    lingers = int(container(manifest)["lifecycle"]["preStop"]["exec"]["command"][-1].removeprefix("sleep "))
    assert lingers > 30
    assert pod(manifest)["terminationGracePeriodSeconds"] > lingers
    assert pod(manifest)["shareProcessNamespace"] is True


@pytest.mark.parametrize("key", ["main", "envoy", "acceptance"])
def test_containers_have_no_more_rights_than_they_need(key: str) -> None:
    manifest = made(four_gpus())[key]
    assert pod(manifest)["automountServiceAccountToken"] is False
    assert pod(manifest)["securityContext"]["runAsNonRoot"] is True
    assert pod(manifest)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = container(manifest)["securityContext"]
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}


def test_shared_memory_is_a_volume_of_the_size_that_is_said() -> None:
    manifest = made(four_gpus())["main"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}} in pod(manifest)[
        "volumes"
    ]
    assert {"name": "shm", "mountPath": "/dev/shm"} in container(manifest)["volumeMounts"]  # noqa: S108


def test_files_are_mounted_as_folders_that_the_kubelet_keeps_up_to_date() -> None:
    for key in ("main", "envoy"):
        (mounted,) = [m for m in container(made(four_gpus())[key])["volumeMounts"] if m["name"] == "files"]
        assert mounted == {"name": "files", "mountPath": "/config", "readOnly": True}


def test_other_batching_replaces_pods_and_touches_nothing_of_envoy() -> None:
    before = made(four_gpus())
    after = made(changed(four_gpus(), "pools[0].batching.batch_timeout_micros", 5000))
    differ = {key for key in before if before[key] != after[key]}
    assert differ == {"main-files", "main"}
    assert before["acceptance"]["metadata"]["name"] == after["acceptance"]["metadata"]["name"]
    assert before["main-files"]["metadata"]["name"] != after["main-files"]["metadata"]["name"]


ASKS = {"acceptance", "acceptance-files"}


def test_another_route_changes_one_config_map_in_place_and_is_asked_for_by_another_job() -> None:
    before = made(four_gpus())
    after = made(changed(four_gpus(), "front_end", {"user_header": "x-account"}))
    after_sticky = made(changed(sticky(), "front_end", {"user_header": "x-account"}))
    assert {key for key in before if before[key] != after[key]} <= {"envoy-files"} | ASKS
    differ = {key for key, each in made(sticky()).items() if each != after_sticky[key]}
    assert differ == {"envoy-files"} | ASKS
    names = [stack["acceptance"]["metadata"]["name"] for stack in (made(sticky()), after_sticky)]
    assert names[0] != names[1]
    assert made(sticky())["envoy-files"]["metadata"] == after_sticky["envoy-files"]["metadata"]


def test_envoy_is_replaced_where_there_are_other_clusters() -> None:
    both = four_gpus()
    both["pools"] = [
        changed(both, "pools[0].nodes.replicas", 3)["pools"][0],
        {
            **both["pools"][0],
            "name": "text",
            "models": [{"name": "tagger", "path": "/tagger"}],
            "nodes": {"pool": "a100", "replicas": 1, "cpus": 4},
            "single": True,
        },
    ]
    one, two = plan(four_gpus()).front_end.envoy, plan(both).front_end.envoy
    assert clusters_hash(one) != clusters_hash(two)


def clusters(config: Config) -> dict[str, Json]:
    document = yaml.safe_load(dynamic_files(plan(config).front_end.envoy)["cds.yaml"])
    return {each["name"]: each for each in document["resources"]}


def test_envoy_finds_pods_by_the_name_of_their_service() -> None:
    found = clusters(four_gpus())
    assert set(found) == {"rest-main", "grpc-main"}
    for name, port in (("rest-main", 8501), ("grpc-main", 8500)):
        assert found[name]["type"] == "STRICT_DNS"
        ((endpoint,),) = [each["lb_endpoints"] for each in found[name]["load_assignment"]["endpoints"]]
        address = endpoint["endpoint"]["address"]["socket_address"]
        assert address == {"address": "test-main.serving.svc.cluster.local", "port_value": port}


def test_pods_that_users_stick_to_have_names_that_stay() -> None:
    manifest = made(sticky())["main"]
    assert manifest["kind"] == "StatefulSet"
    assert manifest["spec"]["serviceName"] == "test-main"
    ((*endpoints,),) = [
        each["lb_endpoints"]
        for each in clusters(sticky())["rest-main_sticky"]["load_assignment"]["endpoints"]
    ]
    assert [each["endpoint"]["hostname"] for each in endpoints] == [f"test-main-{n}" for n in range(4)]
    addresses = [each["endpoint"]["address"]["socket_address"]["address"] for each in endpoints]
    assert addresses == [f"test-main-{n}.test-main.serving.svc.cluster.local" for n in range(4)]


def helped(**traffic: object) -> Config:
    config = changed(four_gpus(), "pools[0].nodes.replicas", 3)
    first = {**config["pools"][0], "traffic": traffic}
    second = {**config["pools"][0], "name": "second", "nodes": {"pool": "a100", "replicas": 1, "cpus": 8}}
    return {**config, "pools": [first, second]}


def hosts(cluster: Json) -> list[tuple[int, str]]:
    """Priority and host of each name that a cluster asks for."""
    return [
        (
            group.get("priority", 0),
            str(endpoint["endpoint"]["address"]["socket_address"]["address"]).partition(".")[0],
        )
        for group in cluster["load_assignment"]["endpoints"]
        for endpoint in group["lb_endpoints"]
    ]


def test_a_standby_is_the_second_choice_behind_a_name_of_its_own() -> None:
    assert hosts(clusters(helped(standby={"pool": "second"}))["rest-main"]) == [
        (0, "test-main"),
        (1, "test-second"),
    ]


def test_a_dedicated_pool_has_pods_and_a_name_of_its_own_and_gets_what_its_header_marks() -> None:
    config = helped(dedicated=[{"pool": "second", "header": {"name": "x-class", "value": "hot"}}])
    every = made(config)
    assert every["second"]["spec"]["selector"] != every["main"]["spec"]["selector"]
    routes = yaml.safe_load(every["envoy-files"]["data"]["rds-rest.yaml"])["resources"][0]
    marked = [
        route["route"]["cluster"]
        for host in routes["virtual_hosts"]
        for route in host["routes"]
        if any(header["name"] == "x-class" for header in route["match"].get("headers", []))
    ]
    assert marked
    for name in set(marked):
        # Those of the pool itself come second: while the dedicated ones are down, they answer.
        assert hosts(clusters(config)[name]) == [(0, "test-second"), (1, "test-main")]


def test_retries_are_allowed_for_as_many_pods_as_there_are() -> None:
    (thresholds,) = clusters(four_gpus())["rest-main"]["circuit_breakers"]["thresholds"]
    assert thresholds["retry_budget"]["budget_percent"] == {"value": 50.0}


def test_an_autoscaler_owns_the_number_of_pods() -> None:
    config = autoscaled()
    assert "replicas" not in made(config)["main"]["spec"]
    assert "replicas" not in made(config)["envoy"]["spec"]
    spec = made(config)["main-autoscaler"]["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 4)
    assert spec["metrics"] == [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 75}},
        }
    ]
    assert "main-autoscaler" not in made(four_gpus())


@pytest.mark.parametrize(
    ("measure", "metric", "series"),
    [
        ({"gpu_percent": 80}, "tf_serving_gpu_percent", "DCGM_FI_DEV_GPU_UTIL"),
        ({"queue_ms": 20}, "tf_serving_queue_ms", "batching_session:queuing_latency_sum"),
    ],
)
def test_a_metric_of_pods_comes_with_the_rule_that_an_adapter_needs(
    measure: dict[str, int], metric: str, series: str
) -> None:
    config = autoscaled(**measure)
    (wanted,) = made(config)["main-autoscaler"]["spec"]["metrics"]
    assert wanted["pods"]["metric"] == {"name": metric}
    (rule,) = yaml.safe_load(made(config)["adapter-rules"]["data"]["rules.yaml"])["rules"]
    assert rule["name"] == {"as": metric}
    assert series in rule["seriesQuery"]
    assert "adapter-rules" not in made(autoscaled())


def test_a_budget_selects_the_pods_of_its_pool_and_lets_one_go() -> None:
    every = made(four_gpus())
    budget, servers = every["main-budget"]["spec"], every["main"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == servers["selector"]
    assert servers["selector"]["matchLabels"].items() <= servers["template"]["metadata"]["labels"].items()


def test_only_envoy_and_prometheus_reach_servers_and_servers_reach_nobody() -> None:
    spec = made(four_gpus())["servers-network"]["spec"]
    assert spec["egress"] == []
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    from_envoy, from_prometheus, from_asker = spec["ingress"]
    (source,) = from_envoy["from"]
    assert source["podSelector"]["matchLabels"]["tf-serving.role"] == "front-end"
    assert from_prometheus["ports"] == [{"protocol": "TCP", "port": 8501}]
    assert from_asker["from"] == [
        {"podSelector": {"matchLabels": {"tf-serving.role": "acceptance", "tf-serving.stack": "test"}}}
    ]
    assert from_asker["ports"] == [{"protocol": "TCP", "port": 8501}]


def test_nobody_reaches_envoys_own_pages() -> None:
    spec = made(four_gpus())["envoy-network"]["spec"]
    *of_others, of_asker = spec["ingress"]
    ports = {port["port"] for rule in of_others for port in rule["ports"]}
    assert ports == {8080, 8500, 9902}
    assert of_asker["ports"] == [{"protocol": "TCP", "port": 9903}]
    (only,) = of_asker["from"]
    assert only["podSelector"]["matchLabels"]["tf-serving.role"] == "acceptance"
    named = changed(four_gpus(), "front_end", {"client_namespaces": ["shop"]})
    clients = made(named)["envoy-network"]["spec"]["ingress"][0]["from"]
    assert clients == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}]


def test_a_certificate_is_a_secret_that_the_cluster_has() -> None:
    every = made(changed(four_gpus(), "front_end", {"tls_secret": "serving-tls"}))
    (files,) = [volume for volume in pod(every["envoy"])["volumes"] if volume["name"] == "files"]
    assert {"secret": {"name": "serving-tls"}} in files["projected"]["sources"]
    assert "/config/tls.key" in every["envoy-files"]["data"]["sds-tls.yaml"]


def test_api_keys_are_a_file_in_a_secret_that_the_cluster_has_and_nothing_passes_without_it() -> None:
    every = made(
        changed(four_gpus(), "front_end", {"api_keys_secret": "serving-api-keys", "tls_in_front": True})
    )
    (files,) = [volume for volume in pod(every["envoy"])["volumes"] if volume["name"] == "files"]
    assert {
        "secret": {
            "name": "serving-api-keys",
            "items": [{"key": "api-keys.yaml", "path": "api-keys.yaml"}],
        }
    } in files["projected"]["sources"]
    listeners = every["envoy-files"]["data"]["lds.yaml"]
    assert "/config/api-keys.yaml" in listeners
    assert "api-keys.yaml" not in every["envoy-files"]["data"]


@pytest.mark.parametrize(
    ("volume", "mounted"),
    [
        ({"claim": "models"}, {"name": "models", "mountPath": "/models/resnet50", "subPath": "resnet50"}),
        ({"host_path": True}, {"name": "models-0", "mountPath": "/models/resnet50"}),
        ({"image": "models:1.0.0"}, {"name": "models", "mountPath": "/models"}),
    ],
)
def test_a_server_only_reads_its_models(volume: dict[str, object], mounted: Json) -> None:
    mounts = container(made(with_volume(**volume))["main"])["volumeMounts"]
    assert {**mounted, "readOnly": True} in mounts


def test_the_job_asks_every_pod_for_what_its_files_say_and_reaches_nobody_else() -> None:
    config = changed(four_gpus(), "pools[0].models[0].versions", {"specific": [1, 2]})
    every = made(changed(config, "pools[0].models[0].labels", {"stable": 1, "canary": 2}))
    lines = every["acceptance-files"]["data"]["settings"].splitlines()
    taken = {line.split()[1]: line.split()[2] for line in lines if line.startswith("taken ")}
    said = {name: yaml.safe_load(text)["version_info"] for name, text in every["envoy-files"]["data"].items()}
    assert taken == {
        "cluster_manager.cds": said["cds.yaml"],
        "listener_manager.lds": said["lds.yaml"],
        **{f"http.{name}.rds.{name}": said[f"rds-{name}.yaml"] for name in ("rest", "grpc", "metrics")},
    }
    assert lines[1:3] == ["brought 150", "envoy test-envoy-metrics.serving.svc.cluster.local 9903"]
    assert lines[-5:] == [
        "pool test-main.serving.svc.cluster.local 8501",
        "model resnet50 /models/resnet50",
        "versions resnet50 specific 1 2",
        "label resnet50 canary=2",
        "label resnet50 stable=1",
    ]
    network = every["acceptance-network"]["spec"]
    assert network["ingress"] == []
    assert network["podSelector"]["matchLabels"].items() <= pod_labels(every["acceptance"]).items()
    reached = [
        (target["podSelector"]["matchLabels"]["tf-serving.role"], [port["port"] for port in rule["ports"]])
        for rule in network["egress"]
        for target in rule.get("to", [])
    ]
    assert reached == [("front-end", [9903]), ("instance", [8501])]


def pod_labels(manifest: Json) -> Json:
    labels: Json = manifest["spec"]["template"]["metadata"]["labels"]
    return labels


def test_a_job_that_found_something_wrong_is_not_tried_again_and_one_that_was_evicted_is() -> None:
    job = made(four_gpus())["acceptance"]
    assert pod(job)["restartPolicy"] == "Never"
    assert job["spec"]["backoffLimit"] == 0
    (evicted,) = job["spec"]["podFailurePolicy"]["rules"]
    assert (evicted["action"], evicted["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    # Gone by itself, it would be made again by every `up --refresh`.
    assert "ttlSecondsAfterFinished" not in job["spec"]
    # Up for up; a tool that applies the folder needs to know when.
    assert job["metadata"]["annotations"] == {"pulumi.com/replaceUnready": "true"}
    hooked = made(rendered_to())["acceptance"]["metadata"]["annotations"]
    assert hooked["argocd.argoproj.io/hook"] == "PostSync"


def test_the_job_comes_last_and_asks_as_long_as_loading_may_take() -> None:
    slow = changed(four_gpus(), "pools[0].load_timeout_s", 1500)
    *_, job = objects(plan(slow))
    assert job.kind == "Job"
    assert {"main", "envoy"} <= set(job.after)
    first, *_ = made(slow)["acceptance-files"]["data"]["settings"].splitlines()
    patience = int(first.removeprefix("wait "))
    assert patience > 1500
    assert job.create_timeout_s is not None
    assert job.create_timeout_s > patience
