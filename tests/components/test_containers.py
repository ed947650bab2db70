"""The containers of an instance and of a front end, input by input."""

from typing import Any

import pulumi
import pulumi_docker as docker
import pytest
from pulumi.runtime import rpc

from components.config_volume import ConfigVolume, ConfigVolumeArgs, PublishedFile
from components.container import duration
from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.envoy_files import bootstrap_file, envoy_files
from components.flags import server_arguments
from tests import stacks
from tests.mock_engine import CONTAINER, Deploy, Engine, Registered


def deployed(deploy: Deploy, config: stacks.Config) -> Engine:
    args = ServingDeploymentArgs(
        settings=stacks.settings(config), stack="test", project_folder=stacks.PROJECT_FOLDER
    )

    def program() -> None:
        ServingDeployment("serving", args)

    return deploy(program)


def inputs(deploy: Deploy, config: stacks.Config, container: str) -> dict[str, Any]:
    return deployed(deploy, config).container(container).inputs


def models_config(found: Registered) -> str:
    flag = "--model_config_file="
    (path,) = [word.removeprefix(flag) for word in found.inputs["command"] if word.startswith(flag)]
    return str(path)


def test_an_instance_runs_the_server_itself_with_the_arguments_of_its_plan(deploy: Deploy) -> None:
    found = inputs(deploy, stacks.two_nodes(), "test.gpu-02-gpu2")
    (plan,) = [plan for plan in stacks.plan(stacks.two_nodes()).instances if plan.name == "gpu-02-gpu2"]
    assert found["entrypoints"] == ["/usr/bin/tensorflow_model_server"]
    assert found["command"] == list(server_arguments(plan))
    assert found["image"] == "tensorflow/serving:2.14.1-gpu"
    assert found["envs"] == ["TF_CPP_MIN_LOG_LEVEL=0", "TF_FORCE_GPU_ALLOW_GROWTH=false"]


def test_every_file_that_a_flag_names_is_in_the_container(deploy: Deploy) -> None:
    for name in ("test.gpu-02-gpu2", "test.gpu-01-gpu0"):
        engine = deployed(deploy, stacks.two_nodes())
        found = engine.container(name)
        named = {flag.split("=", 1)[1] for flag in found.inputs["command"] if "_file=" in flag}
        assert named == set(engine.files(found)), name


def test_every_base_path_of_the_model_list_is_a_mount(deploy: Deploy) -> None:
    engine = deployed(deploy, stacks.two_nodes())
    found = engine.container("test.gpu-02-gpu2")
    *models, _config = found.inputs["mounts"]
    assert models == [
        {"type": "bind", "source": "/srv/models/bert", "target": "/models/bert", "readOnly": True},
        {"type": "bind", "source": "/srv/models/tagger", "target": "/models/tagger", "readOnly": True},
    ]
    for mount in models:
        assert f'base_path: "{mount["target"]}"' in engine.files(found)[models_config(found)]


def test_limits_and_cpus_come_from_the_pool_and_the_gpu(deploy: Deploy) -> None:
    found = inputs(deploy, stacks.two_nodes(), "test.gpu-02-gpu2")
    assert (found["memory"], found["memorySwap"], found["shmSize"]) == (4096, 4096, 256)
    assert found["cpuSet"] == "32-47,96-111"


def test_a_gpu_without_cpus_pins_none(deploy: Deploy) -> None:
    config = stacks.without(stacks.in_staging(stacks.one_node()), "nodes[0].gpus[1].cpus")
    assert "cpuSet" not in inputs(deploy, config, "test.gpu-01-gpu1")


def test_the_patience_of_up_is_the_load_timeout(deploy: Deploy) -> None:
    found = inputs(deploy, stacks.two_nodes(), "test.gpu-02-gpu2")
    assert found["waitTimeout"] == 90
    assert found["healthcheck"]["startPeriod"] == "1m30s"
    assert found["healthcheck"]["interval"] == "3s"


def test_an_instance_is_healthy_only_when_every_model_of_it_is_loaded(deploy: Deploy) -> None:
    found = deployed(deploy, stacks.two_nodes()).container("test.gpu-02-gpu2")
    assert found.inputs["healthcheck"]["tests"][-2:] == ["8501", f"{models_config(found)}.serving"]


def test_a_stop_reaches_the_server_and_takes_no_longer_than_the_rollout_says(deploy: Deploy) -> None:
    found = inputs(deploy, stacks.two_nodes(), "test.gpu-02-gpu2")
    assert found["init"] is True
    assert found["stopSignal"] == "SIGTERM"
    assert (found["stopTimeout"], found["destroyGraceSeconds"]) == (20, 20)


def test_logs_are_bounded(deploy: Deploy) -> None:
    found = inputs(deploy, stacks.one_node(), "test.gpu-01-gpu0")
    assert found["logDriver"] == "json-file"
    assert set(found["logOpts"]) == {"max-file", "max-size"}


def test_a_container_comes_back_after_a_reboot(deploy: Deploy) -> None:
    for name in ("test.gpu-01-gpu0", "test.gpu-01-envoy"):
        assert inputs(deploy, stacks.one_node(), name)["restart"] == "unless-stopped"


@pytest.mark.parametrize("path", ["networkMode", "memorySwap", "shmSize", "init", "stopTimeout", "logDriver"])
def test_what_the_engine_would_fill_in_is_said(deploy: Deploy, path: str) -> None:
    # Unset, the engine's own value is read back as a difference, on every preview.
    for name in ("test.gpu-01-gpu0", "test.gpu-01-envoy"):
        assert inputs(deploy, stacks.one_node(), name)[path], name


def test_a_front_end_publishes_three_ports_and_its_metrics_on_the_loopback_alone(deploy: Deploy) -> None:
    config = stacks.without(stacks.one_node(), "nodes[0].bind")
    config = stacks.changed(config, "front_end", {"bind": "10.0.0.7", "rest_port": 80})
    assert inputs(deploy, config, "test.gpu-01-envoy")["ports"] == [
        {"internal": 8080, "external": 80, "ip": "10.0.0.7", "protocol": "tcp"},
        {"internal": 8500, "external": 8500, "ip": "10.0.0.7", "protocol": "tcp"},
        {"internal": 9902, "external": 9902, "ip": "127.0.0.1", "protocol": "tcp"},
    ]


def test_a_front_end_reads_the_configuration_of_its_node(deploy: Deploy) -> None:
    engine = deployed(deploy, stacks.two_nodes())
    found = engine.container("test.gpu-02-envoy").inputs
    plan = stacks.plan(stacks.two_nodes()).nodes[1].front_end
    bootstrap, text = bootstrap_file(plan)
    wanted = {bootstrap: text, **envoy_files(plan)}
    uploaded = engine.files(engine.container("test.gpu-02-envoy-publisher"))
    assert wanted.items() <= {file.rpartition("/")[2]: text for file, text in uploaded.items()}.items()
    assert found["mounts"] == [
        {"type": "volume", "source": "test.gpu-02-envoy-config", "target": "/config", "readOnly": False}
    ]
    assert found["image"] == "envoyproxy/envoy:v1.40.0"
    assert found["entrypoints"] == ["/bin/bash"]
    assert found["command"] == ["/config/envoy_run.sh", "/config", "9901"]
    assert "/publish/files/envoy_run.sh" in uploaded
    image, seconds, *arguments = uploaded["/publish/then/envoy.run"].splitlines()
    assert (image, seconds) == ("envoyproxy/envoy:v1.40.0", "65")
    assert arguments[:2] == ["-c", f"/config/{bootstrap}"]
    assert "--reject-unknown-dynamic-fields" in arguments


def test_a_front_end_runs_as_an_ordinary_user_and_the_files_that_it_reads_are_roots(deploy: Deploy) -> None:
    engine = deployed(deploy, stacks.one_node())
    found = engine.container("test.gpu-01-envoy").inputs
    files = engine.files(engine.container("test.gpu-01-envoy-publisher"))
    assert all(line.split()[1] == "-" for line in files["/publish/list"].splitlines())
    assert found["user"] not in ("", "0", "root", "0:0")
    assert found["readOnly"] is True
    assert not found.get("uploads")


def test_a_change_of_routes_or_of_envoy_replaces_what_brings_the_files_and_not_the_front_end(
    deploy: Deploy,
) -> None:
    def containers(image: str = "envoyproxy/envoy:v1.40.0", **front_end: object) -> dict[str, object]:
        config = stacks.changed(stacks.one_node(), "front_end", front_end)
        config["images"]["envoy"] = image
        return {
            one.inputs["name"]: one.inputs
            for one in deployed(deploy, config).of_type(CONTAINER)
            if "envoy" in str(one.inputs["name"])
        }

    before = containers()
    for change, replaced in (
        ({"max_concurrent": 77}, {"publisher", "acceptance"}),
        ({"max_request_mib": 7}, {"publisher", "acceptance"}),
        # Its memory changes in place; the image is one of the inputs that it keeps.
        ({"memory_mib": 2048}, {"publisher", "acceptance", "envoy"}),
        ({"workers": 7}, {"publisher", "acceptance"}),
        ({"request_timeout_s": 31}, {"publisher", "acceptance"}),
        ({"image": "envoyproxy/envoy:v1.40.1"}, {"publisher", "acceptance", "envoy"}),
        ({"rest_port": 8081}, {"envoy"}),
    ):
        after = containers(**change)
        differing = {name.rpartition("-")[2] for name in before if before[name] != after[name]}
        assert differing == replaced, change


def test_the_files_of_a_front_end_are_tried_before_they_are_staged(deploy: Deploy) -> None:
    engine = deployed(deploy, stacks.one_node())
    scripts = engine.files(engine.container("test.gpu-01-envoy-publisher"))
    tried, forgotten, refused = scripts["/publish/first.sh"].strip().splitlines()[-3:]
    staged = scripts["/publish/then.sh"].strip().splitlines()[-2:]
    assert tried.startswith("tried=0; rehearse /config 9903 /usr/local/bin/envoy -c /config/bootstrap-")
    assert tried.endswith("|| tried=1")
    assert forgotten == "rm -rf /config/*"
    assert refused == '((tried == 0)) || fail "Envoy does not take these files; nothing was changed"'
    assert staged == [
        'stage /publish/then "$volume" 172.29.80.2 9903',
        'stage_run /publish/then/envoy.run /usr/local/bin/envoy "$volume" 172.29.80.2 9903',
    ]


def test_a_front_end_has_the_threads_and_the_memory_of_its_settings(deploy: Deploy) -> None:
    config = stacks.changed(stacks.one_node(), "front_end", {"workers": 7, "memory_mib": 2048})
    engine = deployed(deploy, config)
    found = engine.container("test.gpu-01-envoy").inputs
    # Two of them while one takes over.
    assert (found["memory"], found["memorySwap"]) == (4096, 4096)
    files = engine.files(engine.container("test.gpu-01-envoy-publisher"))
    assert "--concurrency\n7\n" in files["/publish/then/envoy.run"]
    [bootstrap] = [text for file, text in files.items() if "/bootstrap-" in file]
    assert f"max_heap_size_bytes: {round(2048 * 0.9) * 2**20}" in bootstrap


@pytest.mark.parametrize(("timeout", "ends", "waited"), [(30, 65, 28 + 65), (3600, 7205, 28 + 120)])
def test_a_next_envoy_is_waited_for_as_long_as_the_one_before_last_may_need_but_not_for_hours(
    deploy: Deploy, timeout: int, ends: int, waited: int
) -> None:
    engine = deployed(deploy, stacks.changed(stacks.one_node(), "front_end", {"request_timeout_s": timeout}))
    publisher, acceptance = (
        engine.container(f"test.gpu-01-envoy-{role}") for role in ("publisher", "acceptance")
    )
    assert engine.files(publisher)["/publish/then/envoy.run"].splitlines()[1] == str(ends)
    script = engine.files(acceptance)["/publish/then.sh"]
    assert f'take_over "$volume/.next" "$volume" 172.29.80.2 9903 {waited} || fail' in script
    assert acceptance.inputs["waitTimeout"] == 60 + waited


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "1s"),
        (59, "59s"),
        (60, "1m0s"),
        (90, "1m30s"),
        (600, "10m0s"),
        (3600, "1h0m0s"),
        (86399, "23h59m59s"),
    ],
)
def test_seconds_are_written_as_the_engine_writes_them_back(seconds: int, text: str) -> None:
    assert duration(seconds) == text


def test_a_server_can_write_nowhere_but_into_memory(deploy: Deploy) -> None:
    found = inputs(deploy, stacks.one_node(), "test.gpu-01-gpu0")
    assert found["readOnly"] is True
    assert not found.get("uploads")
    assert list(found["tmpfs"].values()) == ["rw,nosuid,nodev,noexec,size=256m"]
    assert all(mount["readOnly"] for mount in found["mounts"])


def test_a_publisher_ends_and_sees_no_gpu_and_only_the_network_of_the_servers(deploy: Deploy) -> None:
    found = inputs(deploy, stacks.one_node(), "test.gpu-01-main-publisher")
    assert (found["restart"], found["mustRun"], found["wait"]) == ("no", False, True)
    assert not found.get("deviceRequests")
    assert found["envs"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert found["networksAdvanced"] == [{"name": "test-serving", "ipv4Address": "172.29.80.5"}]


def test_a_secret_file_reaches_its_owner_by_one_capability_and_its_text_stays_secret(deploy: Deploy) -> None:
    (plan,) = stacks.plan(stacks.one_node()).nodes[0].configs

    def program() -> None:
        files = {
            "key.pem": PublishedFile(text=pulumi.Output.secret("canary"), mode=0o600, owner=101),
            "open": PublishedFile(text="text"),
        }
        ConfigVolume(
            "mine",
            ConfigVolumeArgs(plan=plan, files=files),
            pulumi.ResourceOptions(providers=[docker.Provider("theirs", host="ssh://theirs")]),
        )

    (found,) = deploy(program).of_type(CONTAINER)
    assert found.inputs["capabilities"] == {"adds": ["CAP_CHOWN"], "drops": ["ALL"]}
    assert rpc.is_rpc_secret(found.inputs["uploads"])
    by_file = {upload["file"]: upload for upload in rpc.unwrap_rpc_secret(found.inputs["uploads"])}
    key = by_file["/publish/files/key.pem"]
    # With an owner, the engine looks up the container's user by name, and refuses a number.
    assert key == {"file": "/publish/files/key.pem", "content": "canary"}
    assert by_file["/publish/list"]["content"] == "0600 101 key.pem\n0644 - open\n"
    assert "canary" not in repr({name: value for name, value in found.inputs.items() if name != "uploads"})


def test_secrets_reach_envoys_files_and_no_other_resource(deploy: Deploy) -> None:
    edge = {"tls": {}, "auth": {"api_keys": [{"client": "a", "key": "key_a"}]}}
    settings = stacks.settings(stacks.changed(stacks.one_node(), "front_end", edge))
    secrets = {
        "tls_certificate": "-----BEGIN CERTIFICATE canary",
        "tls_private_key": "-----BEGIN PRIVATE KEY canary",
        "key_a": "canary-0123456789abcdef",
    }

    def program() -> None:
        encrypted = {key: pulumi.Output.secret(value) for key, value in secrets.items()}
        args = ServingDeploymentArgs(
            settings=settings, stack="test", project_folder=stacks.PROJECT_FOLDER, secrets=encrypted
        )
        ServingDeployment("serving", args)

    engine = deploy(program)
    holding = {found.name for found in engine.resources if "canary" in str(found.inputs)}
    assert holding == {"gpu-01-envoy-config-publisher"}
    found = engine.container("test.gpu-01-envoy-publisher").inputs["uploads"]
    assert rpc.is_rpc_secret(found)  # encrypted in the state
    texts = {upload["file"]: upload["content"] for upload in rpc.unwrap_rpc_secret(found)}
    listed = [line for line in texts["/publish/list"].splitlines() if line.startswith("0600")]
    assert listed == ["0600 101 api-keys.yaml", "0600 101 tls.crt", "0600 101 tls.key"]
    assert texts["/publish/files/tls.key"] == f"{secrets['tls_private_key']}\n"
    assert not [found.name for found in engine.resources if "canary" in str(found.outputs)]
