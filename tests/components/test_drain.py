"""What drains an instance is replaced with it, and by nothing else."""

import subprocess
from pathlib import Path

import pytest

from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.drain import drain_files
from tests import stacks
from tests.mock_engine import CONTAINER, Registered, run_program
from tests.stacks import changed, one_node, without

# As measured on a real engine (tests/integration/test_edits.py).
IN_PLACE = {"cpuSet", "memory", "memorySwap", "restart"}
POOL = "pools[0]"
CHANGES = {
    "batching": changed(one_node(), f"{POOL}.batching.batch_timeout_micros", 3000),
    "no batching": changed(without(one_node(), f"{POOL}.batching"), f"{POOL}.unbatched", True),
    "GPU memory": changed(one_node(), f"{POOL}.gpu_memory", {"fraction": 0.5}),
    "threads": changed(one_node(), f"{POOL}.threads", {"intra_op": 3}),
    "the image": changed(one_node(), "images.server", "tensorflow/serving:2.15.1-gpu"),
    "the model's folder": changed(one_node(), f"{POOL}.models[0].path", "/srv/models/elsewhere"),
    "the owner": changed(one_node(), "owner", "others"),
    "the load timeout": changed(one_node(), f"{POOL}.load_timeout_s", 77),
    "the stop timeout": changed(one_node(), "rollout", {"stop_timeout_s": 44}),
    "shared memory": changed(one_node(), f"{POOL}.memory", {"container_mib": 98304, "shm_mib": 77}),
    "the GPU": changed(one_node(), "nodes[0].gpus[0].uuid", stacks.uuid(9)),
    "the pool's name": changed(one_node(), f"{POOL}.name", "vision"),
    "the subnet": changed(one_node(), "nodes[0].subnet", "172.29.90.0/24"),
    "host memory": changed(one_node(), f"{POOL}.memory.container_mib", 90000),
    "CPUs": changed(one_node(), "nodes[0].gpus[0].cpus", "0-3"),
    "versions": changed(one_node(), f"{POOL}.models[0].versions", {"latest": 2}),
    "limits of the front end": changed(one_node(), "front_end", {"max_concurrent": 77}),
    "Envoy's image": changed(one_node(), "images.envoy", "envoyproxy/envoy:v1.39.0"),
    "ports": changed(one_node(), "front_end", {"metrics_port": 9000}),
    "how long draining may take": changed(one_node(), "rollout", {"drain_timeout_s": 44}),
    "how many may be away": changed(one_node(), f"{POOL}.max_unavailable", 2),
    "the order": changed(one_node(), f"{POOL}.slots[0].gpus", [3, 2, 1, 0]),
    "what is known of the node": changed(one_node(), "nodes[0].driver", "550.54.15"),
}


def containers(config: stacks.Config) -> dict[str, Registered]:
    args = ServingDeploymentArgs(
        settings=stacks.settings(config), stack="test", project_folder=stacks.PROJECT_FOLDER
    )

    def program() -> None:
        ServingDeployment("serving", args)

    return {found.name: found for found in run_program(program).of_type(CONTAINER)}


def differing(before: Registered, after: Registered) -> set[str]:
    keys = before.inputs.keys() | after.inputs.keys()
    return {key for key in keys if before.inputs.get(key) != after.inputs.get(key)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_drain_and_the_acceptance_are_replaced_where_the_instance_is_and_nowhere_else(change: str) -> None:
    before, after = containers(one_node()), containers(CHANGES[change])
    replaced = bool(differing(before["gpu-01-gpu0-server"], after["gpu-01-gpu0-server"]) - IN_PLACE)
    assert bool(differing(before["gpu-01-gpu0-drain"], after["gpu-01-gpu0-drain"])) == replaced
    if replaced:
        assert differing(before["gpu-01-envoy-acceptance"], after["gpu-01-envoy-acceptance"])


def test_a_change_of_one_instance_replaces_no_other_ones_drain() -> None:
    before, after = containers(one_node()), containers(CHANGES["the GPU"])
    changed_drains = {name for name in before if "drain" in name and differing(before[name], after[name])}
    assert changed_drains == {"gpu-01-gpu0-drain"}


def test_a_drain_has_no_more_than_it_needs() -> None:
    found = containers(one_node())["gpu-01-gpu1-drain"].inputs
    assert not found.get("uploads")  # the script is on the volume: other text replaces nobody's drain
    assert not found.get("deviceRequests")
    assert (found["readOnly"], found["restart"], found["mustRun"]) == (True, "no", False)
    assert found["envs"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert found["image"] == containers(one_node())["gpu-01-gpu1-server"].inputs["image"]
    assert found["command"][2:4] == ["drain", "gpu-01-gpu1"]
    labels = {pair["label"]: pair["value"] for pair in found["labels"]}
    assert labels == {
        "tf-serving.stack": "test",
        "tf-serving.owner": "ml-platform",
        "tf-serving.node": "gpu-01",
        "tf-serving.role": "drain",
        "tf-serving.instance": "gpu-01-gpu1",
    }


def test_drains_of_a_node_have_addresses_of_their_own_whatever_shares_it() -> None:
    for config in (one_node(), stacks.with_mig(), stacks.sharing(), stacks.two_nodes()):
        for node in stacks.plan(config).nodes:
            taken = [instance.drain.address for instance in node.instances]
            assert len({*taken, node.front_end.front_address, node.front_network.gateway}) == len(taken) + 2
            assert all(address in node.front_network.subnet for address in taken)


def test_a_drain_is_told_which_one_must_be_back() -> None:
    config = changed(changed(one_node(), f"{POOL}.slots[0].gpus", [3, 0, 2, 1]), f"{POOL}.max_unavailable", 2)
    (node,) = stacks.plan(config).nodes
    assert drain_files(node.front_end)["drain.conf"].splitlines()[1:] == [
        "gpu-01-gpu0 172.29.80.10 -",
        "gpu-01-gpu1 172.29.80.17 172.29.80.10",
        "gpu-01-gpu2 172.29.80.24 172.29.80.31",
        "gpu-01-gpu3 172.29.80.31 -",
    ]


def test_a_drain_asks_envoy_where_it_listens_whatever_port_is_published() -> None:
    config = stacks.changed(stacks.one_node(), "front_end", {"metrics_port": 9950})
    [here, there] = [stacks.plan(each).nodes[0].front_end for each in (stacks.one_node(), config)]
    assert drain_files(here)["drain.conf"] == drain_files(there)["drain.conf"]
    assert " 9903 9902 " in drain_files(there)["drain.conf"]


def test_a_drain_that_had_nothing_to_do_stays_while_a_busy_engine_is_asked_and_ends_when_told(
    tmp_path: Path,
) -> None:
    script = str(containers(one_node())["gpu-01-gpu0-drain"].inputs["command"][1])
    script = script.replace("/envoy/", f"{tmp_path}/").replace("/tmp/done", f"{tmp_path}/done")  # noqa: S108
    (tmp_path / "done.seen").touch()
    (tmp_path / "drain.sh").write_text(f'drain() {{ :; }}; sleep() {{ echo "$1" >>{tmp_path}/slept; }}')
    subprocess.run(["bash", "-c", script, "drain", "gpu-01-gpu0"], check=True, timeout=20)
    slept = (tmp_path / "slept").read_text().split()
    assert sum(map(float, slept)) == 30
    assert max(map(float, slept)) <= 1  # a signal is heard in between
    (tmp_path / "drain.sh").write_text("drain() { kill -TERM $$; }")
    subprocess.run(["bash", "-c", script, "drain", "gpu-01-gpu0"], check=True, timeout=5)
