"""Nodes: how their engine is reached, and where their slots come from."""

import pytest

from tests import stacks
from tests.stacks import changed, mig_uuid, one_node, refusal, with_hardware, with_mig, without

DOCKER = "nodes[0].docker"
GPUS = "nodes[0].gpus"
TCP = {"endpoint": "tcp://gpu-01:2376", "cert_path": "/etc/docker/gpu-01"}


def parts(*profiles: str) -> list[dict[str, str]]:
    return [{"uuid": mig_uuid(part), "profile": profile} for part, profile in enumerate(profiles)]


def cut(model: str, *profiles: str) -> stacks.Config:
    """GPU 0 cut up, nothing placed on it."""
    config = without(changed(one_node(), f"{GPUS}[0].model", model), f"{GPUS}[0].cpus")
    config = changed(config, "pools[0].slots[0].gpus", [1, 2, 3])
    return changed(config, f"{GPUS}[0].mig", parts(*profiles))


REFUSED = [
    # options_fit_the_endpoint
    (
        changed(one_node(), DOCKER, {"endpoint": "tcp://gpu-01:2376"}),
        f"{DOCKER}.cert_path: is required for tcp://: without a CA the provider would not check who answers",
    ),
    (
        changed(one_node(), f"{DOCKER}.cert_path", "/certs"),
        f"{DOCKER}.cert_path: '/certs': only for tcp:// endpoints, not ssh://deploy@gpu-01.example.com",
    ),
    (
        changed(one_node(), DOCKER, TCP | {"ssh_options": ["-v"]}),
        f"{DOCKER}.ssh_options: only for ssh:// endpoints, not tcp://gpu-01:2376",
    ),
    (
        changed(one_node(), DOCKER, TCP | {"cert_path": "certs"}),
        f"{DOCKER}.cert_path: 'certs': accepted: an absolute path, ~/… or ./… in this project",
    ),
    # gpus_come_from_one_place
    (without(one_node(), GPUS), f"{GPUS}: is required, or hardware with gpu_uuids"),
    (changed(one_node(), GPUS, []), f"{GPUS}: is required, or hardware with gpu_uuids"),
    (
        changed(one_node(), "nodes[0].hardware", "a100-80g-x4"),
        f"{GPUS}: comes from hardware a100-80g-x4 here; give gpu_uuids, or leave hardware out",
    ),
    (
        changed(one_node(), "nodes[0].gpu_uuids", [stacks.uuid(9)]),
        f"nodes[0].gpu_uuids: ['{stacks.uuid(9)}']: needs hardware; or write gpus out",
    ),
    (
        changed(with_hardware(), "nodes[0].hardware", "dgx"),
        "nodes[0].hardware: 'dgx': accepted: a100-80g-x4",
    ),
    (
        changed(with_hardware(), "nodes[0].gpu_uuids", [stacks.uuid(0)]),
        f"nodes[0].gpu_uuids: ['{stacks.uuid(0)}']: a100-80g-x4 has 4 GPUs",
    ),
    (without(with_hardware(), "nodes[0].gpu_uuids"), "nodes[0].gpu_uuids: []: a100-80g-x4 has 4 GPUs"),
    # gpus_are_told_apart
    (
        changed(with_hardware(), "nodes[0].gpu_uuids[3]", stacks.uuid(1)),
        f"nodes[0].gpu_uuids[3]: '{stacks.uuid(1)}': is also gpu_uuids[1]",
    ),
    (
        changed(with_mig(), f"{GPUS}[0].mig[1].uuid", mig_uuid(0)),
        f"{GPUS}[0].mig[1].uuid: '{mig_uuid(0)}': is also gpus[0].mig[0].uuid",
    ),
    # cpus_are_not_shared
    (
        changed(with_mig(), f"{GPUS}[0].mig[1].cpus", "7-15"),
        f"{GPUS}[0].mig[1].cpus: '7-15': overlaps gpus[0].mig[0]; give each slot its own CPUs",
    ),
    # cpus_are_on_the_gpus_numa_node
    (
        changed(changed(one_node(), "nodes[0].share_cpus", True), f"{GPUS}[2].cpus", "15-40"),
        f"{GPUS}[2].cpus: '15-40': CPU 15 is on NUMA node 0 by gpus[0], but this GPU on 1",
    ),
    # model_and_profiles_exist
    (
        changed(with_mig(), f"{GPUS}[0].cpus", "0-15"),
        f"{GPUS}[0].cpus: '0-15': belongs to the parts here: set mig[].cpus",
    ),
    (without(with_mig(), f"{GPUS}[0].model"), f"{GPUS}[0].model: is required with mig; accepted: a100-80g, "),
    (
        changed(one_node(), f"{GPUS}[0].model", "a100"),
        f"{GPUS}[0].model: 'a100': accepted: a100-80g, a100-40g, h100-80g, t4, ",
    ),
    (
        cut("a100-80g", "1g.5gb"),
        f"{GPUS}[0].mig[0].profile: '1g.5gb': a100-80g has no such profile; accepted: 1g.10gb, 1g.20gb, ",
    ),
    (
        cut("t4", "1g.5gb"),
        f"{GPUS}[0].mig[0].profile: '1g.5gb': t4 has no such profile; accepted: none: it cannot be cut",
    ),
    (cut("a100-80g", *["4g.40gb"] * 2), f"{GPUS}[0].mig: 2 x 4g.40gb, but one a100-80g has 1 at most"),
    (cut("a100-80g", *["1g.10gb"] * 8), f"{GPUS}[0].mig: [{{'uuid': "),
    # parts_fit_the_card
    (
        cut("a100-80g", "4g.40gb", "3g.40gb", "1g.10gb"),
        f"{GPUS}[0].mig: 4g.40gb + 3g.40gb + 1g.10gb take 8 slices and 90112 MiB, but one a100-80g has 7 and",
    ),
    (
        cut("a100-80g", "4g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"),
        f"{GPUS}[0].mig: 4g.40gb + 2g.20gb + 1g.10gb + 1g.10gb take 8 slices and 79616 MiB, but one",
    ),
    (
        cut("a100-80g", "3g.40gb", "3g.40gb", "1g.10gb"),
        f"{GPUS}[0].mig: 3g.40gb + 3g.40gb + 1g.10gb take 7 slices and 90112 MiB, but one a100-80g has 7 and",
    ),
    (
        changed(with_mig(), f"{GPUS}[0].mig[0].uuid", stacks.uuid(0)),
        f"{GPUS}[0].mig[0].uuid: '{stacks.uuid(0)}': accepted: the MIG UUID that `nvidia-smi -L` prints",
    ),
    (
        changed(one_node(), f"{GPUS}[0].uuid", mig_uuid(0)),
        f"{GPUS}[0].uuid: '{mig_uuid(0)}': accepted: the UUID that `nvidia-smi -L` prints",
    ),
]

ACCEPTED = [
    with_hardware(),
    with_mig(),
    changed(one_node(), DOCKER, TCP),
    changed(one_node(), DOCKER, TCP | {"cert_path": "~/.docker/gpu-01"}),
    changed(with_mig(), f"{GPUS}[0].mig[1].cpus", "8-14"),
    without(with_mig(), f"{GPUS}[0].mig[1].cpus"),
    changed(changed(one_node(), "nodes[0].share_cpus", True), f"{GPUS}[1].cpus", "0-15"),
    cut("a100-80g", "4g.40gb", "2g.20gb", "1g.10gb"),
    cut("a100-80g", *["1g.10gb"] * 7),
    cut("a100-80g", "3g.40gb", "3g.40gb"),
    cut("a100-80g", *["1g.20gb"] * 4),
    cut("a100-80g", "7g.80gb"),
    cut("a100-40g", "1g.5gb"),
    changed(one_node(), f"{GPUS}[0].model", "t4"),
]


@pytest.mark.parametrize(("config", "line"), REFUSED)
def test_a_node_that_breaks_a_rule_is_refused_in_one_line(config: stacks.Config, line: str) -> None:
    (said,) = refusal(config)
    assert said.startswith(line)


@pytest.mark.parametrize("config", ACCEPTED)
def test_a_node_that_comes_close_to_breaking_a_rule_is_accepted(config: stacks.Config) -> None:
    assert stacks.problems(stacks.in_staging(config)) == ()


def test_one_mig_uuid_on_two_gpus_of_a_node_is_told() -> None:
    config = cut("a100-80g", "3g.40gb")
    config = without(changed(config, f"{GPUS}[1].model", "a100-80g"), f"{GPUS}[1].cpus")
    config = changed(config, "pools[0].slots[0].gpus", ["0:0", "1:0"])
    assert refusal(changed(config, f"{GPUS}[1].mig", parts("3g.40gb"))) == [
        f"{GPUS}[1].mig[0].uuid: '{mig_uuid(0)}': is also gpus[0].mig[0].uuid"
    ]


def test_hardware_is_short_for_its_gpus_written_out() -> None:
    written, named = one_node(), with_hardware()
    for gpu in range(4):
        written = changed(written, f"{GPUS}[{gpu}].model", "a100-80g")
    assert stacks.settings(named).nodes[0].all_gpus() == stacks.settings(written).nodes[0].gpus
    assert stacks.plan(named).instances == stacks.plan(written).instances
