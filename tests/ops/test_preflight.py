import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from ops import paths
from ops.hosts import Host, Result
from ops.preflight import Report, Wanted, check, wanted_of

UUIDS = [f"GPU-1a2b3c4d-0000-4000-8000-00000000000{i}" for i in range(2)]
SMI = "".join(f"{i}, {uuid}, 535.129.03, Disabled\n" for i, uuid in enumerate(UUIDS))
MIG = "MIG-5e6f7a8b-1111-5111-9111-000000000001"

# A header, ssh on all addresses, and a connection of somebody's to port 8080: none listens there.
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0
   1: 070200C0:1F90 010200C0:B000 01 00000000:00000000 00:00000000 00000000     0
"""
GOOD = {
    "docker version": "24.0.7 1.43\n",
    "docker info --format {{.NCPU}} {{.MemTotal}}": f"128 {512 * 2**30}\n",
    "docker info --format {{.DockerRootDir}}": "/var/lib/docker\n",
    "df --output=avail --block-size=1M /var/lib/docker": "Avail\n900000\n",
    "docker image inspect": "-\n",
    "ls -1 /srv/models/resnet50": "1\n2\n",
    "nvidia-smi --query-gpu": SMI,
    "docker network ls --quiet": "0a\n0b\n",
    "docker network inspect --format {{range .IPAM.Config}}{{.Subnet}} {{end}} 0a 0b": "172.17.0.0/16\n",
    "docker ps --filter publish=": "",
    "ip -o -4 addr show": "1: lo    inet 127.0.0.1/8 scope host\n2: eth0    inet 192.0.2.7/24 scope global\n",
    "cat /proc/net/tcp /proc/net/tcp6": TCP,
    "ip -4 route show table all": "default via 192.0.2.1 dev eth0\n172.17.0.0/16 dev docker0 scope link\n",
}


@dataclass(frozen=True)
class FakeHost(Host):
    """Answers by the beginning of a command; one that nobody foresaw fails the test."""

    answers: dict[str, str | Result] = field(default_factory=dict)

    def run(self, command: Sequence[str], patience_s: float = 30) -> Result:
        assert patience_s == 30
        line = " ".join(command)
        found = [answer for start, answer in self.answers.items() if line.startswith(start)]
        assert len(found) == 1, f"{len(found)} answers for: {line}"
        answer = found[0]
        return answer if isinstance(answer, Result) else Result(0, answer, "")

    def docker(self, *arguments: str) -> Result:
        return self.run(["docker", *arguments])


def wanted(answers: Mapping[str, str | Result] = MappingProxyType({})) -> Wanted:
    return Wanted(
        stack="prod",
        node="gpu-01",
        host=FakeHost("ssh://deploy@gpu-01", answers={**GOOD, **answers}),
        driver="535.129.03",
        gpus=tuple(enumerate(UUIDS)),
        highest_cpu=127,
        memory_mib=500_000,
        images=("tensorflow/serving:2.14.1-gpu",),
        folders=("/srv/models/resnet50",),
        ports=(("192.0.2.7", 8080, "front_end.rest_port"),),
        place="nodes[2]",
        bind="nodes[2].bind",
        subnet="172.29.80.0/24",
    )


def never(_address: str, _port: int) -> bool:
    raise AssertionError("the ports of another machine can't be tried from here")


def problems(node: Wanted, taken: Callable[[str, int], bool] = never) -> list[str]:
    return check(node, taken).problems


def test_a_node_that_has_everything_has_no_problem_and_says_what_was_seen() -> None:
    assert check(wanted(), never) == Report(
        facts=[
            "engine 24.0.7",
            "images are there",
            "878 GiB free in /var/lib/docker",
            "2 GPUs, driver 535.129.03",
        ]
    )


def test_a_node_that_does_not_answer_is_one_problem_and_nothing_else_is_tried() -> None:
    silent = FakeHost(
        "ssh://deploy@gpu-01", answers={"docker version": Result(255, "", "ssh: connection refused\n")}
    )
    node = replace(wanted(), host=silent)
    assert problems(node) == ["no Docker Engine answers at ssh://deploy@gpu-01: ssh: connection refused"]


def test_all_problems_of_a_node_are_told_at_once() -> None:
    node = wanted(
        {
            "docker version": "19.03.1 1.40",
            "docker info --format {{.NCPU}} {{.MemTotal}}": f"64 {256 * 2**30}",
            "docker image inspect": Result(1, "", "No such image"),
            "docker manifest inspect": Result(1, "", "denied"),
            "df --output=avail --block-size=1M /var/lib/docker": "Avail\n5000",
            "ls -1 /srv/models/resnet50": Result(2, "", "ls: cannot access: No such file or directory"),
            "nvidia-smi --query-gpu": f"0, {UUIDS[1]}, 525.85.12, Disabled\n",
        }
    )
    assert problems(node) == [
        "engine 19.03.1 speaks API 1.40; at least 1.41 (Docker 20.10) is needed",
        "the stack file names CPU 127, the machine has 0 to 63",
        "memory_mib is 500000 in the stack file, the machine has 262144",
        "image tensorflow/serving:2.14.1-gpu is not there and cannot be pulled: denied",
        "5000 MiB free in /var/lib/docker, at least 15360 are needed",
        "model folder /srv/models/resnet50: ls: cannot access: No such file or directory",
        "driver is 525.85.12, the stack file says 535.129.03",
        f"GPU 0 ({UUIDS[0]}) is not there; found: {UUIDS[1]}",
        f"{UUIDS[1]} is GPU 0 there, the stack file says 1",
    ]


def test_an_image_that_can_be_pulled_is_no_problem_but_needs_room() -> None:
    node = wanted(
        {
            "docker image inspect": Result(1, "", "No such image"),
            "docker manifest inspect": "{}",
            "df --output=avail --block-size=1M /var/lib/docker": "Avail\n14000",
        }
    )
    assert problems(node) == ["14000 MiB free in /var/lib/docker, at least 15360 are needed"]


def test_a_model_folder_without_a_version_is_a_problem() -> None:
    assert problems(wanted({"ls -1 /srv/models/resnet50": "saved_model.pb\nvariables\n"})) == [
        "model folder /srv/models/resnet50 holds no version folder (1/, 2/, ...)"
    ]


ROUTE = "172.29.0.0/16 via 10.8.0.1 dev tun0 table 220"


def test_a_subnet_that_is_routed_elsewhere_is_a_problem() -> None:
    assert problems(wanted({"ip -4 route show table all": ROUTE})) == [
        f"subnet 172.29.80.0/24 is in use there already: {ROUTE}; change nodes[2].subnet in Pulumi.prod.yaml"
    ]


def test_the_stacks_own_network_does_not_count_against_it() -> None:
    own = "docker network inspect --format {{range .IPAM.Config}}{{.Subnet}} {{end}} 0a 0b"
    assert problems(wanted({own: "172.29.80.0/25\n", "ip -4 route show table all": ROUTE})) == []


def test_a_driver_that_does_not_fit_its_library_is_told_in_its_own_words() -> None:
    said = Result(18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library: 535.1\n", "")
    assert problems(wanted({"nvidia-smi --query-gpu": said})) == [
        "nvidia-smi names no GPU: Failed to initialize NVML: Driver/library version mismatch"
    ]


def test_a_split_gpu_is_refused_and_its_mig_instance_accepted() -> None:
    split = SMI.replace("Disabled", "Enabled", 1)
    listed = f"GPU 0: A100 (UUID: {UUIDS[0]})\n  MIG 3g.40gb  Device 0: (UUID: {MIG})\n"
    node = wanted({"nvidia-smi --query-gpu": split, "nvidia-smi -L": listed})
    assert problems(node) == [f"GPU 0 ({UUIDS[0]}) is in MIG mode: name its instances' UUIDs (nvidia-smi -L)"]
    assert problems(replace(node, gpus=((0, MIG), (1, UUIDS[1])))) == []


def test_simulated_gpus_are_not_looked_for_and_that_is_said() -> None:
    node = replace(wanted(), driver=None)
    node.host.answers.pop("nvidia-smi --query-gpu")  # type: ignore[attr-defined]
    report = check(node, never)
    assert report.problems == []
    assert "GPUs are simulated: not looked for" in report.facts


OURS = "prod\tprod.gpu-01-envoy\t192.0.2.7:8080->8080/tcp, 127.0.0.1:9902->9902/tcp\n"


@pytest.mark.parametrize(("published", "expected"), [("", 1), (OURS, 0)])
def test_a_port_in_use_here_is_a_problem_unless_our_container_has_it(published: str, expected: int) -> None:
    node = wanted({"docker ps --filter publish=": published})
    here = replace(node, host=replace(node.host, endpoint="default"))
    assert len(problems(here, lambda _address, port: port == 8080)) == expected


@pytest.mark.parametrize("endpoint", ["default", "ssh://deploy@gpu-01", "tcp://gpu-01:2376"])
@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ("\tweb\t0.0.0.0:8080->80/tcp, :::8080->80/tcp\n", "web"),
        ("\tweb\t[::]:8079-8081->79-81/tcp\n", "web"),
        ("staging\tstaging.gpu-01-envoy\t192.0.2.7:8080->8080/tcp\n", "staging.gpu-01-envoy"),
        (f"{OURS}\tweb\t0.0.0.0:8080->80/tcp\n", "web"),
    ],
)
def test_a_port_of_somebody_elses_container_is_told_once_with_its_name(
    endpoint: str, listed: str, name: str
) -> None:
    node = wanted({"docker ps --filter publish=8080": listed, "docker ps --filter publish=": ""})
    node.host.answers.pop("docker ps --filter publish=")  # type: ignore[attr-defined]
    there = replace(node, host=replace(node.host, endpoint=endpoint))
    assert problems(there, lambda _address, _port: True) == [
        (
            f"port 8080 of 192.0.2.7 is published by container {name}; "
            "change front_end.rest_port in Pulumi.prod.yaml"
        )
    ]


def test_a_container_on_another_address_is_not_in_the_way() -> None:
    assert problems(wanted({"docker ps --filter publish=": "\tweb\t127.0.0.1:8080->80/tcp\n"})) == []


LISTENS = {
    "all": "00000000:1F90",
    "the same": "070200C0:1F90",
    "all of both kinds": "00000000000000000000000000000000:1F90",
    "the same, written as the newer kind": "0000000000000000FFFF0000070200C0:1F90",
}


@pytest.mark.parametrize("where", LISTENS)
def test_a_port_in_use_on_a_machine_over_ssh_is_a_problem(where: str) -> None:
    sockets = f"{TCP}   2: {LISTENS[where]} 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n"
    assert problems(wanted({"cat /proc/net/tcp /proc/net/tcp6": sockets})) == [
        "port 8080 of 192.0.2.7 is in use by another program; change front_end.rest_port in Pulumi.prod.yaml"
    ]


def test_a_port_of_the_loopback_over_ssh_is_not_ours() -> None:
    sockets = f"{TCP}   2: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n"
    assert problems(wanted({"cat /proc/net/tcp /proc/net/tcp6": sockets})) == []


NONLOCAL = "cat /proc/sys/net/ipv4/ip_nonlocal_bind"


@pytest.mark.parametrize("endpoint", ["default", "unix:///run/docker.sock", "ssh://deploy@gpu-01"])
def test_an_address_that_the_machine_lacks_is_a_problem_before_anything_is_touched(endpoint: str) -> None:
    node = wanted({NONLOCAL: "0\n"})
    there = replace(node, host=replace(node.host, endpoint=endpoint))
    there = replace(there, ports=(("192.0.2.8", 8080, "front_end.rest_port"),))
    assert problems(there, lambda _address, _port: False) == [
        "nodes[2].bind is 192.0.2.8, which is no address of the machine; it has 127.0.0.1, 192.0.2.7"
    ]


def test_an_address_that_comes_and_goes_is_accepted_where_the_machine_may_listen_on_it() -> None:
    node = replace(wanted({NONLOCAL: "1\n"}), ports=(("192.0.2.8", 8080, "front_end.rest_port"),))
    assert problems(node) == []


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "127.0.0.53"])  # noqa: S104 - a value under test
def test_all_addresses_and_the_loopback_are_on_every_machine(address: str) -> None:
    node = wanted()
    node.host.answers.pop("ip -o -4 addr show")  # type: ignore[attr-defined]
    assert problems(replace(node, ports=((address, 8080, "front_end.rest_port"),))) == []


def test_a_machine_without_ip_is_asked_by_hostname_and_one_that_tells_nothing_is_said() -> None:
    without_ip: dict[str, str | Result] = {"ip -o -4 addr show": Result(127, "", "ip: not found")}
    assert check(wanted({**without_ip, "hostname -I": "10.0.0.1 192.0.2.7 fe80::1\n"}), never).problems == []
    silent = {**without_ip, "hostname -I": Result(1, "", ""), "cat /proc/net/tcp /proc/net/tcp6": ""}
    report = check(wanted(silent), never)
    assert report.problems == []
    assert "its addresses are not told: nodes[2].bind 192.0.2.7 not checked" in report.facts
    assert "what listens there is not told: ports of other programs not checked" in report.facts


def test_the_setting_that_names_the_address_is_the_nodes_own_or_the_front_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "stack_file", lambda stack: paths.ROOT / f"Pulumi.{stack}.yaml")
    assert [(node.bind, node.ports[0][0]) for node in wanted_of("prod")] == [("nodes[0].bind", "10.20.0.11")]
    assert [(node.bind, node.ports[0][0]) for node in wanted_of("local")] == [("front_end.bind", "127.0.0.1")]


def test_what_another_checkouts_local_stack_may_have_is_given_back_by_make_down_there() -> None:
    node = wanted({"ip -4 route show table all": ROUTE})
    here = replace(node, stack="local", driver=None, host=replace(node.host, endpoint="default"))
    other = "if another checkout's local stack has it, `make down` there, else change"
    said = problems(here, lambda _address, _port: True)
    assert [line.partition("; ")[2] for line in said] == [
        f"{other} nodes[2].subnet in Pulumi.local.yaml",
        f"{other} front_end.rest_port in Pulumi.local.yaml",
    ]


SSH = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
STRICT = ("-o", "StrictHostKeyChecking=yes")


@pytest.mark.parametrize(
    ("host", "before"),
    [
        (
            Host("ssh://deploy@gpu-01:2222", STRICT),
            ["ssh", *STRICT, *SSH, "-p", "2222", "--", "deploy@gpu-01"],
        ),
        (Host("ssh://gpu-02"), ["ssh", *SSH, "--", "gpu-02"]),
        (Host("unix:///run/x.sock"), ["docker", "--host", "unix:///run/x.sock"]),
        (Host("default"), ["docker"]),
        (
            Host("tcp://gpu-03:2376", (), "/certs"),
            [
                *("docker", "--host", "tcp://gpu-03:2376", "--tlsverify", "--tlscacert=/certs/ca.pem"),
                *("--tlscert=/certs/cert.pem", "--tlskey=/certs/key.pem"),
            ],
        ),
    ],
)
def test_commands_go_where_the_endpoint_says(
    host: Host, before: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def note(words: Sequence[str], _patience_s: float) -> Result:
        ran.append(list(words))
        return Result(0, "", "")

    monkeypatch.setattr("ops.hosts._run", note)
    host.docker("info", "--format", "{{.NCPU}} x")
    # A shell at the other end splits what ssh is given, so it gets one quoted text.
    after = (
        ["docker info --format '{{.NCPU}} x'"] if before[0] == "ssh" else ["info", "--format", "{{.NCPU}} x"]
    )
    assert ran == [before + after]


def test_over_tcp_the_engine_is_asked_and_what_nobody_can_see_is_said() -> None:
    node = wanted()
    asked: dict[str, str | Result] = {
        start: answer for start, answer in GOOD.items() if start.startswith("docker")
    }
    report = check(replace(node, host=FakeHost("tcp://gpu-03:2376", answers=asked)), never)
    assert report == Report(
        facts=[
            "engine 24.0.7",
            "images are there",
            (
                "over tcp:// only the engine answers: disk, model folders, routes, addresses, "
                "other programs' ports, GPUs not seen"
            ),
        ]
    )


def test_no_other_command_than_dockers_runs_over_tcp_not_even_here() -> None:
    assert Host("tcp://gpu-03:2376").run(["true"]).code == 127


def test_a_program_that_is_missing_here_is_a_result_not_a_crash() -> None:
    missing = Host("default").run(["no-such-program-here"])
    assert (missing.code, missing.said) == (127, "no-such-program-here: not found on this machine")


def test_a_command_that_hangs_is_given_up() -> None:
    assert Host("default").run(["sleep", "60"], patience_s=0.1).code == 124


def test_gpus_of_a_hardware_profile_and_parts_of_one_that_is_cut_up_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for example in ("mig", "two-nodes"):
        [file] = (paths.ROOT / "examples" / example).glob("Pulumi.*.yaml")
        shutil.copy(file, tmp_path / example)
    monkeypatch.setattr(paths, "stack_file", lambda stack: tmp_path / stack)
    [cut_up] = wanted_of("mig")
    assert any(uuid.startswith("MIG-") for _, uuid in cut_up.gpus)
    for node in wanted_of("two-nodes"):
        assert len(node.gpus) == 4
        assert node.highest_cpu == 127
