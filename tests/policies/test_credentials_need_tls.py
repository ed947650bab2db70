"""credentials-need-tls: what clients show is encrypted, or something before the front end encrypts it."""

from typing import Any

import pytest
import yaml
from pack.encrypted import EncryptedText

from components.kubernetes_manifests import objects
from components.kubernetes_plan import make_kubernetes_plan
from tests import stacks
from tests.kubernetes_stacks import four_gpus, settings
from tests.mock_engine import Deploy
from tests.policies.good import CONFIG_MAP, UNKNOWN, Declared, config_map, front_end, publisher, server
from tests.policies.judge import messages, violations
from tests.policies.made import containers

RULE = "credentials-need-tls"
FILE = "/publish/files/lds.yaml"
TLS = {"name": "envoy.transport_sockets.tls", "typed_config": {}}
JWT = {"name": "envoy.filters.http.jwt_authn", "typed_config": {}}
ROUTER = {"name": "envoy.filters.http.router"}
CREDENTIALS: list[Any] = [
    JWT,
    {"name": "envoy.filters.http.api_key_auth"},
    {"name": "api-keys", "config_discovery": {}},
    {"name": "envoy.filters.http.basic_auth"},
    {"name": "envoy.filters.http.oauth2"},
    {"name": "rules", "typed_config": {"principals": [{"header": {"name": "Authorization"}}]}},
    {"name": "rules", "typed_config": {"principals": [{"header": {"name": "x-api-key"}}]}},
]


def chain(*filters: object, **more: object) -> dict[str, Any]:
    manager = {"http_filters": [*filters, ROUTER]}
    return {"filters": [{"name": "manager", "typed_config": manager}], **more}


def listening(*chains: object, **more: object) -> str:
    listener = {"name": "rest", "filter_chains": list(chains), **more}
    return yaml.safe_dump({"resources": [{"@type": "a.Listener", **listener}]})


def test_a_file_whose_text_is_secret_is_read_too() -> None:
    # As where an upload beside it holds a key: the loader in C takes plain texts alone.
    [found] = violations(RULE, publishing(EncryptedText(listening(chain(JWT)))))
    assert "travels in the open" in found.message


def publishing(text: str) -> Declared:
    return publisher().changed("uploads", [{"file": FILE, "content": text}])


@pytest.mark.parametrize("asked", CREDENTIALS, ids=lambda asked: asked["name"])
def test_whoever_asks_for_credentials_in_the_open_is_refused(asked: dict[str, Any]) -> None:
    [found] = violations(RULE, publishing(listening(chain(asked))))
    assert found.resource == "publisher"
    named = f"publisher: {FILE}: listener rest: {asked['name']}: travels in the open"
    assert found.message.startswith(f"{named}\n  Fix: give its filter chain a transport_socket for TLS")
    assert messages(RULE, publishing(listening(chain(asked, transport_socket=TLS)))) == []


def test_a_file_that_is_a_secret_is_read_like_any() -> None:
    secret = EncryptedText(listening(chain(JWT)))
    assert "travels in the open" in "".join(messages(RULE, publishing(secret)))
    assert messages(RULE, publishing(EncryptedText(listening(chain(JWT, transport_socket=TLS))))) == []


def test_what_asks_for_nothing_may_be_open() -> None:
    log = {"access_log": [{"format": "%REQ(AUTHORIZATION)%"}], "http_filters": [ROUTER]}
    logging = {"filters": [{"name": "manager", "typed_config": log}]}
    assert messages(RULE, publishing(listening(chain(), logging))) == []


def test_each_open_chain_of_a_listener_is_named() -> None:
    both = [chain(JWT), chain(JWT, transport_socket=TLS), chain(CREDENTIALS[1])]
    found = messages(RULE, publishing(listening(*both)))
    assert [one.partition(": travels")[0].rpartition(": ")[2] for one in found] == [
        "envoy.filters.http.jwt_authn",
        "envoy.filters.http.api_key_auth",
    ]
    alone = yaml.safe_dump({"name": "rest", "default_filter_chain": chain(JWT)})
    assert len(messages(RULE, publishing(alone))) == 1
    beside = listening(chain(), default_filter_chain=chain(JWT))
    assert len(messages(RULE, publishing(beside))) == 1


def test_a_socket_that_does_not_encrypt_is_none() -> None:
    raw = {"name": "envoy.transport_sockets.raw_buffer"}
    assert len(messages(RULE, publishing(listening(chain(JWT, transport_socket=raw))))) == 1
    quic = {"name": "envoy.transport_sockets.quic"}
    assert messages(RULE, publishing(listening(chain(JWT, transport_socket=quic)))) == []


def test_a_bootstrap_is_read_as_well() -> None:
    listeners = yaml.safe_load(listening(chain(JWT)))["resources"]
    text = yaml.safe_dump({"static_resources": {"listeners": listeners}})
    assert (
        "envoy: /etc/envoy/envoy.yaml: listener rest"
        in messages(RULE, front_end().changed("uploads[0].content", text))[0]
    )


@pytest.mark.parametrize(
    "text",
    [
        "filter_chains: [jwt_authn",
        "filter_chains jwt_authn",
        "filter_chains: jwt_authn",
        "filter_chains: [jwt_authn]",
        "filter_chains: [{filters: [{typed_config: {http_filters: 7}}], name: jwt_authn}]",
        "default_filter_chain: jwt_authn",
        "filter_chains: [[{http_filters: [{name: jwt_authn}]}]]",
        "- 2026-01-01\n- filter_chains\n- jwt_authn",
    ],
)
def test_what_is_no_configuration_is_passed_over(text: str) -> None:
    assert messages(RULE, publishing(text)) == []


def test_names_that_are_missing_or_odd_stop_nothing() -> None:
    text = yaml.safe_dump({"filter_chains": [chain({"typed_config": "jwt_authn"}, "jwt_authn")]})
    [found] = messages(RULE, publishing(text))
    assert "listener without a name: a filter: travels in the open" in found
    odd = yaml.safe_dump({"filter_chains": [chain("jwt_authn")]})
    assert "a filter: travels in the open" in messages(RULE, publishing(odd))[0]
    dated = listening(chain(JWT, since=None)).replace("since: null", "since: 2026-01-01")
    assert len(messages(RULE, publishing(dated))) == 1


def test_what_is_not_known_in_preview_waits_for_it() -> None:
    assert messages(RULE, publishing(listening(chain(JWT))).changed("uploads[0].content", UNKNOWN)) == []


def test_tls_before_the_front_end_is_said_by_a_label() -> None:
    asking = publishing(listening(chain(JWT)))
    assert messages(RULE, asking.labelled(tls_in_front="true")) == []
    assert messages(RULE, asking.labelled(tls_in_front="false")) != []
    assert messages(RULE, asking.labelled(exempt=RULE)) == []
    models = server().changed("uploads[2]", {"file": FILE, "content": listening(chain(JWT))})
    assert messages(RULE, models.labelled(exempt=RULE)) != []


def test_config_maps_are_read_and_say_it_by_label_or_annotation() -> None:
    files = config_map().changed("data", {"lds.yaml": listening(chain(JWT)), "other": "text"})
    [found] = violations(RULE, files)
    assert found.resource == "main-config"
    assert found.message.startswith(
        "main-config: data.lds.yaml: listener rest: envoy.filters.http.jwt_authn:"
    )
    for part in ("labels", "annotations"):
        said = {"tf-serving.tls-in-front": "true"}
        assert messages(RULE, files.changed(f"metadata.{part}", said)) == []
        assert messages(RULE, files.changed(f"metadata.{part}", {"tf-serving.tls-in-front": "no"})) != []
        assert "in the open" in messages(RULE, files.changed(f"metadata.{part}", "odd"))[0]
    assert "in the open" in messages(RULE, files.changed("metadata", "odd"))[0]


KEY = {"kty": "RSA", "n": "0vx7agoebGcQSuu", "e": "AQAB", "kid": "one"}
TOKENS = {"jwt": {"issuer": "https://issuer.example.com", "audiences": ["serving"], "keys": [KEY]}}
KEYS = {"api_keys": [{"client": "team-a", "key": "api_key_team_a"}]}


@pytest.mark.parametrize("auth", [TOKENS, KEYS], ids=["tokens", "keys"])
@pytest.mark.parametrize("tls", [None, {}])
def test_the_front_ends_own_listeners_are_understood(
    deploy: Deploy, auth: dict[str, Any], tls: dict[str, Any] | None
) -> None:
    front = {"bind": "10.0.0.7", "auth": auth, **({} if tls is None else {"tls": tls})}
    config = stacks.changed(stacks.changed(stacks.one_node(), "front_end", front), "environment", "staging")
    pem = "-----BEGIN canary"
    secrets = {"tls_certificate": pem, "tls_private_key": pem, "api_key_team_a": "0123456789abcdef" * 2}
    made = containers(deploy, config, secrets)
    found = messages(RULE, *made)
    wanted = ["rest", "grpc"] if tls is None else []
    assert [one.split("listener ")[1].split(":")[0] for one in found] == wanted
    behind = stacks.changed(config, "front_end.auth.tls_in_front", True)
    assert messages(RULE, *containers(deploy, behind, secrets)) == []


@pytest.mark.parametrize(
    ("front", "found"),
    [
        ({"auth": TOKENS}, 2),
        ({"auth": TOKENS, "tls_secret": "certificate"}, 0),
        ({"auth": {**TOKENS, "tls_in_front": True}}, 0),
    ],
)
def test_the_front_ends_own_listeners_are_understood_on_kubernetes(front: dict[str, Any], found: int) -> None:
    config = stacks.changed(stacks.changed(four_gpus(), "front_end", front), "environment", "staging")
    made = [
        Declared(type=CONFIG_MAP, name=each.key, props=dict(each.manifest))
        for each in objects(make_kubernetes_plan(settings(config), stack="some"))
        if each.kind == "ConfigMap"
    ]
    assert len(messages(RULE, *made)) == found
