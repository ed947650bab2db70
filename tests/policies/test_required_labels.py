"""required-labels: whose a container is, and what it serves."""

import pytest

from tests.policies.good import UNKNOWN, Declared, deployment, exporter, front_end, publisher, server
from tests.policies.judge import messages, violations

RULE = "required-labels"
POD = "spec.template.metadata"


def judged(*declared: Declared, **config: object) -> str:
    return "\n".join(messages(RULE, *declared, environment="prod", **config))


def unlabelled(declared: Declared, name: str) -> Declared:
    kept = [label for label in declared.props["labels"] if label["label"] != f"tf-serving.{name}"]
    return declared.changed("labels", kept)


def test_containers_that_say_whose_they_are_are_accepted() -> None:
    assert violations(RULE, server(), front_end(), publisher(), exporter(), deployment()) == []


@pytest.mark.parametrize("name", ["stack", "owner", "pool", "models", "slot"])
def test_a_server_lacks_no_label(name: str) -> None:
    [found] = violations(RULE, unlabelled(server(), name))
    assert found.resource == "gpu0"
    assert found.message.startswith(f"gpu0: label tf-serving.{name}: unset")
    assert f"Fix: set tf-serving.{name} in labels: " in found.message


@pytest.mark.parametrize("name", ["stack", "owner"])
@pytest.mark.parametrize(
    "declared", [front_end(), publisher(), exporter()], ids=lambda declared: declared.name
)
def test_everything_else_says_whose_it_is(declared: Declared, name: str) -> None:
    assert f"{declared.name}: label tf-serving.{name}: unset" in judged(unlabelled(declared, name))
    assert judged(unlabelled(declared, "node")) == ""


@pytest.mark.parametrize("value", ["", " ", "TODO", "unknown", "<team>", "n/a", "-", "xxx"])
def test_a_label_that_says_nothing_is_none(value: str) -> None:
    assert f"gpu0: label tf-serving.owner: {value!r}: says nothing" in judged(server().labelled(owner=value))


@pytest.mark.parametrize("slot", ["gpu0", "gpu12-mig3", "gpu0,gpu1"])
def test_a_slot_is_named_as_everywhere(slot: str) -> None:
    assert judged(server().labelled(slot=slot)) == ""


@pytest.mark.parametrize("slot", ["0", "GPU-1", "gpu0;gpu1", "gpu0,"])
def test_another_name_of_a_slot_is_refused(slot: str) -> None:
    assert f"gpu0: label tf-serving.slot: {slot}: names no slot" in judged(server().labelled(slot=slot))


@pytest.mark.parametrize("name", ["stack", "owner", "pool", "models"])
def test_a_pod_says_the_same_in_labels_or_annotations(name: str) -> None:
    key = f"tf-serving.{name}"
    labels = dict(deployment().props["spec"]["template"]["metadata"]["labels"])
    value = labels.pop(key)
    bad = deployment().changed(f"{POD}.labels", labels)
    assert f"main/server: label {key}: unset" in judged(bad)
    assert "the pod template's labels or annotations" in judged(bad)
    assert judged(bad.changed(f"{POD}.annotations", {key: value})) == ""


def test_an_organization_may_ask_for_more() -> None:
    assert "gpu0: label cost-center: unset" in judged(server(), alsoRequired=["cost-center"])
    labels = [*server().props["labels"], {"label": "cost-center", "value": "4711"}]
    assert judged(server().changed("labels", labels), alsoRequired=["cost-center"]) == ""


def test_a_server_of_a_folder_names_the_folder_instead_of_its_models() -> None:
    unnamed = unlabelled(server(), "models")
    assert judged(unnamed.labelled(models_folder="/srv/models")) == ""
    assert "tf-serving.models" in judged(unnamed.labelled(models_folder=" "))


def test_only_what_is_no_model_server_is_exempt() -> None:
    assert judged(unlabelled(exporter(), "owner").labelled(exempt=RULE)) == ""
    assert "tf-serving.owner: unset" in judged(unlabelled(server(), "owner").labelled(exempt=RULE))


@pytest.mark.parametrize("path", ["labels", "labels[0]", "labels[0].value"])
def test_labels_that_are_not_known_in_preview_are_refused_by_resource(path: str) -> None:
    [found] = messages(RULE, server().changed(path, UNKNOWN))
    assert f"Label of gpu0 is not known in preview: {path}" in found


def test_a_slot_that_says_nothing_is_reported_once() -> None:
    assert len(messages(RULE, server().labelled(slot="TODO"))) == 1


def test_what_is_no_server_may_call_a_slot_what_it_likes() -> None:
    assert judged(exporter().labelled(slot="0")) == ""
