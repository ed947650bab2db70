"""What models take at most, and the labels that say it to policies."""

from dataclasses import replace

from components.model_sizes import Room, room_of, smallest
from components.slots import slots_of
from tests import stacks
from tests.kubernetes_stacks import four_gpus, plan
from tests.stacks import changed, without

GPU_MIB = "pools[0].models[0].gpu_mib"
SIZES = ("models-mib", "slot-mib", "slot-reserve-mib")


def sizes(config: stacks.Config) -> list[str | None]:
    """What the container that publishes the first pool's files says."""
    said = dict(stacks.plan(config).nodes[0].configs[0].labels)
    return [said.get(f"tf-serving.{name}") for name in SIZES]


def test_what_publishes_a_pools_files_says_its_sizes_where_both_are_known() -> None:
    config = changed(stacks.with_hardware(), GPU_MIB, 20000)
    assert sizes(config) == ["40000", "81920", "1536"]
    assert sizes(changed(config, "pools[0].models[0].versions", {"latest": 2})) == ["60000", "81920", "1536"]
    assert sizes(changed(config, "pools[0].models[0].versions", {"all": True})) == [None, None, None]
    assert sizes(without(config, GPU_MIB)) == [None, None, None]
    assert sizes(changed(stacks.one_node(), GPU_MIB, 20000)) == [None, None, None]


def test_servers_say_no_sizes_and_stay_when_one_changes() -> None:
    for gpu_mib in (10, 20):
        [*labels] = stacks.plan(changed(stacks.with_hardware(), GPU_MIB, gpu_mib)).instances[0].labels
        assert [name for name, _ in labels if name.endswith("-mib")] == []


def test_of_slots_that_differ_the_smallest_of_those_that_are_known_counts() -> None:
    [slot, *_] = slots_of(stacks.settings(stacks.with_hardware()).nodes[0]).values()
    slots = [replace(slot, memory_mib=memory) for memory in (81920, None, 40960)]
    assert smallest(slots) == Room(40960, 1536)
    assert smallest(slots[1:2]) is None


def test_a_pod_has_a_gpu_or_a_part_of_one() -> None:
    assert room_of("a100-80g", "nvidia.com/gpu") == Room(81920, 1536)
    assert room_of("a100-80g", "nvidia.com/gpu.shared") == Room(81920, 1536)
    assert room_of("a100-80g", "nvidia.com/mig-1g.10gb") == Room(9728, 1536)
    assert room_of("a100-80g", "nvidia.com/mig-1g.5gb") is None
    assert room_of(None, "nvidia.com/gpu") is None


def test_the_workload_on_kubernetes_says_the_sizes_and_its_pods_do_not() -> None:
    servers = plan(changed(four_gpus(), GPU_MIB, 20000)).servers[0]
    said = dict(servers.own_labels)
    assert [said[f"tf-serving.{name}"] for name in SIZES] == ["40000", "81920", "1536"]
    assert [name for name, _ in (*servers.labels, *servers.annotations) if name.endswith("-mib")] == []
