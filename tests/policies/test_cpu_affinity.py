"""cpu-affinity: sets that are apart and beside their GPU, and threads where there are only quotas."""

import pytest

from tests.policies.good import UNKNOWN, Declared, deployment, front_end, publisher, server, uuid
from tests.policies.judge import messages, violations

RULE = "cpu-affinity"
NUMA = "0=0;1=0;2=1;3=1"
CPUS = "0=0-15,64-79;1=16-31,80-95;2=32-47,96-111;3=48-63,112-127"
THREADS = ("tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism")
POD = "spec.template.spec.containers[0]"


def judged(*declared: Declared, environment: str = "prod") -> str:
    return "\n".join(messages(RULE, *declared, environment=environment))


def facts() -> Declared:
    gpus = ";".join(f"{gpu}={uuid(gpu)}" for gpu in range(4))
    return publisher(node_gpus=gpus, node_numa=NUMA, node_cpus=CPUS)


def pinned(cpus: str, gpu: int = 0) -> Declared:
    return server(gpu).changed("cpuSet", cpus)


def saying(declared: Declared, **flags: str) -> Declared:
    more = [f"--{name}={value}" for name, value in flags.items()]
    return declared.changed("command", declared.props["command"] + more)


def test_servers_with_cpus_of_their_own_beside_their_gpus_are_accepted() -> None:
    there = [server(gpu) for gpu in range(4)]
    assert violations(RULE, *there, front_end(), facts(), deployment()) == []


@pytest.mark.parametrize(
    ("other", "shared"), [("15-20", "15"), ("64,70-72", "64,70-72"), ("0-15,64-79", "0-15,64-79")]
)
def test_cpus_of_two_servers_are_apart(other: str, shared: str) -> None:
    [found] = violations(RULE, server(0), pinned(other, 1))
    assert found.resource == "gpu1"
    assert f"gpu1: cpuSet: {other}: CPUs {shared} are those of gpu0" in found.message
    assert "Fix: give each server CPUs of its own" in found.message


def test_the_same_cpus_of_two_machines_are_apart() -> None:
    assert judged(server(0), pinned("0-15", 1).on("ssh://deploy@gpu-02.example.com")) == ""


@pytest.mark.parametrize("label", ["share_cpus", "sharing"])
def test_cpus_are_shared_where_both_say_so_and_never_in_prod(label: str) -> None:
    both = [one.labelled(**{label: "true"}) for one in (server(0), pinned("0-15", 1))]
    assert judged(*both, environment="staging") == ""
    refused = judged(*both)
    assert "CPUs 0-15 are those of gpu0" in refused
    assert "tf-serving.share-cpus" not in refused
    assert "tf-serving.share-cpus" in judged(both[0], pinned("0-15", 1), environment="staging")
    assert "are those of gpu0" in judged(server(0), both[1], environment="staging")


@pytest.mark.parametrize(
    ("cpus", "stray"), [("32-47", "32-47"), ("0-15,48", "48"), ("0-15,200", "200"), ("16-31,80-95", None)]
)
def test_cpus_are_on_the_numa_node_of_the_gpu(cpus: str, stray: str | None) -> None:
    found = judged(pinned(cpus), facts())
    if stray is None:
        assert found == ""
    else:
        assert f"gpu0: cpuSet: {cpus}: CPUs {stray} are not on NUMA node 0 of its GPU" in found
        assert "Fix: choose from 0-31,64-95" in found


def test_a_gpu_by_its_index_and_a_part_of_one_have_a_numa_node_too() -> None:
    by_index = pinned("0-15", 2).changed("deviceRequests[0].deviceIds", ["2"])
    assert "are not on NUMA node 1 of its GPU" in judged(by_index, facts())
    part = pinned("0-15", 2).changed("deviceRequests[0].deviceIds", ["MIG-12345678"])
    assert "are not on NUMA node 1 of its GPU" in judged(part.labelled(slot="gpu2-mig1"), facts())


def test_an_index_needs_no_map_of_the_node() -> None:
    by_index = pinned("0-15", 2).changed("deviceRequests[0].deviceIds", ["2"])
    unmapped = publisher(node_numa=NUMA, node_cpus=CPUS)
    assert "are not on NUMA node 1 of its GPU" in judged(by_index, unmapped)


def test_a_gpu_of_which_nothing_is_said_may_be_anywhere() -> None:
    elsewhere = pinned("0-15", 2)
    gpus = f"2={uuid(2)}"
    assert judged(elsewhere, publisher(node_gpus=gpus, node_numa="0=0", node_cpus=CPUS)) == ""
    assert judged(elsewhere, publisher(node_gpus=gpus, node_numa=NUMA, node_cpus="2=some;3=all")) == ""
    # Another card than those of the node: its label is only a word about it.
    assert judged(elsewhere, publisher(node_gpus="0=GPU-other", node_numa=NUMA, node_cpus=CPUS)) == ""


def test_what_is_said_of_the_parts_of_a_card_is_said_of_the_card() -> None:
    parts = publisher(
        node_gpus="0:0=MIG-a;1=GPU-b", node_numa="0:0=0;0:1=0;1=1", node_cpus="0:0=0-3;0:1=4-7;1=8-15"
    )
    mine = server(0).changed("deviceRequests[0].deviceIds", ["MIG-a"]).labelled(slot="gpu0-mig0")
    assert judged(mine.changed("cpuSet", "4-7"), parts) == ""
    assert "CPUs 8 are not on NUMA node 0" in judged(mine.changed("cpuSet", "4-8"), parts)


def test_without_facts_of_the_node_only_overlaps_are_judged() -> None:
    assert judged(pinned("500-600"), publisher()) == ""


@pytest.mark.parametrize("cpus", ["all", "5-2", "0-", "0;1"])
def test_a_set_that_is_none_is_refused(cpus: str) -> None:
    assert f"gpu0: cpuSet: {cpus}: is no set of CPUs" in judged(pinned(cpus))


def test_a_server_that_is_alone_may_have_all_cpus() -> None:
    assert judged(server(0).without("cpuSet")) == ""


def test_a_server_among_others_without_a_set_says_its_threads() -> None:
    unset = server(1).without("cpuSet")
    found = judged(server(0), unset)
    assert (
        "gpu1: cpuSet: unset: other servers are on these CPUs, and without --tensorflow_intra_op_par" in found
    )
    assert "Fix: set cpuSet, or set --tensorflow_intra_op_parallelism and --tensorflow_inter_op" in found
    assert judged(server(0), saying(unset, **dict.fromkeys(THREADS, "8"))) == ""
    assert "unset" not in judged(server(0), server(1).changed("cpuSet", UNKNOWN))
    assert judged(server(0), saying(unset, tensorflow_session_parallelism="8")) == ""
    assert "--tensorflow_inter_op_parallelism" in judged(
        server(0), saying(unset, tensorflow_intra_op_parallelism="8", tensorflow_inter_op_parallelism="0")
    )


@pytest.mark.parametrize("flag", ["grpc_max_threads", "rest_api_num_threads"])
def test_with_a_quota_alone_every_kind_of_thread_is_said(flag: str) -> None:
    quota = saying(server(0).without("cpuSet").changed("cpus", 16.0), **dict.fromkeys(THREADS, "8"))
    assert judged(quota) == ""
    left = [word for word in quota.props["command"] if flag not in word]
    assert f"gpu0: cpus: 16: is no set of CPUs, and without --{flag} it starts" in judged(
        quota.changed("command", left)
    )


def test_a_server_without_rest_has_no_threads_for_it() -> None:
    quota = saying(server(0).without("cpuSet").changed("cpus", 16.0), **dict.fromkeys(THREADS, "8"))
    left = [word for word in quota.props["command"] if "rest_api" not in word]
    assert judged(quota.changed("command", left)) == ""
    # The image's script says --rest_api_port=8501 by itself.
    scripted = judged(quota.changed("command", left).without("entrypoints"))
    assert "without --rest_api_num_threads it starts" in scripted


@pytest.mark.parametrize("flag", [*THREADS, "grpc_max_threads", "rest_api_num_threads"])
def test_a_pod_says_its_threads(flag: str) -> None:
    words = deployment().props["spec"]["template"]["spec"]["containers"][0]["args"]
    bad = deployment().changed(f"{POD}.args", [word for word in words if flag not in word])
    found = judged(bad)
    assert f"main/server: resources.limits.cpu: 16: is no set of CPUs, and without --{flag}" in found
    assert f"Fix: set --{flag} to fit its share of the CPUs" in found


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (server().changed("cpuSet", UNKNOWN), "CPUs of gpu0 is not known in preview: cpuSet"),
        (server().without("cpuSet").changed("cpus", UNKNOWN), "CPUs of gpu0 is not known in preview: cpus"),
        (
            server().without("cpuSet").changed("cpus", 4.0).changed("command[0]", UNKNOWN),
            "Arguments of gpu0 is not known in preview: command[0]",
        ),
        (
            deployment().changed(f"{POD}.resources.limits.cpu", UNKNOWN),
            f"CPUs of main/server is not known in preview: {POD}.resources.limits.cpu",
        ),
    ],
)
def test_what_is_not_known_in_preview_is_refused_by_resource(declared: Declared, said: str) -> None:
    [found] = violations(RULE, declared)
    assert found.resource == declared.name
    assert said in found.message
