"""host-memory and host-memory-total: limits, swap and shared memory, and what fits a node."""

import pytest

from tests.kubernetes_stacks import four_gpus, settings
from tests.policies.good import UNKNOWN, Declared, deployment, exporter, front_end, publisher, server
from tests.policies.judge import messages, violations
from tests.policies.test_kubernetes_stacks import declared
from tests.stacks import changed

RULE = "host-memory"
TOTAL = "host-memory-total"
CONTAINER = "spec.template.spec.containers[0]"
LIMITS = f"{CONTAINER}.resources.limits"


def sized(mib: float, gpu: int = 0) -> Declared:
    return server(gpu).changed("memory", mib).changed("memorySwap", mib)


@pytest.mark.parametrize("declared", [server(), front_end(), publisher()], ids=lambda one: one.name)
@pytest.mark.parametrize("memory", [None, 0.0])
def test_without_a_limit_a_container_is_refused(declared: Declared, memory: float | None) -> None:
    bad = declared.without("memory") if memory is None else declared.changed("memory", memory)
    [found] = violations(RULE, bad)
    assert found.resource == declared.name
    said = "unset" if memory is None else "0"
    assert found.message.startswith(
        f"{declared.name}: memory: {said}: it may take all memory of its node\n  Fix: "
    )


@pytest.mark.parametrize(("swap", "said"), [(-1.0, "-1"), (196608.0, "196608"), (None, "unset")])
def test_swap_is_pinned_to_the_memory(swap: float | None, said: str) -> None:
    bad = server().without("memorySwap") if swap is None else server().changed("memorySwap", swap)
    [found] = messages(RULE, bad)
    why = "it may swap as much again" if swap is None else "a server that swaps answers in seconds"
    assert f"gpu0: memorySwap: {said}: is not memory (98304): {why}" in found
    assert "Fix: set memorySwap to 98304" in found


def test_shared_memory_is_inside_the_memory() -> None:
    assert messages(RULE, server().changed("shmSize", 98304.0)) == []
    [found] = messages(RULE, server().changed("shmSize", 98305.0))
    assert "gpu0: shmSize: 98305: exceeds its memory of 98304 MiB" in found


def test_what_the_engine_gives_by_itself_counts_as_shared_memory() -> None:
    assert messages(RULE, sized(64.0).without("shmSize")) == []
    assert "shmSize: 64: exceeds its memory of 32 MiB" in "".join(
        messages(RULE, sized(32.0).without("shmSize"))
    )


@pytest.mark.parametrize("path", ["memory", "memorySwap", "shmSize"])
def test_a_size_that_is_not_known_in_preview_is_refused_by_resource(path: str) -> None:
    [found] = violations(RULE, server().changed(path, UNKNOWN))
    assert found.resource == "gpu0"
    assert f"Memory of gpu0 is not known in preview: {path}" in found.message


def test_what_is_not_known_hides_nothing_else() -> None:
    found = messages(RULE, server().without("memory").changed("shmSize", UNKNOWN))
    assert [one.partition(" ")[0] for one in found] == ["Memory", "gpu0:"]


def test_another_programs_container_that_is_alone_is_not_ours() -> None:
    assert messages(RULE, exporter().without("memory")) == []


@pytest.mark.parametrize("path", ["spec.template", "spec.template.spec.containers[0]"])
def test_a_pod_that_is_not_known_in_preview_is_refused_and_not_called_unbounded(path: str) -> None:
    [found] = messages(RULE, deployment().changed(path, UNKNOWN))
    assert found.startswith("Memory of main")
    assert f"is not known in preview: {path}" in found


def test_a_size_that_is_no_number_is_refused() -> None:
    assert "memory is a text, not a number" in "".join(messages(RULE, server().changed("memory", "lots")))


def test_cpus_that_are_not_known_are_another_rules_matter() -> None:
    assert messages(RULE, server().changed("cpuSet", UNKNOWN)) == []


def test_a_server_is_never_exempt_and_another_container_is_by_its_label() -> None:
    assert messages(RULE, server().without("memory").labelled(exempt=RULE)) != []
    assert messages(RULE, front_end().without("memory").labelled(exempt=RULE)) == []


def test_a_pod_has_a_limit_and_asks_for_all_of_it() -> None:
    assert messages(RULE, deployment()) == []
    [found] = messages(RULE, deployment().without(f"{LIMITS}.memory"))
    assert found.startswith("main/server: resources.limits.memory: unset: it may take all memory")
    requests = f"{CONTAINER}.resources.requests"
    assert messages(RULE, deployment().changed(requests, {"memory": "98304Mi"})) == []
    [found] = messages(RULE, deployment().changed(requests, {"memory": "64Gi"}))
    assert "main/server: resources.requests.memory: 65536 Mi: is not the limit (98304 Mi)" in found


def test_a_container_beside_a_pods_server_has_a_limit_too() -> None:
    beside = deployment().changed("spec.template.spec.containers[1]", {"name": "side", "image": "busybox:1"})
    for pod in (beside, beside.without("spec.template.metadata.labels")):
        [found] = messages(RULE, pod)
        assert found.startswith("main/side: resources.limits.memory: unset")


@pytest.mark.parametrize(("size", "fits"), [("96Gi", True), ("97Gi", False)])
def test_shared_memory_of_a_pod_is_inside_its_memory(size: str, fits: bool) -> None:
    shared = (
        deployment()
        .changed("spec.template.spec.volumes[1]", {"name": "shm", "emptyDir": {"medium": "Memory"}})
        .changed("spec.template.spec.volumes[1].emptyDir.sizeLimit", size)
        .changed(f"{CONTAINER}.volumeMounts[1]", {"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    )
    found = messages(RULE, shared)
    assert (found == []) == fits
    assert fits or "emptyDir.sizeLimit of /dev/shm: 99328: exceeds" in found[0]


@pytest.mark.parametrize("path", [f"{LIMITS}.memory", f"{CONTAINER}.resources", LIMITS])
def test_memory_of_a_pod_that_is_not_known_is_refused(path: str) -> None:
    assert (
        "Memory of main/server is not known in preview: "
        in messages(RULE, deployment().changed(path, UNKNOWN))[0]
    )


@pytest.mark.parametrize(("ram", "fits"), [("198656", True), ("198655", False)])
def test_what_a_nodes_containers_may_use_fits_its_ram_less_the_reserve(ram: str, fits: bool) -> None:
    # 2 x 98304 and Envoy's 1024, and 1024 that are kept; the publisher ends at once.
    there = [server(0), server(1), front_end(), publisher(node_memory_mib=ram)]
    found = violations(TOTAL, *there)
    assert (found == []) == fits
    if not fits:
        assert found[0].resource == "envoy"
        assert (
            "98304 (gpu0) + 98304 (gpu1) + 1024 (envoy) = 197632 MiB on a node of 198655" in found[0].message
        )
        assert "Fix: lower memory, or move a server" in found[0].message


def test_of_a_docker_host_only_what_is_there_is_added_up() -> None:
    gpus = ";".join(f"{gpu}=GPU-{gpu}" for gpu in range(4))
    assert messages(TOTAL, server(0), publisher(node_gpus=gpus, node_memory_mib="100000")) == []


def test_large_sums_are_written_out() -> None:
    [found] = messages(TOTAL, sized(1234567.0), sized(8.0, 1), publisher(node_memory_mib="1000000"))
    assert "1234567 (gpu0) + 8 (gpu1) = 1234575 MiB on a node of 1000000" in found


def test_the_reserve_is_a_setting() -> None:
    there = [server(0), publisher(node_memory_mib="100000")]
    assert messages(TOTAL, *there) == []
    assert "of which 4096 are kept for itself" in "".join(messages(TOTAL, *there, reserveMib=4096.0))


def test_nodes_are_added_up_one_by_one() -> None:
    elsewhere = "ssh://deploy@gpu-02.example.com"
    there = [server(0), server(1).on(elsewhere), publisher(node_memory_mib="100000")]
    assert messages(TOTAL, *there) == []


def test_without_the_nodes_ram_nothing_is_added_up() -> None:
    assert messages(TOTAL, sized(10.0**9), publisher()) == []


def test_what_runs_beside_a_server_has_a_limit_or_says_that_it_has_none() -> None:
    unlimited = exporter().without("memory")
    assert "dcgm: memory: unset: it may take what the servers there need" in "".join(
        messages(TOTAL, server(), unlimited)
    )
    assert messages(TOTAL, unlimited) == []  # no server here: nothing of ours
    assert messages(TOTAL, server(), exporter()) == []
    assert messages(TOTAL, server(), unlimited.labelled(exempt=TOTAL)) == []
    [found] = messages(TOTAL, server(), exporter().changed("memory", UNKNOWN))
    assert found.startswith("Memory of dcgm is not known")


def test_what_another_rule_says_of_a_server_is_not_said_again() -> None:
    assert messages(TOTAL, server(0), server(1).without("memory"), front_end().without("memory")) == []


def test_what_has_no_limit_is_not_added_up() -> None:
    unlimited = exporter().without("memory").labelled(exempt=TOTAL)
    [found] = violations(TOTAL, server(), unlimited, publisher(node_memory_mib="1000"))
    assert found.resource == "gpu0"
    assert "memory: 98304 (gpu0) = 98304 MiB on a node of 1000" in found.message


@pytest.mark.parametrize(("ram", "fits"), [("196608", True), ("196607", False)])
def test_replicas_that_fill_a_nodes_gpus_fit_its_ram(ram: str, fits: bool) -> None:
    told = deployment().labelled(node_memory_mib=ram, node_gpus="0=GPU-a;1=GPU-b")
    found = messages(TOTAL, told)
    assert (found == []) == fits
    assert (
        fits or "main/server: resources.limits.memory: 2 x 98304 Mi on a node that has 196607 for" in found[0]
    )


def test_replicas_are_judged_where_limit_and_ram_are_known() -> None:
    told = deployment().labelled(node_memory_mib="1000", node_gpus="0=GPU-a")
    assert messages(TOTAL, told.without(f"{LIMITS}.memory")) == []
    assert messages(TOTAL, deployment()) == []


def test_pods_that_we_deploy_tell_the_memory_of_their_nodes() -> None:
    nodes = changed(four_gpus(), "node_pools[0].memory_mib_per_node", 4 * 98304)
    made = declared(settings(nodes))
    assert messages(TOTAL, *made) == []

    def limited(memory: str, replicas: int = 4) -> list[Declared]:
        made = declared(settings(changed(nodes, "pools[0].nodes.replicas", replicas)))
        return [one.changed(f"{LIMITS}.memory", memory) if one.name == "main" else one for one in made]

    [found] = violations(TOTAL, *limited("98305Mi"))
    assert found.resource == "main"
    assert "4 x 98305 Mi on a node that has 393216 for pods" in found.message
    assert messages(TOTAL, *limited("196608Mi", replicas=2)) == []
