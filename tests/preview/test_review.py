"""The pull request's check with the real CLI, on two small trees: the base, and what somebody made of it."""

import shutil
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml

from review.check import compare
from review.events import Step, steps
from review.previews import Bench
from review.report import Outcome, report
from review.trees import StackFile, Tree
from tests.integration import edits
from tests.integration.edit import LANES, REMOVED, Edit, Ground
from tests.integration.small_stack import pools_of_one_gpu, small_stack
from tests.kubernetes_stacks import four_gpus
from tests.pulumi_project import CHECKOUT
from tests.stacks import Config, changed, in_staging, one_node, without
from toolchain.tools import Toolchain

pytestmark = pytest.mark.preview

_WORDS = {"create": "created", "update": "updated", "replace": "replaced", "delete": "deleted"}


_QUIET = """
from pulumi_policy import PolicyPack, ResourceValidationPolicy

quiet = ResourceValidationPolicy(name="quiet", description="says nothing", validate=lambda args, report: None)
PolicyPack("quiet", [quiet])
"""


def tree(folder: Path, stacks: Mapping[str, Config], pack: str = _QUIET) -> Tree:
    folder.mkdir()
    if pack:
        write_pack(folder / "policies", pack)
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(CHECKOUT / name, folder)
    for name in ("components", ".venv"):
        (folder / name).symlink_to(CHECKOUT / name)
    for name, config in stacks.items():
        write(folder, name, config)
    return Tree(folder, folder.name)


def write_pack(folder: Path, text: str) -> None:
    folder.mkdir()
    runtime = {"name": "python", "options": {"virtualenv": str(CHECKOUT / ".venv")}}
    (folder / "PulumiPolicy.yaml").write_text(yaml.safe_dump({"runtime": runtime}))
    (folder / "__main__.py").write_text(text)


def write(folder: Path, name: str, config: Config) -> None:
    document = {"config": {f"tf-serving:{key}": value for key, value in config.items()}}
    (folder / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def done(found: list[Step]) -> dict[str, str]:
    return {step.name: _WORDS[step.operation] for step in found}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("review")
    secretive = changed(one_node(), "front_end", {"tls": {}})
    base = {name: one_node() for name in ("same", "memory", "fewer", "subnet", "gone")} | {"tls": secretive}
    head = {
        "same": one_node(),
        "memory": changed(one_node(), "pools[0].memory.container_mib", 90000),
        "fewer": changed(one_node(), "pools[0].slots[0].gpus", [0, 1, 2]),
        "subnet": changed(one_node(), "nodes[0].subnet", "172.29.81.0/24"),
        "new": one_node(),
        "tls": changed(secretive, "pools[0].memory.container_mib", 90000),
        "broken": changed(one_node(), "pools[0].batching.max_batch_size", 31),
    }
    found = compare(tree(folder / "head", head), tree(folder / "base", base), folder / "stacks", toolchain)
    return {outcome.title: outcome for outcome in found}


def test_the_same_stack_twice_has_no_steps(outcomes: dict[str, Outcome]) -> None:
    assert (outcomes["same"].steps, outcomes["same"].ok) == ([], True)


def test_memory_changes_in_place_and_the_report_says_so(outcomes: dict[str, Outcome]) -> None:
    assert done(list(outcomes["memory"].steps)) == {f"gpu-01-gpu{gpu}-server": "updated" for gpu in range(4)}
    text = report([outcomes["memory"]], base="base")
    assert "| memory | - | 4 | - | - | 1 rules: ok |" in text
    assert "in place: pool main on gpu-01 goes on serving" in text
    assert "`memory`: `98304` → `90000`" in text


def test_what_is_secret_and_the_same_in_both_is_no_change(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["tls"].ok
    assert done(list(outcomes["tls"].steps)) == {f"gpu-01-gpu{gpu}-server": "updated" for gpu in range(4)}


def test_a_slot_less_takes_one_container_away_and_says_what_is_left(outcomes: dict[str, Outcome]) -> None:
    assert done(list(outcomes["fewer"].steps))["gpu-01-gpu3-server"] == "deleted"
    assert "pool main on gpu-01 shrinks from 4 to 3" in report([outcomes["fewer"]], base="base")
    assert any(change.path.startswith("instances[gpu-01-gpu3]") for change in outcomes["fewer"].outputs)


def test_another_subnet_takes_the_node_down_and_the_report_says_so(
    outcomes: dict[str, Outcome],
) -> None:
    does = done(list(outcomes["subnet"].steps))
    assert {does[f"gpu-01-gpu{gpu}-server"] for gpu in range(4)} == {"replaced"}
    text = report([outcomes["subnet"]], base="base")
    assert "the whole node is down" in text
    assert "rolled one at a time" not in text


def test_a_new_stack_is_all_new_and_a_removed_one_is_no_silent_loss(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["new"].count("create") == len(outcomes["new"].steps) > 0
    assert "pulumi destroy" in outcomes["gone"].note


def test_a_stack_that_does_not_plan_fails_the_check_and_says_why(outcomes: dict[str, Outcome]) -> None:
    assert not outcomes["broken"].ok
    assert "pools[0].batching.allowed_batch_sizes" in outcomes["broken"].trouble


_PACK = """
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy


def rule(name, level):
    def judge(args, report):
        if args.name == "gpu-01-gpu0-server":
            report(f"{name} does not like {args.props['name']}")

    return ResourceValidationPolicy(name=name, description=name, validate=judge, enforcement_level=level)


PolicyPack(
    "tried",
    [rule("strict", EnforcementLevel.MANDATORY), rule("mild", EnforcementLevel.ADVISORY)],
)
"""


def test_what_policies_refuse_is_told_by_resource_and_fails_the_check(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    head = tree(tmp_path / "head", {"prod": one_node()}, _PACK)
    [found] = compare(head, None, tmp_path / "stacks", toolchain)
    assert [(one.level, one.policy, one.resource) for one in found.violations] == [
        ("advisory", "mild", "gpu-01-gpu0-server"),
        ("mandatory", "strict", "gpu-01-gpu0-server"),
    ]
    assert (found.ok, found.trouble, found.rules) == (False, "", 2)
    text = report([found], base="nothing")
    assert "| 1 mandatory, 1 advisory |" in text
    assert "policy `strict`, gpu-01-gpu0-server: strict strict does not like prod.gpu-01-gpu0" in text


@pytest.mark.parametrize("pack", ["", "raise SystemExit(1)"], ids=["no pack", "a pack that does not start"])
def test_a_run_in_which_no_policy_judged_is_not_ok(pack: str, tmp_path: Path, toolchain: Toolchain) -> None:
    head = tree(tmp_path / "head", {"prod": one_node()}, pack)
    [found] = compare(head, None, tmp_path / "stacks", toolchain)
    assert (found.ok, found.rules) == (False, 0)


@pytest.fixture(scope="module")
def on_a_cluster(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("cluster")
    staged = in_staging(four_gpus())
    base = dict.fromkeys(("same", "image", "refused", "moved"), staged)
    head = {
        "same": staged,
        "image": changed(staged, "images.server", "tensorflow/serving:2.14.0-gpu"),
        "refused": changed(staged, "front_end", {"service": "NodePort"}) | {"environment": "prod"},
        "moved": staged,
        "new": staged,
        "judged": changed(staged, "pools[0].batching.batch_timeout_micros", 0),
    }
    made = tree(folder / "head", head, "")
    (made.folder / "policies").symlink_to(CHECKOUT / "policies")
    before = tree(folder / "base", base | {"moved": one_node()}, "")
    return {one.title: one for one in compare(made, before, folder / "stacks", toolchain)}


def test_a_stack_on_kubernetes_is_compared_by_its_manifests_and_judged_by_the_pack(
    on_a_cluster: dict[str, Outcome],
) -> None:
    same, image = on_a_cluster["same"], on_a_cluster["image"]
    assert (same.steps, same.ok, same.violations) == ([], True, [])
    assert same.rules >= 15
    assert done(list(image.steps))["main"] == "updated"
    assert "rolls one pod at a time: pool main serves with 3 of 4" in report([image], base="base")
    assert image.ok
    assert "servers[image-main].image" in [change.path for change in image.plan]
    assert on_a_cluster["new"].count("create") == len(on_a_cluster["new"].steps) > 10
    assert "new stack" in on_a_cluster["new"].note


def test_what_is_wrong_with_a_stack_on_kubernetes_is_told(on_a_cluster: dict[str, Outcome]) -> None:
    assert not on_a_cluster["refused"].ok
    assert "front_end.service: 'NodePort': is refused in prod" in on_a_cluster["refused"].trouble
    judged = on_a_cluster["judged"]
    assert [(one.level, one.policy) for one in judged.violations] == [("mandatory", "batching")]
    assert (judged.ok, judged.trouble) == (False, "")


def test_a_stack_that_moves_to_a_cluster_is_all_new_there_and_what_runs_is_no_silent_loss(
    on_a_cluster: dict[str, Outcome],
) -> None:
    moved = on_a_cluster["moved"]
    assert {step.operation for step in moved.steps} == {"create"}
    assert "`pulumi destroy` with the file of before" in moved.note


_PORTS = (21001, 21002, 21003)
_GROUND = Ground("edits", Path("/models"), "unix:///other.sock", IPv4Network("10.9.0.0/24"), _PORTS)
_ROUNDS = edits.rounds(_GROUND)
# The first ones, of pools and of the front end, begin at the same stack each; later ones build on each other.
_FIRST = next(number for number, together in enumerate(_ROUNDS) if len(together) == 1)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> tuple[Bench, Tree, Config]:
    """A bench whose state holds the stack that the measured edits begin with."""
    folder = tmp_path_factory.mktemp("edits")
    config = pools_of_one_gpu(small_stack(folder / "models", subnet=IPv4Network("10.8.0.0/24")), LANES)
    project = tree(folder / "tree", {"edits": config})
    (project.folder / "batching.config").write_text(
        "max_batch_size { value: 32 } max_enqueued_batches { value: 77 }"
    )
    bench = Bench(folder / "bench", toolchain, "edits")
    before = bench.preview(project, StackFile("Pulumi.edits.yaml"))
    assert before.code == 0, before.trouble
    bench.pretend(before, rename=("", ""))
    return bench, project, config


@pytest.mark.parametrize("number", range(_FIRST))
def test_what_is_foretold_is_what_was_measured_on_an_engine(
    deployed: tuple[Bench, Tree, Config], number: int
) -> None:
    bench, project, config = deployed
    for edit in _ROUNDS[number]:
        for place, value in edit.values.items():
            config = without(config, place) if value is REMOVED else changed(config, place, value)
    write(project.folder, "edits", config)
    after = bench.preview(project, StackFile("Pulumi.edits.yaml"))
    assert after.code == 0, after.trouble
    assert done(steps(after.events)) == _measured(_ROUNDS[number])


def _measured(together: list[Edit]) -> dict[str, str]:
    return {resource: how for edit in together for resource, how in edit.does.items()}


def test_the_measured_edits_are_many(deployed: tuple[Bench, Tree, Config]) -> None:
    assert sum(len(together) for together in _ROUNDS[:_FIRST]) > 10 * len(LANES)
