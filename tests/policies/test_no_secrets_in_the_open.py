"""no-secrets-in-the-open: variables, labels, arguments and files, by the form of a value or by its name."""

from base64 import b64encode

import pytest
from pack.encrypted import EncryptedText, marked

from tests import stacks
from tests.kubernetes_stacks import four_gpus, settings
from tests.mock_engine import Deploy
from tests.policies.good import (
    CONFIG_MAP,
    UNKNOWN,
    Declared,
    config_map,
    deployment,
    exporter,
    front_end,
    publisher,
    server,
)
from tests.policies.judge import messages, violations
from tests.policies.made import containers
from tests.policies.test_kubernetes_stacks import declared

RULE = "no-secrets-in-the-open"
CONTAINER = "spec.template.spec.containers[0]"
# Made up here, in the form that each service gives them: none was ever in use.
SECRETS = {
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----\nabc",
    "an AWS access key": "AKIA" + "Q" * 16,
    "a GitHub token": "ghp_" + "a" * 36,
    "a GitLab token": "glpat-" + "a" * 20,
    "a Slack token": "xoxb-" + "1" * 12,
    "a Hugging Face token": "hf_" + "a" * 34,
    "a Google API key": "AIza" + "b" * 35,
    "an API key": "sk-" + "c" * 40,
    "a registry token": "dckr_pat_" + "d" * 27,
    "an Azure storage key": "AccountKey=" + "e" * 86 + "==",
    "a signed token": "eyJ" + "f" * 20 + ".eyJ" + "g" * 20 + ".sig",
    "a password in a URL": "https://user:" + "hunter2@example.com/x",
    "a bearer token": "Authorization: Bearer " + "h" * 30,
    "a secret that is written out": "db_password = " + "correct-horse",
}


def judged(*declared: Declared) -> str:
    return "\n".join(messages(RULE, *declared))


def test_containers_without_secrets_are_accepted() -> None:
    assert violations(RULE, server(), front_end(), publisher(), exporter(), deployment()) == []


@pytest.mark.parametrize(("what", "secret"), SECRETS.items())
def test_a_secret_is_known_by_its_form_wherever_it_stands_and_is_never_repeated(
    what: str, secret: str
) -> None:
    places = {
        "variable NOTE": server().changed("envs[2]", f"NOTE={secret}"),
        "label note": server().changed("labels[10]", {"label": "note", "value": secret}),
        "argument note": server().changed("command[8]", f"--note={secret}"),
        "argument": server().changed("command[8]", secret if secret[0] != "-" else f" {secret}"),
        "file /etc/x": server().changed("uploads[2]", {"file": "/etc/x", "content": f"x: 1\n{secret}\n"}),
    }
    for where, bad in places.items():
        found = violations(RULE, bad)
        assert found[0].resource == "gpu0"
        assert found[0].message.startswith(f"gpu0: {where}: (hidden): looks like {what}"), where
        assert "Fix: keep it in a file of the machine" in found[0].message
        assert secret.strip() not in found[0].message


@pytest.mark.parametrize(
    "variable",
    [
        "DB_PASSWORD=x",
        "AWS_SECRET_ACCESS_KEY=abc",
        "apiKey=abc",
        "API_KEY=1",
        "HF_TOKEN=abc",
        "clientSecret=abc",
        "PRIVATE_KEY=abc",
        "GOOGLE_CREDENTIALS={}",
    ],
)
def test_a_secret_is_known_by_its_name(variable: str) -> None:
    name, _, value = variable.partition("=")
    [found] = messages(RULE, server().changed("envs[2]", variable))
    assert f"gpu0: variable {name}: (hidden): looks like a secret, by its name" in found
    assert f"gpu0: argument {name}:" in judged(server().changed("command[8]", f"--{name}={value}"))


@pytest.mark.parametrize(
    "variable",
    [
        "DB_PASSWORD_FILE=/run/secrets/db",
        "DB_PASSWORD=/run/secrets/db",
        "DB_PASSWORD=",
        "SECRET_NAME=models",
        "MAX_TOKENS=512",
        "TOKEN_LIMIT=512",
        "TOKENIZER=bert",
        "USE_TOKEN=true",
        "KEY=value",
        "URL=http://localhost:8080/a@b",
        "GPU=GPU-11111111-aaaa-4aaa-8aaa-000000000000",
    ],
)
def test_what_only_resembles_a_secret_is_accepted(variable: str) -> None:
    assert judged(server().changed("envs[2]", variable)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "password: ${DB_PASSWORD}\n",
        "token: <token>\n",
        "secret_name: models\n",
        "password: /run/db\n",
        "token:\n",
    ],
)
def test_a_file_that_refers_to_a_secret_is_accepted(text: str) -> None:
    assert judged(server().changed("uploads[2]", {"file": "/x", "content": text})) == ""


def test_a_file_from_a_secret_of_pulumi_is_encrypted_in_the_state_and_a_variable_is_not() -> None:
    encrypted = EncryptedText(SECRETS["a private key"])
    assert judged(server().changed("uploads[2]", {"file": "/x", "content": encrypted})) == ""
    assert "variable KEY" in judged(server().changed("envs[2]", EncryptedText(f"KEY={encrypted}")))
    assert "label note" in judged(server().changed("labels[10]", {"label": "note", "value": encrypted}))


def test_texts_of_what_pulumi_sends_as_secret_are_marked_and_no_others() -> None:
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}
    sent = {"a": "x", "b": {**secret, "value": "y"}, "c": [{**secret, "value": [{"d": "z", "n": 1.0}]}]}
    found = marked(sent)
    assert found == {"a": "x", "b": "y", "c": [[{"d": "z", "n": 1.0}]]}
    texts = (found["a"], found["b"], found["c"][0][0]["d"])
    assert [isinstance(text, EncryptedText) for text in texts] == [False, True, True]


def test_a_health_check_is_in_the_open_as_well() -> None:
    bad = server().changed("healthcheck.tests", ["CMD", "curl", SECRETS["a password in a URL"]])
    assert "gpu0: argument: (hidden): looks like a password in a URL" in judged(bad)


def test_pods_are_judged_alike_and_may_refer_to_a_secret() -> None:
    variables = f"{CONTAINER}.env"
    bad = deployment().changed(variables, [{"name": "DB_PASSWORD", "value": "hunter2"}])
    assert "main/server: variable DB_PASSWORD: (hidden)" in judged(bad)
    assert "Fix: put it into a Secret and refer to that" in judged(bad)
    reference = {"secretKeyRef": {"name": "db", "key": "password"}}
    assert judged(deployment().changed(variables, [{"name": "DB_PASSWORD", "valueFrom": reference}])) == ""
    assert "main/server: label note" in judged(
        deployment().changed("spec.template.metadata.annotations", {"note": SECRETS["a GitHub token"]})
    )
    assert "main/server: argument" in judged(
        deployment().changed(f"{CONTAINER}.args[5]", SECRETS["a GitHub token"])
    )


def test_a_config_map_is_in_the_open() -> None:
    made = Declared(type="kubernetes:core/v1:ConfigMap", name="files", props={"data": {"a.conf": "x: 1"}})
    assert judged(made) == ""
    assert "files: data a.conf: (hidden): looks like a private key" in judged(
        made.changed("data", {"a.conf": SECRETS["a private key"]})
    )
    assert judged(made.changed("data", UNKNOWN)) == ""


@pytest.mark.parametrize("path", ["envs", "envs[0]", "command[8]", "labels[0].value", "uploads[0].content"])
def test_what_is_not_known_in_preview_is_judged_on_up_before_it_is_made(path: str) -> None:
    assert judged(server().changed(path, UNKNOWN)) == ""


def test_only_what_is_no_model_server_is_exempt() -> None:
    bad = exporter().changed("envs", ["DB_PASSWORD=hunter2"])
    assert judged(bad) != ""
    assert judged(bad.labelled(exempt=f"one-model-per-gpu,{RULE}")) == ""
    assert judged(server().changed("envs[2]", "DB_PASSWORD=hunter2").labelled(exempt=RULE)) != ""


def test_a_secret_in_a_flag_is_reported_once() -> None:
    assert len(messages(RULE, server().changed("command[8]", f"--note={SECRETS['a GitHub token']}"))) == 1


def test_what_is_no_text_in_a_config_map_is_passed_over() -> None:
    assert judged(config_map().changed("data", {"password": 5.5})) == ""


def test_a_key_in_base64_is_in_the_open_as_well(deploy: Deploy) -> None:
    key = b64encode(SECRETS["a private key"].encode()).decode()
    [made, *_] = [one for one in containers(deploy, stacks.one_node()) if one.props.get("uploads")]
    assert judged(made) == ""
    upload = {"file": "/etc/tls.key", "contentBase64": key}
    name = made.props["name"]
    said = judged(made.changed("uploads[0]", upload))
    assert f"{name}: file /etc/tls.key: (hidden): looks like a private key" in said
    assert judged(made.changed("uploads[0]", {**upload, "contentBase64": EncryptedText(key)})) == ""
    for text in (b64encode(b"\xff\xfe, no text").decode(), "no base64", "\u00e9"):
        assert judged(made.changed("uploads[0]", {**upload, "contentBase64": text})) == ""


def test_binary_data_of_a_config_map_is_in_the_open_as_well() -> None:
    made = [one for one in declared(settings(four_gpus())) if one.type == CONFIG_MAP]
    assert judged(*made) == ""
    key = b64encode(SECRETS["a private key"].encode()).decode()
    said = judged(made[0].changed("binaryData", {"tls.p12": "AAAA", "tls.key": key, "odd": 5.5}))
    assert f"{made[0].name}: binaryData tls.key: (hidden): looks like a private key" in said
    assert said.count("Fix:") == 1
    assert judged(made[0].changed("binaryData", UNKNOWN)) == ""
