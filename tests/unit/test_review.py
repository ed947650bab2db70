"""What a pull request's report says of steps, plans and outputs: pure code, no CLI."""

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ops.labels import ENDING
from review import __main__ as command
from review.changes import Change, changes, groups
from review.events import MADE, UNKNOWN, Step, Value, Violation, deployment, errors, rules, steps, violations
from review.meaning import meaning, traffic
from review.report import MOST_CHARACTERS, Outcome, report
from review.trees import (
    ReviewError,
    StackFile,
    base_commit,
    changed_paths,
    concerns,
    is_on_kubernetes,
    unpack,
)

CONTAINER, NETWORK = "docker:index/container:Container", "docker:index/network:Network"


def instance(gpu: int, operation: str, because: tuple[str, ...] = ("image",), **inputs: Value) -> Step:
    labels = {"role": "instance", "node": "gpu-01", "instance": f"gpu-01-gpu{gpu}"}
    told = [{"label": f"tf-serving.{name}", "value": value} for name, value in labels.items()]
    old, new = {"labels": told, "image": "a"}, {"labels": told, "image": "a", **inputs}
    return Step(
        operation=operation,
        name=f"gpu-01-gpu{gpu}-server",
        type=CONTAINER,
        old={} if operation == "create" else old,
        new={} if operation == "delete" else new,
        because=because,
    )


def outputs(*gpus: int, pool: str = "main") -> Mapping[str, Value]:
    return {"instances": [{"name": f"gpu-01-gpu{gpu}", "pool": pool, "node": "gpu-01"} for gpu in gpus]}


@pytest.mark.parametrize(
    ("step", "before", "after", "means"),
    [
        (
            instance(0, "replace"),
            (0, 1, 2, 3),
            (0, 1, 2, 3),
            "rolled one at a time, or as `max_unavailable` says: pool main on gpu-01 serves with 3 of 4",
        ),
        (
            instance(0, "replace"),
            (0,),
            (0,),
            "has no other instance: it answers nothing until the new one has loaded",
        ),
        (instance(0, "replace", ()), (0, 1), (0, 1), "down at once, together with its network or volume"),
        (instance(0, "update"), (0, 1), (0, 1), "in place: pool main on gpu-01 goes on serving"),
        (instance(1, "create"), (0,), (0, 1), "pool main on gpu-01 grows from 1 to 2"),
        (instance(1, "delete"), (0, 1), (0,), "pool main on gpu-01 shrinks from 2 to 1"),
    ],
)
def test_a_step_of_an_instance_says_what_is_left_of_its_pool(
    step: Step, before: tuple[int, ...], after: tuple[int, ...], means: str
) -> None:
    assert means in meaning(step, traffic(outputs(*before), outputs(*after)))


def test_an_instance_that_changes_its_pool_counts_for_the_one_that_it_goes_to() -> None:
    old = {"instances": [*outputs(0, pool="other")["instances"], *outputs(1, 2)["instances"]]}
    new = {"instances": [*outputs(0, 1, pool="other")["instances"], *outputs(2)["instances"]]}
    said = meaning(instance(1, "replace"), traffic(old, new))
    assert (
        said == "rolled one at a time, or as `max_unavailable` says: pool other on gpu-01 serves with 1 of 2"
    )


def test_a_front_end_and_a_network_say_what_stops() -> None:
    labels = [
        {"label": "tf-serving.role", "value": "front-end"},
        {"label": "tf-serving.node", "value": "gpu-01"},
    ]
    proxy = Step(
        operation="replace", name="e", type=CONTAINER, old={}, new={"labels": labels}, because=("ports",)
    )
    network = Step(operation="replace", name="n", type=NETWORK, old={}, new={})
    assert "the ports of gpu-01 are closed for a few seconds" in meaning(proxy, traffic({}, {}))
    assert "the whole node is down" in meaning(network, traffic({}, {}))


@pytest.mark.parametrize("role", ENDING)
def test_what_ends_by_itself_interrupts_nobody(role: str) -> None:
    said = [{"label": "tf-serving.role", "value": role}]
    step = Step(operation="replace", name="e", type=CONTAINER, old={}, new={"labels": said}, because=("x",))
    assert meaning(step, traffic({}, {})) not in ("", "what this container does is interrupted")


def test_a_stack_says_in_any_way_of_yaml_that_it_is_on_kubernetes(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.a.yaml"
    for line in ("tf-serving:target: kubernetes", "target: kubernetes # live", "'target': \"kubernetes\""):
        file.write_text(f"config:\n  {line}\n")
        assert is_on_kubernetes(file), line
    for line in ("tf-serving:target: docker", "# target: kubernetes"):
        file.write_text(f"config:\n  {line}\n")
        assert not is_on_kubernetes(file), line


def test_lists_are_compared_by_what_names_their_entries() -> None:
    old = {
        "command": ["--a=1", "--b=2"],
        "labels": [{"label": "x", "value": "1"}],
        "uploads": [{"file": "/f", "content": "one\ntwo\n"}],
        "ports": [{"internal": 80, "ip": "::1"}],
    }
    new = {
        "command": ["--new=0", "--a=1", "--b=3"],
        "labels": [{"label": "w", "value": "0"}, {"label": "x", "value": "2"}],
        "uploads": [{"file": "/f", "content": "one\nthree\n"}],
        "ports": [{"internal": 80, "ip": "::1"}],
    }
    assert changes(old, new) == [
        Change("command[--b]", "2", "3"),
        Change("command[--new]", None, "0"),
        Change("labels[w]", None, "0"),
        Change("labels[x]", "1", "2"),
        Change("uploads[/f]", "one\ntwo\n", "one\nthree\n"),
    ]
    assert changes(old, new)[-1].lines() == ["@@ -1,2 +1,2 @@", " one", "-two", "+three"]


def test_pairs_and_nodes_of_a_plan_are_compared_by_their_names() -> None:
    old = {"nodes": [{"spec": {"name": "gpu-01"}, "labels": [["a", "1"], ["b", "2"]]}]}
    new = {"nodes": [{"spec": {"name": "gpu-01"}, "labels": [["a0", "x"], ["a", "1"], ["b", "3"]]}]}
    assert changes(old, new) == [
        Change("nodes[gpu-01].labels[a0]", None, "x"),
        Change("nodes[gpu-01].labels[b]", "2", "3"),
    ]


def test_steps_with_the_same_cause_are_told_once_and_what_is_their_own_is_named() -> None:
    same = [instance(gpu, "replace", image="b", slot=f"gpu{gpu}") for gpu in (0, 1)]
    other = instance(2, "replace", ("ports",), image="b", slot="gpu2")
    first, second = groups([*same, other])
    assert ([len(first.steps), len(second.steps)], first.own) == ([2, 1], frozenset({"slot"}))
    text = report([outcome(steps=same)], base="x")
    assert "`image`: `a` → `b`\n" in text
    assert "`slot`: new, `gpu0`, and of the others their own\n" in text


def outcome(**more: Value) -> Outcome:
    return Outcome(title="prod", path="Pulumi.prod.yaml", **more)


def test_the_report_names_what_is_replaced_why_and_what_it_means() -> None:
    every = [instance(gpu, "replace", image="b") for gpu in range(4)]
    known = traffic(outputs(0, 1, 2, 3), outputs(0, 1, 2, 3))
    text = report([outcome(steps=every, known=known, rules=3)], base="`abc`")
    assert "| prod | - | - | 4 | - | 3 rules: ok |" in text
    assert (
        "- **replaced** gpu-01-gpu0-server, gpu-01-gpu1-server, gpu-01-gpu2-server, gpu-01-gpu3-server "
        "(Container): "
        "rolled one at a time, or as `max_unavailable` says: pool main on gpu-01 serves with 3 of 4\n"
        "  - `image`: `a` → `b`\n"
    ) in text


def test_a_mandatory_violation_fails_a_stack_and_an_advisory_one_does_not() -> None:
    mandatory = Violation("mandatory", "one-model-per-gpu", "gpu-01-gpu0-server", "GPU 0 has\ntwo owners")
    advisory = Violation("advisory", "batching", "the stack", "no batching")
    assert not outcome(violations=[mandatory], rules=3).ok
    assert outcome(violations=[advisory], rules=3).ok
    text = report([outcome(violations=[advisory, mandatory])], base="x")
    assert "| 1 mandatory, 1 advisory |" in text
    assert "- **mandatory** policy `one-model-per-gpu`, gpu-01-gpu0-server: GPU 0 has two owners" in text


def test_a_stack_that_no_policy_judged_fails_and_is_called_so_unless_it_is_gone() -> None:
    assert not outcome().ok
    assert "| prod | - | - | - | - | **not judged** |" in report([outcome()], base="x")
    assert outcome(gone=True).ok
    assert "not judged" not in report([outcome(gone=True)], base="x")


def test_what_stands_in_a_value_is_no_markdown() -> None:
    step = instance(0, "update", image="`</details> **b**`")
    text = report([outcome(steps=[step])], base="x")
    assert "`image`: `a` → `'</details> **b**'`" in text


def test_a_report_too_long_for_a_comment_is_cut_and_says_so() -> None:
    long = "\n".join(f"line {number}" for number in range(20))
    one = instance(0, "replace")
    many = [replace(one, new={**one.new, f"file{number}": long}) for number in range(2000)]
    text = report([outcome(steps=many)], base="x")
    assert MOST_CHARACTERS < len(text) + 200 < MOST_CHARACTERS + 1000
    assert "`make pr-check` prints all of it" in text
    assert text.count("<details>") == text.count("</details>")


def event(kind: str, **told: Value) -> Mapping[str, Value]:
    return {"sequence": 1, kind: told}


def step_event(
    operation: str, urn: str = "urn::a", *, custom: bool = True, **more: Value
) -> Mapping[str, Value]:
    new = {"inputs": {"name": "a", "__defaults": []}, "custom": custom}
    return event(
        "resourcePreEvent", metadata={"op": operation, "urn": urn, "type": CONTAINER, "new": new, **more}
    )


def test_steps_leave_out_components_what_stays_and_the_parts_of_a_replacement() -> None:
    told = [
        step_event("same"),
        step_event("create", custom=False),
        step_event("create-replacement"),
        step_event("replace", keys=["image"]),
        step_event("delete-replaced"),
    ]
    [found] = steps(told)
    assert (found.operation, found.name, found.new, found.because) == (
        "replace",
        "a",
        {"name": "a"},
        ("image",),
    )


def test_rules_that_passed_or_failed_have_judged() -> None:
    one = event("policyAnalyzeSummaryEvent", passed=["a", "b"], failed=["c"])
    stack = event("policyAnalyzeStackSummaryEvent", passed=["a", "d"])
    other = event("policyLoadEvent")
    assert rules([one, stack, other]) == {"a", "b", "c", "d"}


def test_a_violation_said_twice_is_told_once_and_errors_are_kept() -> None:
    said = event(
        "policyEvent", enforcementLevel="mandatory", policyName="p", message="no\n", resourceUrn="u::a"
    )
    noise = event("diagnosticEvent", severity="debug", message="x")
    error = event("diagnosticEvent", severity="error", message="bad\n")
    assert violations([said, said, noise]) == [Violation("mandatory", "p", "a", "no")]
    assert errors([noise, error]) == ["bad"]


def test_a_state_as_if_made_has_ids_outputs_and_no_unknown() -> None:
    provider = {"urn": "urn::p", "custom": True, "type": "pulumi:providers:docker", "inputs": {}}
    container = {
        "urn": "urn::a",
        "custom": True,
        "type": CONTAINER,
        "inputs": {"envs": [], "name": "a"},
        "provider": f"urn::p::{UNKNOWN}",
        "sourcePosition": "project:///x.py#1",
    }
    planned = {"name": "a", "envs": UNKNOWN, "bridge": UNKNOWN, "networkDatas": UNKNOWN, "tty": False}
    told = event("resOutputsEvent", metadata={"urn": "urn::a", "new": {"outputs": planned}})
    document = {"steps": [{"newState": provider}, {"newState": container}]}
    state = deployment(document, [told], {})
    [_, made] = state["deployment"]["resources"]
    assert UNKNOWN not in str(state)
    assert (made["id"], made["provider"]) == (MADE, f"urn::p::{MADE}")
    assert {key: made["outputs"][key] for key in ("envs", "bridge", "tty")} == {
        "envs": [],
        "bridge": MADE,
        "tty": False,
    }
    assert len(made["outputs"]["networkDatas"]) == 1
    assert "sourcePosition" not in made


def test_in_a_state_as_if_made_what_is_secret_has_the_value_that_the_saved_plan_has() -> None:
    sealed = "4dabf18193072939515e22adb298388d"
    inputs = {"uploads": "[secret]", "envs": [{sealed: "1b47", "ciphertext": "[secret]"}, "A=1"], "name": "a"}
    container = {"urn": "urn::a", "custom": True, "type": CONTAINER, "inputs": inputs}
    outputs = {"uploads": {sealed: "1b47", "ciphertext": "[secret]"}, "envs": "[secret]", "name": "a"}
    told = event("resOutputsEvent", metadata={"urn": "urn::a", "new": {"outputs": outputs}})
    known = {
        "uploads": {sealed: "1b47", "plaintext": '[{"file": "/key"}]'},
        "envs": [{sealed: "1b47", "plaintext": '"B=2"'}, "A=1"],
        "name": "a",
    }
    plan = {"resourcePlans": {"urn::a": {"goal": {"inputDiff": {"adds": known}}}}}
    [made] = deployment({"steps": [{"newState": container}]}, [told], plan)["deployment"]["resources"]
    plain = {"uploads": [{"file": "/key"}], "envs": ["B=2", "A=1"], "name": "a"}
    assert (made["inputs"], made["outputs"]) == (plain, plain)


def test_a_file_of_another_stack_or_of_the_docs_concerns_no_stack() -> None:
    prod = StackFile("Pulumi.prod.yaml")
    assert all(
        concerns(prod, path)
        for path in ("Pulumi.prod.yaml", "components/plan.py", "Pulumi.yaml", "a/models.config")
    )
    assert not any(
        concerns(prod, path)
        for path in ("Pulumi.local.yaml", "docs/a.md", "examples/mig/Pulumi.example.yaml")
    )
    assert (prod.stack, prod.title) == ("prod", "prod")
    assert StackFile("examples/mig/Pulumi.example.yaml").title == "examples/mig"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose branch `topic` left `main` one commit ago."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    for number, branch in enumerate(("main", "main", "topic")):
        if branch == "topic":
            git(folder, "checkout", "--quiet", "-b", branch)
        (folder / "file").write_text(str(number))
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "--message", f"commit {number}")
    return folder


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.com"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_branch_is_compared_with_where_it_left_main(checkout: Path) -> None:
    assert base_commit(checkout) == git(checkout, "rev-parse", "main")
    assert base_commit(checkout, "main^") == git(checkout, "rev-parse", "main^")


def test_main_is_compared_with_the_commit_before_unless_something_is_changed(checkout: Path) -> None:
    git(checkout, "checkout", "--quiet", "main")
    assert base_commit(checkout) == git(checkout, "rev-parse", "HEAD^")
    (checkout / "file").write_text("changed")
    (checkout / "new").write_text("")
    assert base_commit(checkout) == git(checkout, "rev-parse", "HEAD")
    assert changed_paths(checkout, git(checkout, "rev-parse", "HEAD")) == {"file", "new"}


def test_without_history_there_is_no_base_and_an_unknown_one_is_refused(
    checkout: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{checkout}", "shallow")
    git(tmp_path / "shallow", "checkout", "--quiet", "--detach")
    git(tmp_path / "shallow", "remote", "remove", "origin")
    git(tmp_path / "shallow", "branch", "--quiet", "-D", "topic")
    assert base_commit(tmp_path / "shallow") is None
    assert base_commit(tmp_path) is None
    with pytest.raises(ReviewError, match="no commit nowhere here"):
        base_commit(checkout, "nowhere")


def test_a_base_is_unpacked_beside_the_checkout_and_shares_its_environment(
    checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    tree = unpack(checkout, "main", tmp_path / "base")
    assert (tree.folder / "file").read_text() == "1"
    assert (tree.folder / ".venv").readlink() == checkout / ".venv"


def test_exit_codes_tell_a_refusal_from_a_comparison_that_could_not_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([("good", True), ("bad", False)])
    monkeypatch.setattr(command, "review", lambda _checkout, _base: next(answers))
    assert command.main(["--out", str(tmp_path / "new" / "report.md")]) == 0
    assert (tmp_path / "new" / "report.md").read_text() == "good"
    assert command.main([]) == 1

    def nothing(_checkout: Path, _base: str | None) -> tuple[str, bool]:
        raise ReviewError("there is no base")

    monkeypatch.setattr(command, "review", nothing)
    assert command.main([]) == 2
    assert "make pr-check: there is no base" in capsys.readouterr().err
