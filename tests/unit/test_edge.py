"""The way in: what a stack file may say of it, what Envoy is told, and that no text holds a secret."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.envoy_config import CONFIG_FOLDER
from components.envoy_edge import edge_files, filled, secret_files
from components.envoy_files import bootstrap_file, envoy_files
from components.errors import SettingsError
from components.front_end_plan import FrontEndPlan
from components.settings import Settings
from components.stack_file import load_stack_file, settings_from_pulumi
from tests.envoy.pools import front_end
from tests.envoy.reading import clusters, listener, manager, values
from tests.stacks import changed, one_node, refusal

EDGE = "front_end"
JWK = {"kty": "EC", "crv": "P-256", "x": "eA", "y": "eQ"}
JWT: dict[str, Any] = {"issuer": "https://issuer.example.com", "audiences": ["tf"], "keys": [JWK]}
KEYS: dict[str, Any] = {
    "api_keys": [{"client": "team-a", "key": "key_a"}, {"client": "team-b", "key": "key_b"}]
}
ONE_WAY = "give exactly one: api_keys: [{client: <name>, key: <secret>}, …] or jwt: {…}"

REFUSED = [
    ({"tls": {"private_key": "tls_certificate"}}, f"{EDGE}.tls.private_key: is also certificate"),
    ({"tls": {"private_key": "-----BEGIN"}}, f"{EDGE}.tls.private_key: (hidden): accepted: lower-case"),
    ({"tls": {"minimum": "1.0"}}, f"{EDGE}.tls.minimum: '1.0': unknown key"),
    ({"auth": {}}, f"{EDGE}.auth: {ONE_WAY}"),
    ({"auth": {**KEYS, "jwt": JWT}}, f"{EDGE}.auth: {ONE_WAY}"),
    (
        {"auth": {"api_keys": [*KEYS["api_keys"], {"client": "team-a", "key": "key_c"}]}},
        f"{EDGE}.auth.api_keys[2].client: (hidden): is also api_keys[0].client",
    ),
    (
        {"auth": {"api_keys": [*KEYS["api_keys"], {"client": "team-c", "key": "key_a"}]}},
        f"{EDGE}.auth.api_keys[2].key: (hidden): is also api_keys[0].key",
    ),
    ({"auth": {"jwt": {**JWT, "keys": []}}}, f"{EDGE}.auth.jwt.keys: []: "),
    (
        {"auth": {"jwt": {**JWT, "keys": [{"kty": "RSA", "n": "AQ"}]}}},
        f"{EDGE}.auth.jwt.keys[0].e: is required with kty: RSA",
    ),
    # A private key is not for a stack file, and a shared one is a secret.
    (
        {"auth": {"jwt": {**JWT, "keys": [{**JWK, "d": "ZA"}]}}},
        f"{EDGE}.auth.jwt.keys[0].d: 'ZA': unknown key",
    ),
    (
        {"auth": {"jwt": {**JWT, "keys": [{"kty": "oct", "k": "aw"}]}}},
        f"{EDGE}.auth.jwt.keys[0].kty: 'oct': ",
    ),
    ({"rate_limit": {}}, f"{EDGE}.rate_limit.per_second: is required"),
    (
        {"rate_limit": {"per_second": 10, "burst": 5}},
        f"{EDGE}.rate_limit.burst: 5: is less than per_second 10",
    ),
    ({"tracing": {}}, f"{EDGE}.tracing.collector: is required"),
    (
        {"tracing": {"collector": "http://otel:4318"}},
        f"{EDGE}.tracing.collector: 'http://otel:4318': accepted",
    ),
    (
        {"access_log": {"sample_percent": 0.123}},
        f"{EDGE}.access_log.sample_percent: 0.123: has more than two decimals",
    ),
    ({"tracing": {"collector": "otel", "sample_percent": 101}}, f"{EDGE}.tracing.sample_percent: 101: "),
    (
        {"auth": {"jwt": JWT}, "user_header": "authorization"},
        f"{EDGE}.user_header: 'authorization': is what auth reads, and it goes no further",
    ),
    (
        {"auth": KEYS, "versions": {"header": "x-api-key"}},
        f"{EDGE}.versions.header: 'x-api-key': is what auth reads, and it goes no further",
    ),
]


@pytest.mark.parametrize(("edge", "said"), REFUSED)
def test_a_way_in_that_cannot_be_is_refused(edge: dict[str, Any], said: str) -> None:
    found = refusal(changed(one_node(), EDGE, edge))
    assert any(line.startswith(said) for line in found), found


# Envoy's files


def texts(plan: FrontEndPlan) -> str:
    bootstrap = bootstrap_file(plan)[1]
    return bootstrap + "".join([*edge_files(plan).values(), *envoy_files(plan).values()])


def test_all_of_it_is_off_unless_it_is_said() -> None:
    plan = front_end()
    assert not secret_files(plan)
    assert not edge_files(plan)
    text = texts(plan)
    for word in ("transport_socket:", "rbac", "jwt_authn", "local_ratelimit", "tracing", "api-key"):
        assert word not in text, word
    assert plan.spec.rest_url("gpu-01") == "http://gpu-01:8080"


def test_rendered_text_names_files_and_never_a_secret() -> None:
    plan = front_end(settings={"tls": {}, "auth": KEYS})
    own = {file.name: dict(file.names) for file in secret_files(plan)}
    assert own == {
        "tls.crt": {"tls_certificate": "tls.certificate"},
        "tls.key": {"tls_private_key": "tls.private_key"},
        "api-keys.yaml": {"key_a": "the API key of team-a", "key_b": "the API key of team-b"},
    }
    for name in ("sds-tls", "api-keys"):
        assert f"{CONFIG_FOLDER}/{name}.yaml" in texts(plan)
    assert all(f"{CONFIG_FOLDER}/{name}" in texts(plan) for name in ("tls.crt", "tls.key"))
    assert not [mark for mark in ("(secret ", "key_a", "tls_private_key") if mark in texts(plan)]


SECRETS = {"key_a": 'with "quotes", \\ and (secret key_b)!\n', "key_b": "0123456789abcdef"}


def test_a_secret_stands_in_its_file_as_it_is() -> None:
    [file] = secret_files(front_end(settings={"auth": KEYS}))
    found = [value for key, value in values(yaml.safe_load(filled(file, SECRETS))) if key == "exact"]
    assert found == [SECRETS["key_a"].strip(), SECRETS["key_b"]]


@pytest.mark.parametrize("value", ["", "short", "0123456789abcde\u00e9", "0123456789abcdef\nmore"])
def test_a_key_that_no_client_should_have_is_refused_without_showing_it(value: str) -> None:
    [file] = secret_files(front_end(settings={"auth": KEYS}))
    with pytest.raises(ValueError, match="the API key of team-b") as refused:
        filled(file, {**SECRETS, "key_b": value})
    assert str(refused.value) == (
        "key_b (the API key of team-b): accepted: 16 printable ASCII characters or more, on one line"
    )


def test_what_is_no_pem_is_no_certificate() -> None:
    file, _ = secret_files(front_end(settings={"tls": {}}))
    with pytest.raises(ValueError, match=r"tls_certificate \(tls.certificate\): accepted: PEM"):
        filled(file, {"tls_certificate": "hunter2-hunter2-hunter2"})


def filters(plan: FrontEndPlan, name: str) -> list[str]:
    return [entry["name"].rpartition(".")[2] for entry in manager(plan, name)["http_filters"]]


def test_limits_stand_before_and_behind_who_asks_and_health_before_all() -> None:
    limit = {"per_second": 10, "total_per_second": 100}
    for auth, who in ((KEYS, "api-keys"), ({"jwt": JWT}, "jwt_authn")):
        plan = front_end(settings={"auth": auth, "rate_limit": limit})
        for name in ("rest", "grpc"):
            wanted = ["health_check", "limit-of-all", who, "limit-of-each", "body_size_limit"]
            assert filters(plan, name)[:5] == wanted
        assert filters(plan, "metrics") == ["router"]


def test_a_rate_limit_is_switched_on() -> None:
    plan = front_end(settings={"rate_limit": {"per_second": 7, "total_per_second": 3}})
    found = [
        entry["typed_config"]
        for entry in manager(plan, "rest")["http_filters"]
        if entry["name"].startswith("limit-")
    ]
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    for config in found:
        # Left out, both are 0 %.
        assert (config["filter_enabled"], config["filter_enforced"]) == (always, always)
    of_all, of_each = found
    assert of_all["token_bucket"]["max_tokens"] == 6
    assert of_each["descriptors"][0]["token_bucket"] == {
        "max_tokens": 14,
        "tokens_per_fill": 7,
        "fill_interval": "1s",
    }


def test_tls_is_on_both_ports_of_clients_and_not_on_that_of_metrics() -> None:
    plan = front_end(settings={"tls": {}})
    for name, protocols in (("rest", ["h2", "http/1.1"]), ("grpc", ["h2"])):
        [chain] = listener(plan, name)["filter_chains"]
        common = chain["transport_socket"]["typed_config"]["common_tls_context"]
        assert common["tls_params"] == {"tls_minimum_protocol_version": "TLSv1_2"}
        assert common["alpn_protocols"] == protocols
    assert "transport_socket" not in listener(plan, "metrics")["filter_chains"][0]
    assert plan.spec.rest_url("gpu-01") == "https://gpu-01:8080"


@pytest.mark.parametrize(("host", "kind"), [("10.0.0.5", "STATIC"), ("otel.example.com", "STRICT_DNS")])
def test_a_collector_is_an_address_or_a_name(host: str, kind: str) -> None:
    plan = front_end(settings={"tracing": {"collector": host}})
    # Envoy refuses a name in a STATIC cluster.
    assert clusters(plan)["tracing"]["type"] == kind
    for name in ("rest", "grpc"):
        assert manager(plan, name)["tracing"]["client_sampling"] == {"value": 0}
    assert "tracing" not in manager(plan, "metrics")


# Secrets in the configuration


def loaded(
    tmp_path: Path, edge: dict[str, Any], secret: dict[str, str], plain: dict[str, str] | None = None
) -> Settings:
    config = changed(one_node(), EDGE, edge)
    texts_ = {f"tf-serving:{key}": json.dumps(value) for key, value in config.items()}
    texts_ |= {f"tf-serving:{key}": value for key, value in {**secret, **(plain or {})}.items()}
    return settings_from_pulumi(texts_, [f"tf-serving:{key}" for key in secret], "test", tmp_path)


TLS_SECRETS = {"tls_certificate": "hunter2", "tls_private_key": "hunter2"}


def test_secrets_that_settings_name_are_let_through_unread(tmp_path: Path) -> None:
    settings = loaded(tmp_path, {"tls": {}}, TLS_SECRETS)
    assert "hunter2" not in settings.model_dump_json()


@pytest.mark.parametrize(
    ("edge", "secret", "plain", "said"),
    [
        (
            {"tls": {}},
            {"tls_certificate": "hunter2"},
            {},
            (
                "front_end.tls.private_key: names no secret of this stack; "
                "set it: pulumi config set --secret tls_private_key"
            ),
        ),
        ({"tls": {}}, {"tls_certificate": "hunter2"}, {"tls_private_key": "hunter2"}, "tls_private_key: "),
        (
            {},
            {"old_key": "hunter2"},
            {},
            "old_key: a secret that no setting names; `pulumi config rm` removes it",
        ),
        ({}, {"pools": "hunter2"}, {}, "pools: no setting is a secret"),
    ],
)
def test_a_secret_that_is_missing_or_too_many_or_in_the_open_is_refused_unshown(
    tmp_path: Path, edge: dict[str, Any], secret: dict[str, str], plain: dict[str, str], said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, edge, secret, plain)
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_stack_file_with_encrypted_secrets_is_read_without_them(tmp_path: Path) -> None:
    config = {f"tf-serving:{key}": value for key, value in changed(one_node(), EDGE, {"tls": {}}).items()}
    config |= {f"tf-serving:{key}": {"secure": "v1:abc:def"} for key in TLS_SECRETS}
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(yaml.safe_dump({"config": config}))
    assert load_stack_file(file).front_end.secrets == {
        "tls.certificate": "tls_certificate",
        "tls.private_key": "tls_private_key",
    }
    file.write_text(yaml.safe_dump({"config": {**config, "tf-serving:pools": {"secure": "v1:abc:def"}}}))
    with pytest.raises(SettingsError, match="pools"):
        load_stack_file(file)
