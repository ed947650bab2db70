"""explicit-provider: which machine a GPU is on, that it is that one, and that one provider manages it."""

import pytest
from pack.encrypted import EncryptedText

from tests.policies.good import (
    UNKNOWN,
    Declared,
    Props,
    deployment,
    exporter,
    front_end,
    publisher,
    server,
    service,
)
from tests.policies.judge import messages, violations

RULE, NODE = "explicit-provider", "explicit-provider-per-node"
TCP = "tcp://gpu-01.example.com:2376"


def judged(*declared: Declared) -> str:
    return "\n".join(messages(RULE, *declared))


def provider(package: str = "docker", **props: object) -> Declared:
    values: Props = dict(props)
    return Declared(type=f"pulumi:providers:{package}", name="gpu-01", props=values, host=None)


def test_resources_with_a_provider_of_their_own_are_accepted() -> None:
    stack = (server(), front_end(), publisher(), exporter(), deployment(), service())
    assert violations(RULE, *stack) == []
    assert violations(NODE, *stack) == []


@pytest.mark.parametrize("host", ["default", "default_5_2_0"])
def test_a_gpu_is_on_no_default_provider(host: str | None) -> None:
    [found] = violations(RULE, server().on(host))
    assert found.resource == "gpu0"
    assert found.message.startswith("gpu0: provider: default: which engine that is depends on the shell")
    assert 'Fix: hand it a provider of its own: docker.Provider(…, host="ssh://user@gpu-01")' in found.message
    assert judged(exporter().on(host)) != ""
    assert judged(front_end().on(host)) == ""


def test_a_manifest_has_no_provider() -> None:
    assert judged(deployment().on(None)) == ""


def test_a_provider_whose_name_only_begins_so_is_ours() -> None:
    assert judged(server().on("defaults-of-us")) == ""


def test_a_gpu_that_is_not_known_in_preview_counts_as_one() -> None:
    unsure = front_end().on("default").changed("deviceRequests", UNKNOWN)
    assert "envoy: provider: default" in judged(unsure)


def test_pods_are_judged_alike() -> None:
    found = judged(deployment().on("default_4_34_0"))
    assert "main/server: provider: default: which cluster that is" in found
    assert "kubernetes.Provider(…, kubeconfig=…, context=…)" in found


@pytest.mark.parametrize(
    "props",
    [
        {"host": TCP, "certPath": "/etc/docker/certs"},
        {"host": TCP, "caMaterial": "ca", "certMaterial": "cert", "keyMaterial": "key"},
        {"host": TCP, "caMaterial": UNKNOWN, "certMaterial": "cert", "keyMaterial": "key"},
        {"host": TCP, "context": "gpu-01"},
        {"host": "ssh://deploy@gpu-01.example.com"},
        {"host": "unix:///var/run/docker.sock"},
        {"host": ""},
        {},
    ],
)
def test_an_engine_that_proves_who_it_is_is_accepted(props: Props) -> None:
    assert judged(provider(**props)) == ""


@pytest.mark.parametrize(
    "keys", [{"certMaterial": "c", "keyMaterial": "k"}, {"keyMaterial": "k", "caMaterial": ""}]
)
def test_tls_without_a_ca_is_refused(keys: Props) -> None:
    [found] = violations(RULE, provider(host=TCP, **keys))
    assert found.resource == "gpu-01"
    assert f"gpu-01: host: {TCP}: caMaterial and certPath are unset: nobody checks which" in found.message
    assert "Fix: set certPath" in found.message


@pytest.mark.parametrize("host", [TCP, "TCP://10.0.0.7:2375", "http://10.0.0.7:2375", "https://10.0.0.7"])
def test_tcp_without_tls_is_refused(host: str) -> None:
    assert f"gpu-01: host: {host}: caMaterial and certPath are unset: whoever reaches the port" in judged(
        provider(host=host)
    )


@pytest.mark.parametrize("name", ["host", "context"])
def test_an_endpoint_that_is_not_known_in_preview_is_refused_by_resource(name: str) -> None:
    found = judged(provider(**{"host": TCP, name: UNKNOWN}))
    assert "Endpoint of provider gpu-01 is not known in preview" in found


def kubeconfig(server_address: str, extra: str = "") -> str:
    cluster = f"{{server: '{server_address}'{extra}}}"
    return f"clusters:\n- name: main\n  cluster: {cluster}\n"


def test_a_cluster_proves_who_it_is() -> None:
    assert judged(provider("kubernetes", kubeconfig=kubeconfig("https://c:6443"))) == ""
    unchecked = EncryptedText(kubeconfig("https://c:6443", ", insecure-skip-tls-verify: true"))
    assert "gpu-01: kubeconfig: cluster main: insecure-skip-tls-verify: true" in judged(
        provider("kubernetes", kubeconfig=unchecked)
    )
    assert "server: http://c:8080: nothing encrypts it" in judged(
        provider("kubernetes", kubeconfig=kubeconfig("http://c:8080"))
    )


@pytest.mark.parametrize(
    "text", ["~/.kube/config", "clusters: 5", "clusters: [5]", "[", UNKNOWN, None, 5, "a: b: c"]
)
def test_a_kubeconfig_that_is_a_path_or_unknown_is_passed_over(text: object) -> None:
    assert judged(provider("kubernetes", kubeconfig=text)) == ""


def test_a_machine_has_one_provider() -> None:
    twice = front_end().on("tcp://GPU-01.example.com:2376")
    [found] = violations(NODE, server(), publisher(), twice)
    assert found.resource == "envoy"
    assert (
        "envoy: provider: tcp://GPU-01.example.com:2376: machine gpu-01.example.com is also" in found.message
    )
    assert "Fix: use one provider for all that is on a machine" in found.message


def test_a_machine_with_two_addresses_is_one_by_its_label() -> None:
    [found] = messages(
        NODE, server(), front_end().on("ssh://deploy@10.0.0.7"), publisher().on("ssh://deploy@10.0.0.7")
    )
    assert "node gpu-01 of prod is also reached by ssh://deploy@gpu-01.example.com" in found
    apart = front_end().on("ssh://deploy@10.0.0.8").labelled(node="gpu-02")
    assert messages(NODE, server(), apart) == []


def test_networks_and_volumes_of_a_machine_count() -> None:
    network = Declared(
        type="docker:index/network:Network", name="net", props={}, host="ssh://root@gpu-01.example.com"
    )
    assert "net: provider: ssh://root@gpu-01.example.com: machine" in messages(NODE, server(), network)[0]


def test_only_what_is_no_model_server_is_exempt() -> None:
    assert judged(exporter().on("default").labelled(exempt=f"one-model-per-gpu,{RULE}")) == ""
    assert judged(server().on("default").labelled(exempt=RULE)) != ""


def test_a_server_counts_also_without_a_gpu() -> None:
    assert "provider: default" in judged(server().without("deviceRequests").on("default"))


@pytest.mark.parametrize("host", [5, [TCP], None])
def test_a_host_that_is_no_text_is_passed_over(host: object) -> None:
    assert judged(provider(host=host)) == ""


def test_a_certificate_alone_is_no_ca() -> None:
    assert "nobody checks which" in judged(provider(host=TCP, certMaterial="c"))


def test_a_server_of_a_cluster_that_is_no_text_is_passed_over() -> None:
    assert judged(provider("kubernetes", kubeconfig="clusters: [{name: main, cluster: {server: 5}}]")) == ""


def test_a_cluster_that_is_none_is_passed_over() -> None:
    assert judged(provider("kubernetes", kubeconfig="clusters: [{name: main, cluster: 5}]")) == ""


def test_what_is_not_of_docker_is_on_no_machine() -> None:
    other = deployment().on("ssh://root@gpu-01.example.com")
    assert messages(NODE, server(), other, service().on("ssh://root@gpu-01.example.com")) == []


@pytest.mark.parametrize("label", ["stack", "node"])
def test_a_node_is_named_by_both_labels_or_by_none(label: str) -> None:
    apart = front_end().on("ssh://deploy@10.0.0.8").labelled(**{label: ""})
    alike = server().labelled(**{label: ""})
    assert messages(NODE, alike, apart) == []


def test_what_has_no_provider_and_no_machine_breaks_nothing() -> None:
    volume = Declared(type="docker:index/volume:Volume", name="data", props={}, host=None)
    assert messages(NODE, volume, server()) == []
