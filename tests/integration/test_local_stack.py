"""The local stack on a real engine, from the first `up` to `destroy`; the tests build on each other."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from components.outputs import StackOutputs
from components.plan import Plan, make_plan
from components.settings import Settings
from components.stack_file import load_settings, own_values
from images.samples import write_sample_models
from tests.envoy.harness import free_ports
from tests.integration import predict
from tests.integration.conftest import SUBNET
from tests.integration.docker_cli import DockerCli, addresses
from tests.integration.drill import wait_until
from tests.pulumi_project import CHECKOUT, Project

pytestmark = pytest.mark.integration

STACK = "drill"
ENOUGH_REQUESTS = 200


@dataclass(frozen=True)
class Deployed:
    """The local stack as this module deploys it: other ports, another subnet, models of its own."""

    config: dict[str, object]
    settings: Settings
    plan: Plan

    @property
    def rest_port(self) -> int:
        return self.settings.front_end.rest_port

    @property
    def grpc_port(self) -> int:
        return self.settings.front_end.grpc_port

    def gpus(self) -> dict[str, str]:
        """UUID by instance name, as the Plan has them."""
        return {instance.name: instance.slot.uuid for instance in self.plan.instances}


@pytest.fixture(scope="module")
def deployed(
    project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    models = tmp_path_factory.mktemp("models")
    write_sample_models(models)
    rest_port, grpc_port, metrics_port = free_ports(3)
    document = yaml.safe_load((CHECKOUT / "Pulumi.local.yaml").read_text())
    config = own_values(document["config"])
    config["nodes"][0]["subnet"] = SUBNET  # type: ignore[index]
    config["pools"][0]["models"][0]["path"] = str(models / predict.MODEL)  # type: ignore[index]
    config["front_end"] = {
        "bind": "127.0.0.1",
        "rest_port": rest_port,
        "grpc_port": grpc_port,
        "metrics_port": metrics_port,
    }
    settings = load_settings(config, "Pulumi.drill.yaml")
    project.write_stack(STACK, config)
    try:
        first = project.up(STACK)
        assert first.code == 0, first.output
        yield Deployed(config, settings, make_plan(settings, stack=STACK, project_folder=str(project.folder)))
    finally:
        project.destroy(STACK)


def _until_all_have_answered(ask: Callable[[], predict.Answer], wanted: set[str]) -> dict[str, str]:
    seen: dict[str, str] = {}
    for _ in range(ENOUGH_REQUESTS):
        answer = ask()
        assert answer.prediction == 2.5
        seen[answer.served_by] = answer.gpu
        if seen.keys() == wanted:
            break
    return seen


def test_rest_predictions_reach_each_gpu_and_say_so(deployed: Deployed) -> None:
    seen = _until_all_have_answered(lambda: predict.rest(deployed.rest_port), set(deployed.gpus()))
    assert seen == deployed.gpus()


def test_grpc_predictions_reach_each_gpu_and_say_so(deployed: Deployed) -> None:
    seen = _until_all_have_answered(lambda: predict.over_grpc(deployed.grpc_port), set(deployed.gpus()))
    assert seen == deployed.gpus()


def test_each_server_process_sees_its_own_gpu_and_no_other(deployed: Deployed, engine: DockerCli) -> None:
    seen = {}
    for instance in deployed.plan.instances:
        process = json.loads(engine.run("inspect", "--format", "{{json .State.Pid}}", instance.container))
        for pid in (process, *_children(process)):
            environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
            seen[instance.name, pid] = [
                line
                for line in environment
                if line.startswith(("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))
            ]
    gpus = deployed.gpus()
    assert len(seen) >= 2 * len(gpus)
    assert seen == {(name, pid): [f"NVIDIA_VISIBLE_DEVICES={gpus[name]}"] for name, pid in seen}


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_every_container_has_the_address_that_the_plan_gave_it(deployed: Deployed, engine: DockerCli) -> None:
    [node] = deployed.plan.nodes
    wanted = {
        instance.container: {node.serving_network.name: str(instance.address)} for instance in node.instances
    }
    wanted[node.front_end.container] = {
        node.serving_network.name: str(node.front_end.serving_address),
        node.front_network.name: str(node.front_end.front_address),
    }
    assert {name: addresses(engine.inspect(name)) for name in wanted} == wanted


def test_containers_have_the_limits_and_the_confinement_of_the_plan(
    deployed: Deployed, engine: DockerCli
) -> None:
    for instance in deployed.plan.instances:
        host = engine.inspect(instance.container)["HostConfig"]
        limit = instance.memory.container_mib * 2**20
        assert (host["Memory"], host["MemorySwap"], host["CpusetCpus"]) == (limit, limit, instance.cpus)
        assert (host["CapDrop"], host["SecurityOpt"], host["Privileged"]) == (
            ["ALL"],
            ["no-new-privileges:true"],
            False,
        )
        assert host["Init"] is True


def test_a_server_can_write_neither_its_root_nor_its_files_nor_its_models(
    deployed: Deployed, engine: DockerCli
) -> None:
    for instance in deployed.plan.instances:
        for folder in ("/", "/etc", "/config", "/models/half_plus_two"):
            refused = f"if (: >{folder}/written); then echo written; else echo refused; fi"
            assert engine.run("exec", instance.container, "bash", "-c", refused) == "refused", folder
        assert engine.run("exec", instance.container, "bash", "-c", ": >/tmp/x && echo written") == "written"


def test_files_are_published_by_containers_that_end_and_have_no_gpu_and_one_internal_network(
    deployed: Deployed, engine: DockerCli
) -> None:
    [config] = deployed.plan.nodes[0].configs
    # It stays for half a minute after its work, so that Pulumi meets it healthy.
    wait_until(lambda: engine.inspect(config.container)["State"]["Status"] == "exited", "publisher ended")
    publisher = engine.inspect(config.container)
    assert publisher["State"]["ExitCode"] == 0
    host = publisher["HostConfig"]
    assert (host["DeviceRequests"], host["CapAdd"]) == (None, None)
    assert set(addresses(publisher)) == {deployed.plan.nodes[0].serving_network.name}
    assert (host["CapDrop"], host["RestartPolicy"]["Name"]) == (["ALL"], "no")  # type: ignore[index]


def test_nothing_publishes_ports_but_the_front_end(deployed: Deployed, engine: DockerCli) -> None:
    published = {name: engine.run("port", name) for name in engine.names("container")}
    [front_end] = (name for name, ports in published.items() if ports)
    assert front_end == deployed.plan.nodes[0].front_end.container
    assert {line.partition(" -> ")[2].partition(":")[0] for line in published[front_end].splitlines()} == {
        "127.0.0.1"
    }


def test_a_second_up_changes_nothing(deployed: Deployed, project: Project) -> None:
    again = project.up(STACK, "--expect-no-changes")
    assert (again.code, list(again.changes())) == (0, ["unchanged"]), again.output


def test_an_up_with_refresh_changes_nothing(deployed: Deployed, project: Project) -> None:
    again = project.up(STACK, "--refresh", "--expect-no-changes")
    assert again.code == 0, again.output


def test_previews_with_refresh_stay_empty_ten_times(deployed: Deployed, project: Project) -> None:
    # Networks of a container come back in no fixed order: a comparison by position fails now and then.
    codes = [project.preview(STACK, "--refresh", "--expect-no-changes").code for _ in range(10)]
    assert codes == [0] * 10


def test_outputs_are_the_published_contract(deployed: Deployed, project: Project) -> None:
    outputs = StackOutputs.model_validate(project.outputs(STACK))
    assert outputs.rest_url == f"http://127.0.0.1:{deployed.rest_port}"
    assert {instance.name: instance.gpu_uuids[0] for instance in outputs.instances} == deployed.gpus()


def test_a_batching_change_rolls_one_instance_at_a_time_and_loses_no_request(
    deployed: Deployed, project: Project, engine: DockerCli
) -> None:
    deployed.config["pools"][0]["batching"]["batch_timeout_micros"] = 3000  # type: ignore[index]
    project.write_stack(STACK, deployed.config)
    before = engine.ids()
    since = time.time()
    with (
        predict.Load(lambda: predict.rest(deployed.rest_port), clients=4) as rest,
        predict.Load(lambda: predict.over_grpc(deployed.grpc_port), clients=2) as over_grpc,
    ):
        changed = project.up(STACK)
    assert (changed.code, changed.changes().get("replaced")) == (0, 4 + 4 + 1 + 1), changed.output
    assert set(rest.outcomes) == {"answered"}, rest.outcomes
    assert set(over_grpc.outcomes) == {"answered"}, over_grpc.outcomes
    after = engine.ids()
    front_end = deployed.plan.nodes[0].front_end.container
    kept = {front_end, f"{front_end}-publisher"}
    assert {name for name in after if after[name] == before[name]} == kept
    assert {config.container for config in deployed.plan.nodes[0].configs} <= after.keys()
    assert _fewest_healthy(engine, since, [instance.container for instance in deployed.plan.instances]) == 3


def _fewest_healthy(engine: DockerCli, since: float, containers: list[str]) -> int:
    """The fewest of the containers that were healthy at once, by the engine's own record."""
    span = ["--since", f"{since:.3f}", "--until", f"{time.time():.3f}"]
    events = engine.run("events", "--format", "{{json .}}", *span, "--filter", "type=container")
    healthy = set(containers)
    fewest = len(healthy)
    for event in map(json.loads, events.splitlines()):
        name = event["Actor"]["Attributes"]["name"]
        if event["Action"] == "die":
            healthy.discard(name)
        elif event["Action"] == "health_status: healthy" and name in containers:
            healthy.add(name)
        fewest = min(fewest, len(healthy))
    assert len(healthy) == len(containers)
    return fewest


def test_a_bad_stack_file_is_refused_with_its_message_and_nothing_is_touched(
    deployed: Deployed, project: Project, engine: DockerCli
) -> None:
    before = engine.ids()
    broken = json.loads(json.dumps(deployed.config))
    broken["pools"][0]["batching"]["max_batch_size"] = 64
    broken["nodes"][0]["gpus"][1]["uuid"] = "GPU-1"
    project.write_stack(STACK, broken)
    refused = project.up(STACK)
    project.write_stack(STACK, deployed.config)
    assert refused.code != 0
    assert (
        "pools[0].batching.allowed_batch_sizes: [1, 2, 4, 8, 16, 32]: the last size must equal"
        in refused.output
    )
    assert "nodes[0].gpus[1].uuid: 'GPU-1': accepted: the UUID" in refused.output
    assert "Traceback" not in refused.output
    assert engine.ids() == before


def test_destroy_leaves_nothing(deployed: Deployed, project: Project, engine: DockerCli) -> None:
    gone = project.destroy(STACK)
    assert gone.code == 0, gone.output
    assert engine.names("container") == set()
    assert engine.names("network") == {"bridge", "host", "none"}
    assert engine.names("volume") == set()
