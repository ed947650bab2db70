"""What went wrong for people who run this kind of system, as public reports tell it, put to this program.

Each case has the number that it has in our list of public cases. Those of Kubernetes are in
`test_public_cases_kubernetes.py`. Not here: PP2 and PP3 (policies, in `tests/policies` and `tests/preview`);
not expressible, since what they are about is not built: LO1 to LO3 (load tests), MO3 (GPU metrics).
"""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from components import server_protos
from components.batching_parameters import batching_parameters
from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.errors import SettingsError
from components.facts import facts
from components.model_config import models_config
from components.outputs import stack_outputs
from components.stack_file import load_settings
from tests import stacks
from tests.envoy import reading
from tests.mock_engine import CONTAINER, PROVIDER, Engine, Registered, run_program
from tests.stacks import changed, one_node, problems, refusal, two_nodes, without

PROJECT = Path(__file__).resolve().parents[2]
MODEL = "pools[0].models[0]"
BATCHING = "pools[0].batching"
INSTANCE = "tf-serving:tf_serving:TfServingInstance"

Case = Callable[[Path], None]
CASES: dict[str, Case] = {}


def case(number: str) -> Callable[[Case], Case]:
    def keep(check: Case) -> Case:
        assert number not in CASES
        CASES[number] = check
        return check

    return keep


@pytest.mark.parametrize("number", CASES)
def test_what_went_wrong_for_others_does_not_here(number: str, tmp_path: Path) -> None:
    CASES[number](tmp_path)


def told(config: stacks.Config) -> str:
    """What is said of the one thing that is wrong."""
    (said,) = refusal(config)
    return said


def server(image: str) -> stacks.Config:
    return changed(one_node(), "images.server", f"tensorflow/serving:{image}")


def deployed(config: stacks.Config) -> Engine:
    args = ServingDeploymentArgs(
        settings=stacks.settings(config), stack="test", project_folder=stacks.PROJECT_FOLDER
    )

    def program() -> None:
        ServingDeployment("serving", args)

    return run_program(program)


@cache
def two_nodes_deployed() -> Engine:
    return deployed(two_nodes())


def instances(engine: Engine) -> list[Registered]:
    of_instances = [one for one in engine.of_type(CONTAINER) if engine.by_urn(one.parent).type == INSTANCE]
    return [found for found in of_instances if found.name.endswith("-server")]


def flag(found: Registered, name: str) -> str | None:
    values = dict(word.removeprefix("--").split("=", 1) for word in found.inputs["command"])
    return values.get(name)


def files(found: Registered) -> dict[str, str]:
    return two_nodes_deployed().files(found)


def model_list(config: stacks.Config, instance: int = 0) -> str:
    return models_config(stacks.plan(config).instances[instance].models)


def pool_clusters(config: stacks.Config) -> dict[str, Any]:
    return reading.pool_clusters(stacks.plan(config).nodes[0].front_end)


def routes(config: stacks.Config) -> dict[str, list[Any]]:
    plan = stacks.plan(config).nodes[0].front_end
    return {name: reading.routes(plan, name) for name in ("rest", "grpc", "metrics")}


# Model config


@case("MC1")
def version_policy_as_a_word(_: Path) -> None:
    said = told(changed(one_node(), f"{MODEL}.version_policy", "LATEST_VERSION"))
    assert all(word in said for word in ("latest", "all", "specific"))
    assert "must be a mapping" in told(changed(one_node(), f"{MODEL}.versions", "LATEST_VERSION"))
    both = changed(one_node(), f"{MODEL}.versions", {"latest": 2, "specific": [1]})
    assert "give exactly one: latest: <n>, all: true or specific" in told(both)
    valid = model_list(changed(one_node(), f"{MODEL}.versions", {"specific": [1, 2]}))
    (entry,) = read_models(valid)
    assert entry["model_version_policy"] == {"specific": {"versions": [1, 2]}}


def read_models(text: str) -> list[dict[str, Any]]:
    listed: Any = server_protos.values(server_protos.model_server_config(text))["model_config_list"]
    return list(listed["config"])


@case("MC2")
def two_models_without_a_platform(_: Path) -> None:
    pair = [{"name": name, "path": f"/srv/{name}"} for name in ("a", "b")]
    config = changed(one_node(), "pools[0].models", pair)
    found = read_models(model_list(config))
    assert [(entry["name"], entry["model_platform"]) for entry in found] == [
        ("a", "tensorflow"),
        ("b", "tensorflow"),
    ]
    assert told(changed(config, "pools[0].models[1].name", "a")).endswith("is also models[0].name")


@case("MC4")
def a_hand_written_model_list(folder: Path) -> None:
    text = (
        'model_config_list: { config: { name: "m", base_path: "/m", model_platform: "tensorflow", '
        "model_version_policy: { all: {} } }, }"
    )
    config = changed(without(one_node(), "pools[0].models"), "pools[0].models_file", "models.config")
    (folder / "models.config").write_text(text)
    (model,) = load_settings(config, stacks.SOURCE, folder).pools[0].models
    assert (model.name, model.path, model.versions.all) == ("m", "/m", True)
    for broken in ("\ufeff" + text, text.replace('"m"', "“m”")):
        (folder / "models.config").write_text(broken, encoding="utf-8")
        with pytest.raises(SettingsError) as caught:
            load_settings(config, stacks.SOURCE, folder)
        (problem,) = caught.value.problems
        assert re.match(r"models\.config:\d+:\d+: ", problem.message)


# Batching


@case("BA2")
def a_last_size_that_is_not_the_maximum(_: Path) -> None:
    given = {"max_batch_size": 64, "batch_timeout_micros": 0}
    config = changed(one_node(), BATCHING, given | {"allowed_batch_sizes": [1, 8, 32]})
    assert told(config).endswith("[1, 8, 32]: the last size must equal max_batch_size 64")
    for sizes in ([1, 32, 8], [8, 8, 32]):
        assert told(changed(one_node(), f"{BATCHING}.allowed_batch_sizes", sizes)).endswith("must increase")
    assert (
        told(without(one_node(), f"{BATCHING}.max_batch_size")) == f"{BATCHING}.max_batch_size: is required"
    )


@case("BA3")
def a_client_that_sends_more_than_a_batch(_: Path) -> None:
    batching = {"max_batch_size": 32, "batch_timeout_micros": 1, "allowed_batch_sizes": [1, 2, 8, 32]}
    config = changed(one_node(), BATCHING, batching)
    assert problems(changed(config, "pools[0].client_batch_size", 32)) == ()
    said = told(changed(config, "pools[0].client_batch_size", 64))
    assert said.startswith("pools[0].client_batch_size: 64: exceeds batching.max_batch_size 32")
    outputs = stack_outputs(stacks.settings(config), stacks.plan(config))
    assert [model.max_batch_size for model in outputs.models] == [32]


@case("BA4")
def batching_parameters_as_flags(_: Path) -> None:
    for found in two_nodes_deployed().of_type(CONTAINER):
        assert not [word for word in found.inputs["entrypoints"] if word.startswith("-")]
        assert not [word for word in found.inputs["envs"] if word.startswith("-")]
    (unbatched,) = [
        found for found in instances(two_nodes_deployed()) if flag(found, "enable_batching") is None
    ]
    assert flag(unbatched, "batching_parameters_file") is None
    said = told(changed(one_node(), "pools[0].server", {"max_batch_size": 8}))
    assert said.endswith("set batching.max_batch_size of the pool: it is no flag of the server")
    assert "leave the whole section out" in told(changed(one_node(), f"{BATCHING}.enabled", False))
    assert "set server of the pool" in told(
        changed(one_node(), "pools[0].extra_args", ["--max_batch_size=8"])
    )


@case("BA5")
def batching_of_one_model_alone(_: Path) -> None:
    said = told(changed(one_node(), f"{MODEL}.batching", {"max_batch_size": 8}))
    assert "it holds for every model of a server" in said
    assert "a pool of its own" in said
    said = told(changed(one_node(), "pools[0].server", {"platform_config_file": "/x"}))
    assert "it silently disables batching" in said


# GPUs


@case("GP4")
def a_number_of_gpus_for_an_index(_: Path) -> None:
    lone = changed(one_node(), "pools[0].single", True)
    assert told(changed(lone, "pools[0].slots[0].gpus", [4])).endswith("accepted: 0, 1, 2, 3")
    assert told(changed(one_node(), "pools[0].slots[0].gpus", "all")).startswith(
        "pools[0].slots[0].gpus: 'all'"
    )
    assert "is refused in prod" in told(without(stacks.with_all_gpus(), "environment"))
    twice = changed(one_node(), "pools[0].slots[0].gpus", [1, 1])
    assert "already taken" in told(twice)
    for found in instances(two_nodes_deployed()):
        assert "gpus" not in found.inputs
        (request,) = found.inputs["deviceRequests"]
        assert "count" not in request
        assert [uuid[:4] for uuid in request["deviceIds"]] == ["GPU-"]


@case("GP5")
def two_servers_on_one_gpu(_: Path) -> None:
    def fractions(first: float, second: float) -> stacks.Config:
        config = changed(stacks.sharing(), "pools[0].gpu_memory.fraction", first)
        return changed(config, "pools[1].gpu_memory.fraction", second)

    assert {problem.path for problem in problems(fractions(0.5, 0.5))} == {"pools[1].gpu_memory.fraction"}
    assert problems(fractions(0.45, 0.45)) == ()
    assert "is required" in told(without(stacks.sharing(), "pools[0].gpu_memory"))
    said = told(changed(one_node(), f"{MODEL}.gpu_memory_fraction", 0.5))
    assert said.endswith("set gpu_memory.fraction of the pool")
    assert told(changed(one_node(), "pools[0].gpu_memory", {"fraction": 1.2})).startswith(
        "pools[0].gpu_memory."
    )
    assert told(changed(stacks.sharing(), "pools[0].gpu_memory.fraction", 0.0))


@case("GP6")
def variables_and_flags_that_nobody_reads(_: Path) -> None:
    said = told(changed(one_node(), "pools[0].env", {"TF_GPU_MEMORY_FRACTION": 0.5}))
    assert "the server reads no settings from variables: set gpu_memory" in said
    said = told(changed(one_node(), "pools[0].server", {"gpu_memory_fraction": 0.8}))
    assert said.endswith("set gpu_memory.fraction of the pool")
    both = changed(one_node(), "pools[0].gpu_memory", {"allow_growth": True, "fraction": 0.5})
    (found, *_rest) = instances(deployed(both))
    assert flag(found, "per_process_gpu_memory_fraction") == "0.5"
    assert "TF_FORCE_GPU_ALLOW_GROWTH=true" in found.inputs["envs"]
    known = facts().flags_of("2.14.1")
    for found in instances(two_nodes_deployed()):
        assert all(word.removeprefix("--").partition("=")[0] in known for word in found.inputs["command"])


# Drivers and images


@case("DR1")
def a_driver_older_than_the_image(_: Path) -> None:
    said = told(changed(server("2.14.1-gpu"), "nodes[0].driver", "440.33"))
    assert "carries CUDA 11.8, which needs driver 450.80.02 or newer" in said
    assert problems(changed(server("2.14.1-gpu"), "nodes[0].driver", "535.104")) == ()
    assert "the tag must name the version" in told(server("latest-gpu"))
    cuda = {"2.11.0": "11.2", "2.12.1": "11.8", "2.14.1": "11.8", "2.15.1": "12.2", "2.19.0": "12.2"}
    for version, expected in (cuda | {"2.20.0": "12.5"}).items():
        release = facts().release(version)
        assert release is not None
        assert release.cuda == expected


@case("DR2")
def an_image_without_kernels_for_the_card(_: Path) -> None:
    assert "unknown version" in told(changed(server("2.3.0-gpu"), "nodes[0].gpus[0].model", "a100-80g"))
    newer = changed(server("2.14.1-gpu"), "nodes[0].gpus[0].model", "h100-80g")
    assert "was built for compute capability 8.0 at most" in told(newer)
    for found in instances(deployed(changed(one_node(), "pools[0].load_timeout_s", 1500))):
        assert found.inputs["waitTimeout"] >= 1500
        assert found.inputs["healthcheck"]["startPeriod"] == "25m0s"


@case("DR3")
def a_gpu_image_without_a_gpu_and_the_reverse(_: Path) -> None:
    assert told(without(one_node(), "pools[0].slots")) == "pools[0].slots: is required"
    assert told(changed(one_node(), "pools[0].slots[0].gpus", [])).startswith("pools[0].slots[0].gpus: []: ")
    assert told(server("2.14.1")).endswith("has no GPU code; use the tag 2.14.1-gpu")
    for config in (one_node(), stacks.with_mig(), stacks.sharing(), stacks.with_all_gpus()):
        assert all(found.inputs["deviceRequests"] for found in instances(deployed(config)))


# Ports


@case("PO2")
def a_port_changed_on_one_side(_: Path) -> None:
    config = changed(one_node(), "front_end", {"grpc_port": 8600, "rest_port": 8602})
    engine = deployed(config)
    for found in instances(engine):
        assert (flag(found, "port"), flag(found, "rest_api_port")) == ("8500", "8501")
        assert not found.inputs.get("ports")
    ports = {
        int(endpoint["endpoint"]["address"]["socket_address"]["port_value"])
        for name, cluster in pool_clusters(config).items()
        for group in cluster["load_assignment"]["endpoints"]
        for endpoint in group["lb_endpoints"]
        if name.startswith("grpc-")
    }
    assert ports == {8500}
    published = engine.container("test.gpu-01-envoy").inputs["ports"]
    front_end = stacks.plan(config).nodes[0].front_end
    listening = {
        name: reading.listener(front_end, name)["address"]["socket_address"]["port_value"]
        for name in ("grpc", "rest")
    }
    sides = {(port["internal"], port["external"]) for port in published}
    assert {(listening["grpc"], 8600), (listening["rest"], 8602)} <= sides


@case("PO3")
def one_port_for_rest_and_grpc(_: Path) -> None:
    said = told(changed(one_node(), "front_end", {"grpc_port": 8500, "rest_port": 8500}))
    assert said == "front_end.grpc_port: 8500: is also rest_port"
    assert "private network" in told(changed(one_node(), "pools[0].ports", {"grpc": 8500, "rest": 8500}))
    for found in instances(two_nodes_deployed()):
        assert flag(found, "rest_api_port") in found.inputs["healthcheck"]["tests"], "REST itself is asked"


# Model folders


@case("MP1")
def folders_that_are_no_versions(_: Path) -> None:
    for version in ("v0.1", "1.0"):
        said = told(changed(one_node(), f"{MODEL}.versions", {"specific": [version]}))
        assert "whole number" in said
    for path in ("/srv/m/1", "/srv/m/1/variables"):
        assert "give the folder that holds the version folders" in told(
            changed(one_node(), f"{MODEL}.path", path)
        )
    assert told(changed(one_node(), f"{MODEL}.versions", {"specific": [1, "001"]}))
    assert told(changed(one_node(), f"{MODEL}.versions", {"specific": [1, 1]})).endswith(
        "is also specific[0]"
    )


@case("MP2")
def files_that_are_not_where_a_flag_says(_: Path) -> None:
    for found in instances(two_nodes_deployed()):
        named = {word.partition("=")[2] for word in found.inputs["command"] if "_file=" in word}
        assert named == set(files(found))
        mounted = {mount["target"] for mount in found.inputs["mounts"] if mount["type"] == "bind"}
        entries = read_models(files(found)[flag(found, "model_config_file") or ""])
        assert {entry["base_path"] for entry in entries} == mounted
    said = told(changed(one_node(), "pools[0].server", {"model_config_file": "/opt/models.config"}))
    assert "it is rendered" in said


@case("MP3")
def a_source_that_docker_takes_for_a_volume(_: Path) -> None:
    for path in ("srv/models/ranker", "~/models"):
        assert "give an absolute path" in told(changed(one_node(), f"{MODEL}.path", path))
    assert "cannot hold ':'" in told(changed(one_node(), f"{MODEL}.path", "/srv/a:b"))
    for found in instances(two_nodes_deployed()):
        *models, config = found.inputs["mounts"]
        assert {(mount["type"], mount["readOnly"]) for mount in models} == {("bind", True)}
        assert (config["type"], config["readOnly"], config["target"]) == ("volume", True, "/config")
        assert "volumes" not in found.inputs


# Labels


@case("VL2")
def a_label_where_a_number_belongs(_: Path) -> None:
    rest = [
        route["match"]["safe_regex"]["regex"]
        for route in routes(one_node())["rest"]
        if "safe_regex" in route["match"] and "route" in route
    ]

    def passes(path: str) -> bool:
        return any(re.fullmatch(regex, path) for regex in rest)

    labelled = changed(one_node(), f"{MODEL}.labels", {"canary": 1})
    headers = {":method": "POST", "x-tf-model-version": "canary"}
    route = reading.route_for(routes(labelled)["rest"], "/v1/models/resnet50:predict", headers)
    assert route["route"]["regex_rewrite"]["substitution"] == "/v1/models/resnet50/labels/canary"
    assert passes("/v1/models/resnet50/labels/canary:predict")
    assert passes("/v1/models/resnet50/versions/4:predict")
    assert not passes("/v1/models/resnet50/versions/canary:predict")


@case("VL3")
def labels_on_versions_that_are_not_kept(_: Path) -> None:
    labels = {"stable": 3, "canary": 4}
    assert "versions.latest keeps 1" in told(changed(one_node(), f"{MODEL}.labels", labels))
    config = changed(one_node(), f"{MODEL}.versions", {"specific": [3, 5]})
    assert told(changed(config, f"{MODEL}.labels", labels)).startswith(f"{MODEL}.labels.canary: 4: not among")
    assert told(changed(one_node(), f"{MODEL}.labels", {"stable": "4"})).startswith(
        f"{MODEL}.labels.stable: '4'"
    )
    (bert, _tagger) = read_models(model_list(two_nodes(), instance=4))
    assert bert["version_labels"] == {"stable": 3, "canary": 4}


# Envoy


@case("EN1")
def grpc_over_http1(_: Path) -> None:
    for name, cluster in pool_clusters(two_nodes()).items():
        (options,) = cluster["typed_extension_protocol_options"].values()
        assert ("http2_protocol_options" in options["explicit_http_config"]) == name.startswith("grpc-")


@case("EN2")
def a_route_with_the_default_timeout(_: Path) -> None:
    config = changed(one_node(), "front_end", {"request_timeout_s": 60})
    leading = [
        route["route"]
        for name, found in routes(config).items()
        if name in ("rest", "grpc")
        for route in found
        if "route" in route
    ]
    assert leading
    assert {route["timeout"] for route in leading} == {"60s"}
    for found in routes(config).values():
        catch_all = [route["match"].get("prefix") == "/" for route in found]
        assert True not in catch_all[:-1], "what takes everything comes last"


@case("EN3")
def half_of_the_hosts_are_dead(_: Path) -> None:
    for cluster in pool_clusters(two_nodes()).values():
        assert "healthy_panic_threshold" in cluster["common_lb_config"]
        assert "maglev" not in str(cluster)
    sticky = changed(one_node(), "pools[0].balancing", {"sticky": True})
    for name, cluster in pool_clusters(sticky).items():
        assert ("maglev" in str(cluster["load_balancing_policy"])) == name.endswith("_sticky")
        assert "healthy_panic_threshold" in cluster["common_lb_config"]
    for name in ("rest", "grpc"):
        leading = [route["route"] for route in routes(sticky)[name] if "route" in route]
        assert {route["cluster"] for route in leading} == {f"{name}-main", f"{name}-main_sticky"}
        for route in leading:
            assert ("hash_policy" in route) == route["cluster"].endswith("_sticky")
    assert "unknown key" in told(changed(one_node(), "front_end", {"sticky": {"header": "x-user-id"}}))


@case("EN4")
def bodies_above_the_buffer(_: Path) -> None:
    plan = stacks.plan(changed(one_node(), "front_end", {"max_request_mib": 64})).nodes[0].front_end
    for listener in ("rest", "grpc"):
        # The limit of what is buffered is that of a request, not that of a connection.
        assert reading.virtual_host(plan, listener)["request_body_buffer_limit"] == 64 * 2**20
        assert f"'max_request_bytes': {64 * 2**20}" in str(reading.manager(plan, listener)["http_filters"])
    said = told(changed(one_node(), "front_end", {"max_request_size": 1}))
    assert "did you mean max_request_mib?" in said


@case("EN5")
def a_host_that_is_gone(_: Path) -> None:
    for cluster in pool_clusters(two_nodes()).values():
        assert cluster["ignore_health_on_host_removal"] is True
        assert cluster["type"] == "EDS"  # from a file, by address: no name is looked up
        for group in cluster["load_assignment"]["endpoints"]:
            for endpoint in group["lb_endpoints"]:
                address = endpoint["endpoint"]["address"]["socket_address"]["address"]
                assert re.fullmatch(r"(\d{1,3}\.){3}\d{1,3}", address)


@case("EN7")
def a_thousand_requests_at_once(_: Path) -> None:
    assert stacks.settings(one_node()).front_end.max_concurrent == 4096
    for cluster in pool_clusters(changed(one_node(), "front_end", {"max_concurrent": 5000})).values():
        (limits,) = cluster["circuit_breakers"]["thresholds"]
        assert (limits["max_requests"], limits["max_pending_requests"]) == (5000, 5000)


@case("EN8")
def a_route_by_header_and_the_rest(_: Path) -> None:
    config = changed(one_node(), f"{MODEL}.versions", {"specific": [3, 4]})
    config = changed(config, f"{MODEL}.labels", {"stable": 3, "canary": 4})
    path = "/v1/models/resnet50:predict"

    def substitution(config: stacks.Config, **headers: str) -> object:
        route = reading.route_for(routes(config)["rest"], path, {":method": "POST", **headers})
        return route["route"].get("regex_rewrite", {}).get("substitution")

    assert substitution(config) is None
    by_header = substitution(config, **{"x-tf-model-version": "canary"})
    assert by_header == "/v1/models/resnet50/labels/canary"
    split = changed(config, "pools[0].traffic", {"canary": {"percent": 5, "label": "canary"}})
    taken = [
        route["route"]["regex_rewrite"]["substitution"].rpartition("/")[2]
        for route in routes(split)["rest"]
        if "regex_rewrite" in route.get("route", {}) and not route["name"].startswith("predict:resnet50=")
    ]
    assert taken == ["canary", "stable"] * 2  # of predict alone, then of all predictions
    # A weight of nobody is no split, where Envoy refuses weights of zero.
    nobody = changed(config, "pools[0].traffic", {"canary": {"percent": 0, "label": "canary"}})
    assert substitution(nobody) is None
    assert "accepted: " in told(changed(one_node(), "front_end", {"versions": {"header": "X-Track"}}))


# The Docker provider


@case("PD1")
def networks_in_another_order(_: Path) -> None:
    for found in two_nodes_deployed().of_type(CONTAINER):
        assert found.inputs["networkMode"]
        networks = [network["name"].rpartition("-")[2] for network in found.inputs["networksAdvanced"]]
        # Envoy alone has two: one that instances are on and nothing else, one that can publish.
        wanted = {"server": ["serving"], "proxy": ["serving", "front"], "acceptance": ["serving"]}
        wanted["drain"] = ["front"]  # where it asks Envoy
        assert networks == wanted.get(found.name.rpartition("-")[2], ["serving"]), found.name


@case("PD2")
def an_image_that_changes_its_name(_: Path) -> None:
    for found in two_nodes_deployed().of_type(CONTAINER):
        assert found.inputs["image"] in ("tensorflow/serving:2.14.1-gpu", "envoyproxy/envoy:v1.40.0")
        assert "image" not in {key for key, urns in found.input_dependencies.items() if urns}
    for pull in two_nodes_deployed().of_type("docker:index/remoteImage:RemoteImage"):
        assert "pullTriggers" not in pull.inputs


@case("PD3")
def a_tag_that_moves(_: Path) -> None:
    assert "the tag must name the version" in told(server("latest-gpu"))
    assert problems(server("2.14.1-gpu@sha256:" + "0f" * 32)) == ()
    for pull in two_nodes_deployed().of_type("docker:index/remoteImage:RemoteImage"):
        assert pull.inputs["keepLocally"] is True


@case("PD4")
def a_provider_that_does_not_know_the_host(_: Path) -> None:
    endpoint = {"endpoint": "ssh://svc@gpu01:22", "ssh_options": ["-o", "BatchMode=yes"]}
    engine = deployed(changed(one_node(), "nodes[0].docker", endpoint))
    (provider,) = engine.of_type(PROVIDER)
    assert provider.inputs["host"] == "ssh://svc@gpu01:22"
    options = provider.inputs["sshOpts"]
    assert (json.loads(options) if isinstance(options, str) else options) == ["-o", "BatchMode=yes"]
    placed = [found for found in engine.resources if found.type.startswith("docker:")]
    assert placed
    assert all(found.provider.startswith(f"{provider.urn}::") for found in placed)
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())
    assert "docker" in str(project["config"]["pulumi:disable-default-providers"])
    assert "accepted: ssh://user@host" in told(changed(one_node(), "nodes[0].docker", {"endpoint": "gpu01"}))


@case("PD5")
def waiting_without_a_health_check(_: Path) -> None:
    for found in two_nodes_deployed().of_type(CONTAINER):
        assert found.inputs["wait"] is True
        assert found.inputs["healthcheck"]["tests"][:2] == ["CMD", "/bin/bash"]
    for found in instances(deployed(changed(one_node(), "pools[0].load_timeout_s", 700))):
        assert found.inputs["waitTimeout"] >= 700


@case("PD6")
def a_port_that_is_still_taken(_: Path) -> None:
    # The provider deletes a container before it makes its successor, from its fourth major version on.
    (pin,) = re.findall(r"^pulumi-docker==(\d+)\.", (PROJECT / "requirements.txt").read_text(), re.MULTILINE)
    assert int(pin) >= 4
    for network in two_nodes_deployed().of_type("docker:index/network:Network"):
        assert network.delete_before_replace


# Metrics


@case("MO2")
def a_monitoring_file_that_is_not_there(_: Path) -> None:
    for found in instances(two_nodes_deployed()):
        path = flag(found, "monitoring_config_file")
        assert path is not None
        assert path.startswith("/")
        read: Any = server_protos.values(server_protos.monitoring_config(files(found)[path]))
        assert read["prometheus_config"]["enable"] is True
        assert read["prometheus_config"]["path"].startswith("/")
        assert flag(found, "rest_api_port") == "8501"
    assert "metrics are always on" in told(changed(one_node(), "pools[0].monitoring", {"enabled": True}))


def test_a_batching_file_is_never_rendered_without_the_flag_that_reads_it() -> None:
    for found in instances(two_nodes_deployed()):
        batched = flag(found, "enable_batching") == "true"
        path = flag(found, "batching_parameters_file")
        assert batched == (path is not None)
        if batched:
            pool = stacks.settings(two_nodes()).pools[0]
            assert pool.batching is not None
            assert path is not None
            assert files(found)[path] == batching_parameters(pool.batching)
