"""The audit: the same rules over an exported state and over rendered Kubernetes YAML."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from audit.__main__ import main
from audit.errors import AuditError
from audit.levels import levels
from audit.manifests import resources_of_folder
from audit.state import resources_of_state
from hypothesis import given
from hypothesis import strategies as st
from pack.plain import SECRET, UNKNOWN
from pack.registry import all_rules

from tests.policies.good import Declared, config_map, deployment, front_end, publisher, server, service

PROVIDER = "urn:pulumi:prod::p::pulumi:providers:docker::gpu-01"
SECRET_TEXT = "v1:not-to-be-printed"
SIGNATURE = "4dabf18193072939515e22adb298388d"
ENCRYPTED = {SIGNATURE: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": SECRET_TEXT}
IN_THE_OPEN = {SIGNATURE: "1b47061264138c4ac30d75fd1eb44270", "plaintext": SECRET_TEXT}


def exported(*declared: Declared) -> str:
    """A state as `pulumi stack export` prints it, with one provider for all."""
    provider = {"urn": PROVIDER, "type": "pulumi:providers:docker", "inputs": {"host": "ssh://a@gpu-01"}}
    resources = [provider, *(_entry(one) for one in declared)]
    return json.dumps({"version": 3, "deployment": {"resources": resources}})


def _entry(one: Declared) -> dict[str, Any]:
    provider = f"{PROVIDER}::id-of-it"
    return {
        "urn": one.urn,
        "type": one.type,
        "inputs": {**one.props, "__defaults": []},
        "outputs": {"gpus": "all"},
        "provider": provider,
        "dependencies": [PROVIDER, *(server().named(name).urn for name in one.depends_on)],
    }


def audited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, *options: str
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    code = main([*options, "state"])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_good_state_has_no_violation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = exported(server(0), server(1).after("gpu0"), front_end(), publisher())
    code, out, _ = audited(monkeypatch, capsys, good)
    assert (code, out.count("\n")) == (0, 1)
    assert out.startswith(f"5 of 5 resources judged by {len(all_rules())} rules at the levels of prod: 0 ")


def test_a_violation_is_a_row_with_rule_level_resource_value_and_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = exported(server(0, "a"), server(0, "b"))
    code, out, _ = audited(monkeypatch, capsys, bad, "--json")
    row = next(row for row in json.loads(out) if row["rule"] == "one-model-per-gpu")
    assert code == 1
    assert (row["level"], row["resource"]) == ("mandatory", "b")
    assert row["value"].endswith("is owned by a")
    assert row["fix"].startswith("give each server a GPU")
    _, table, _ = audited(monkeypatch, capsys, bad)
    assert table.split()[:5] == ["rule", "level", "resource", "value", "fix"]
    assert max(map(len, table.splitlines())) < 200


def test_only_mandatory_violations_make_it_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "levels.json"
    bad = exported(server(0, "a"), server(0, "b"))
    config.write_text('{"all": "advisory", "gpu-memory": "disabled"}')
    code, out, _ = audited(monkeypatch, capsys, bad, "--config", str(config))
    assert (code, "0 mandatory" in out, "advisory" in out) == (0, True, True)
    config.write_text('{"all": "advisory", "one-model-per-gpu": {"enforcementLevel": "mandatory"}}')
    assert audited(monkeypatch, capsys, bad, "--config", str(config))[0] == 1


def test_settings_of_a_rule_reach_it(tmp_path: Path) -> None:
    config = tmp_path / "levels.json"
    config.write_text('{"gpu-memory": {"environment": "staging", "most": 0.5}}')
    found = {one.rule.name: one for one in levels("prod", config)}
    assert found["gpu-memory"].params.values == {"most": 0.5}
    assert found["gpu-memory"].params.environment == "staging"
    assert found["gpu-memory"].level == "mandatory"
    assert found["one-model-per-gpu"].params.environment == "prod"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is no configuration"),
        ("[]", "is no object with a level"),
        ('{"gpu-memory": 5}', "is no object with a level"),
        ('{"gpu-memroy": "advisory"}', "gpu-memroy: there is no such rule"),
        ('{"gpu-memory": "sometimes"}', "sometimes: a level is mandatory, advisory, disabled"),
    ],
)
def test_a_configuration_that_is_none_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "levels.json"
    config.write_text(text)
    with pytest.raises(AuditError, match=said):
        list(levels("prod", config))


@pytest.mark.parametrize("secret", [ENCRYPTED, IN_THE_OPEN])
def test_secrets_are_neither_judged_nor_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], secret: dict[str, str]
) -> None:
    hidden = exported(server(0).changed("envs[1]", secret).changed("deviceRequests[0].deviceIds", secret))
    code, out, err = audited(monkeypatch, capsys, hidden, "--json")
    assert code == 1
    assert SECRET_TEXT not in out + err
    assert "cannot be read: envs[1] is an encrypted secret, not a text" in out


def test_files_in_a_state_are_unknown_and_secrets_are_marked() -> None:
    asset = {SIGNATURE: "c44067f5952c0a294b673a41bacd8c17", "path": "x"}
    [_, found] = resources_of_state(exported(server(0).changed("envs", [ENCRYPTED, asset])))
    assert found.props["envs"] == [SECRET, UNKNOWN]


def test_what_a_state_tells_of_a_resource_is_what_rules_see() -> None:
    [_, found] = resources_of_state(exported(server(0)))
    assert found.provider is not None
    assert (found.provider.type, found.provider.props) == (
        "pulumi:providers:docker",
        {"host": "ssh://a@gpu-01"},
    )
    assert found.depends_on == (PROVIDER,)
    assert (found.name, found.type) == ("gpu0", server(0).type)
    assert "gpus" not in found.props  # an output, which no program said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the state is no JSON"),
        ("not json", "the state is no JSON"),
        ("5", "has no `deployment`"),
        ('{"version": 3}', "has no `deployment`"),
        ('{"deployment": {"resources": {}}}', "nothing is deployed"),
        ('{"deployment": {"resources": [5]}}', "is no list of resources"),
        ('{"deployment": {"resources": [{"type": "x"}]}}', "is no list of resources"),
        ('{"deployment": {}}', "nothing is deployed"),
        ('{"deployment": {"resources": null}}', "nothing is deployed"),
    ],
)
def test_a_state_that_cannot_be_judged_is_no_clean_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    code, out, err = audited(monkeypatch, capsys, text)
    assert (code, out) == (2, "")
    assert said in err


def manifest(*declared: Declared) -> str:
    return yaml.safe_dump_all([{"apiVersion": "v1", **one.props, "kind": _kind(one)} for one in declared])


def _kind(one: Declared) -> str:
    return one.type.rpartition(":")[2]


def judged_manifests(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, str]], str]:
    code = main(["--json", "manifests", str(path)])
    said = capsys.readouterr()
    return code, json.loads(said.out or "[]"), said.err


def test_good_manifests_of_many_documents_have_no_violation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "all.yaml").write_text(
        f"---\n---\n{manifest(deployment(), config_map(), service())}---\n# nothing\n"
    )
    assert judged_manifests(tmp_path, capsys) == (0, [], "")


TWO_GPUS = deployment().changed(
    "spec.template.spec.containers[0].resources", {"limits": {"nvidia.com/gpu": "2"}}
)


def test_a_broken_manifest_is_named_by_file_kind_and_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below").mkdir()
    bad = TWO_GPUS.changed("metadata.namespace", "ml")
    (tmp_path / "below" / "bad.yml").write_text(manifest(service(), bad, service("NodePort")))
    code, found, _ = judged_manifests(tmp_path, capsys)
    by_rule = {row["rule"]: row for row in found}
    assert code == 1
    assert by_rule["one-model-per-gpu"]["resource"] == "below/bad.yml: Deployment ml/main"
    assert "nvidia.com/gpu: 2: a model server has exactly one GPU" in by_rule["one-model-per-gpu"]["value"]
    assert by_rule["only-the-front-end-publishes"]["resource"] == "below/bad.yml: Service service"


@pytest.mark.parametrize("of", ["List", "DeploymentList"])
def test_items_of_lists_are_judged_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], of: str
) -> None:
    item = dict(TWO_GPUS.props)
    if of != "List":  # a typed list says once what its items are
        item = {name: value for name, value in item.items() if name not in ("apiVersion", "kind")}
    version = "v1" if of == "List" else "apps/v1"
    (tmp_path / "list.json").write_text(json.dumps({"apiVersion": version, "kind": of, "items": [item]}))
    code, found, _ = judged_manifests(tmp_path / "list.json", capsys)
    assert code == 1
    assert "one-model-per-gpu" in {row["rule"] for row in found}
    assert {row["resource"] for row in found} == {"list.json: Deployment main"}


def test_a_pod_and_what_no_rule_knows_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {day: 2024-01-01, n: 5}}}\n---\n"
        "{apiVersion: example.com/v1, kind: Odd, metadata: 7}\n---\n{apiVersion: v1, kind: List, items: }\n"
    )
    pod, odd = resources_of_folder(tmp_path)
    assert (pod.type, odd.type) == ("kubernetes:core/v1:Pod", "kubernetes:example.com/v1:Odd")
    assert pod.props["metadata"] == {"name": "p", "annotations": {"day": "2024-01-01", "n": 5}}
    assert odd.name == "unnamed"


ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is no YAML (line 2"),
        ("{{ .Values.x }}\n", "x.yaml: "),
        ("name: {{- if }}\n", "is no YAML"),
        ("5", "is no Kubernetes object, but int"),
        ("- a\n", "is no Kubernetes object, but list"),
        ("a: b\n", "apiVersion and kind"),
        ("apiVersion: v1\nkind: [Pod]\n", "apiVersion and kind"),
        ("kind: List\napiVersion: v1\nitems: 5\n", "items: is no list"),
        ("kind: List\napiVersion: v1\nitems: [{kind: Pod}]\n", "x.yaml, items[0]: apiVersion and kind"),
        ("apiVersion: v1\nkind: Pod\n---\nno\n", "x.yaml, document 2: is no Kubernetes object, but bool"),
        ("", "holds no Kubernetes object"),
        ("# nothing\n---\n", "holds no Kubernetes object"),
        ("a: \x07\n", "is no YAML"),
        (ALIASES, "stands for more than 1000000 values"),
        ("a: &a [*a]\n", "stands for more than 1000000 values"),
    ],
)
def test_what_is_no_manifest_is_an_error_with_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    code, found, err = judged_manifests(tmp_path, capsys)
    assert (code, found) == (2, [])
    assert said in err
    assert err.count("\n") == 1


def test_an_empty_folder_a_missing_one_and_bytes_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "holds no Kubernetes object" in judged_manifests(tmp_path, capsys)[2]
    assert "there is no such file or folder" in judged_manifests(tmp_path / "none", capsys)[2]
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in judged_manifests(tmp_path, capsys)[2]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
_POD = st.dictionaries(st.sampled_from(["containers", "volumes"]), _VALUES)
_SPEC = st.fixed_dictionaries({"template": st.fixed_dictionaries({"spec": _POD})})


@given(st.sampled_from(["Pod", "Deployment", "CronJob", "Service"]), _SPEC | _VALUES)
def test_whatever_a_manifest_holds_rules_judge_it(tmp_path_factory: Any, kind: str, spec: object) -> None:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "x.json").write_text(json.dumps({"apiVersion": "v1", "kind": kind, "spec": spec}))
    assert main(["--json", "manifests", str(folder)]) in (0, 1)
