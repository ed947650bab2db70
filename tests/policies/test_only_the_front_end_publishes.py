"""only-the-front-end-publishes: ports, services, Envoy's admin page, the profiler."""

import pytest

from components.settings import ADMIN_PORT
from tests import stacks
from tests.kubernetes_stacks import four_gpus, settings
from tests.mock_engine import Deploy
from tests.policies.good import UNKNOWN, Declared, deployment, exporter, front_end, publisher, server, service
from tests.policies.judge import messages, violations
from tests.policies.made import containers
from tests.policies.test_kubernetes_stacks import declared
from tests.stacks import changed, in_staging, problems

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is refused
RULE = "only-the-front-end-publishes"
BALANCER = {"service": "LoadBalancer", "source_ranges": ["10.0.0.0/8"]}
PORT = {"internal": 8501.0, "external": 8501.0, "ip": "127.0.0.1", "protocol": "tcp"}


def judged(*declared: Declared, environment: str = "prod") -> str:
    return "\n".join(messages(RULE, *declared, environment=environment))


def test_a_front_end_on_a_named_address_and_pages_on_the_loopback_are_accepted() -> None:
    assert violations(RULE, server(), front_end(), exporter(), publisher()) == []


def test_a_server_publishes_nothing_not_even_on_the_loopback_or_with_a_label() -> None:
    [found] = violations(RULE, server().changed("ports", [PORT]).labelled(exempt=RULE))
    assert found.message.startswith(
        "gpu0: ports[0]: 127.0.0.1:8501 -> 8501: only the front end publishes ports"
    )
    assert "Fix: remove the port: clients use the front end" in found.message


def test_a_label_does_not_make_a_front_end_of_a_server() -> None:
    assert "only the front end" in judged(server().changed("ports", [PORT]).labelled(role="front-end"))


@pytest.mark.parametrize("address", [None, "", EVERYWHERE, "::"])
def test_in_prod_the_front_end_is_on_a_named_address(address: str | None) -> None:
    bad = (
        front_end().without("ports[0].ip") if address is None else front_end().changed("ports[0].ip", address)
    )
    assert "8080 -> 8080: in prod the front end is published on a named address" in judged(bad)
    assert judged(bad, environment="staging") == ""


def test_a_page_of_something_else_is_on_the_loopback_and_says_that_it_is_exempt() -> None:
    assert "an exempt page is for its machine alone" in judged(exporter().changed("ports[0].ip", EVERYWHERE))
    assert "only the front end publishes ports" in judged(exporter().labelled(exempt="one-model-per-gpu"))


def test_all_ports_of_an_image_are_never_published() -> None:
    assert "envoy: publishAllPorts: true" in judged(front_end().changed("publishAllPorts", True))


def test_a_server_is_not_on_the_network_of_its_node() -> None:
    assert "gpu0: host network" in judged(server().changed("networkMode", "host"))


def test_the_admin_page_is_neither_published_nor_open_to_its_networks() -> None:
    published = front_end().changed("ports[1].internal", 9901.0)
    assert "127.0.0.1:9902 -> 9901: Envoy's admin page is published" in judged(published)
    elsewhere = front_end().props["uploads"][0]["content"].replace("9901", "9911")
    moved = front_end().changed("uploads[0].content", elsewhere).changed("ports[1].internal", 9911.0)
    assert "127.0.0.1:9902 -> 9911: Envoy's admin page is published" in judged(moved)
    assert "admin: 0.0.0.0:9901: all on its networks reach" in judged(opened(front_end()))
    assert "all on its networks reach" in judged(opened(front_end()).labelled(exempt=RULE))


def opened(declared: Declared) -> Declared:
    """A copy in which the admin page of its first upload listens on all addresses."""
    text = declared.props["uploads"][0]["content"]
    return declared.changed("uploads[0].content", text.replace("127.0.0.1", EVERYWHERE))


def test_the_admin_page_of_what_we_deploy_is_judged_where_its_bootstrap_is_published(deploy: Deploy) -> None:
    made = {one.name: one for one in containers(deploy, stacks.one_node())}
    assert judged(*made.values()) == ""
    publishing = "gpu-01-envoy-config-publisher"
    [found] = violations(RULE, *{**made, publishing: opened(made[publishing])}.values())
    assert found.resource == publishing
    assert ".yaml: admin: 0.0.0.0:9901: all on its networks reach" in found.message
    proxy = made["gpu-01-envoy-proxy"].changed("ports[2].internal", float(ADMIN_PORT))
    assert "127.0.0.1:9902 -> 9901: Envoy's admin page is published" in judged(proxy)


def test_the_admin_page_of_a_config_map_is_judged() -> None:
    made = declared(settings(four_gpus()))
    assert judged(*made) == ""
    [boot] = [one for one in made if one.name == "envoy-bootstrap"]
    [name] = boot.props["data"]
    open_to_all = boot.props["data"][name].replace("127.0.0.1", EVERYWHERE)
    [found] = violations(RULE, boot.changed("data", {name: open_to_all}))
    assert f"{name}: admin: 0.0.0.0:9901: all on its networks reach" in found.message


def test_in_prod_metrics_of_what_we_deploy_stay_on_the_loopback(deploy: Deploy) -> None:
    made = {one.name: one for one in containers(deploy, stacks.one_node())}
    bad = made["gpu-01-envoy-proxy"].changed("ports[2].ip", "10.20.0.11")
    assert "10.20.0.11:9902 -> 9902: metrics are not for clients" in judged(bad)
    assert judged(bad, environment="staging") == ""
    assert judged(bad.labelled(exempt=RULE)) == ""


def test_a_service_leads_to_no_page_of_envoys_own() -> None:
    made = {one.name: one for one in declared(settings(changed(four_gpus(), "front_end", BALANCER)))}
    own = made["envoy-service"]
    assert judged(*made.values()) == ""
    for target in ("admin", 9901.0):
        to_admin = own.changed("spec.ports[0].targetPort", target)
        assert "spec.ports[0].targetPort" in judged(to_admin, environment="local")
        assert "Envoy's admin page is published" in judged(to_admin, environment="local")
    bare = own.changed("spec.ports[0]", {"port": 9901.0})
    assert "spec.ports[0].port: 9901: Envoy's admin page is published" in judged(bare)
    inside = own.changed("spec.type", "ClusterIP").changed("spec.ports[0].targetPort", "admin")
    assert judged(inside) == ""
    for target in ("metrics", 9902.0):
        to_metrics = own.changed("spec.ports[0].targetPort", target)
        assert "metrics are not for clients" in judged(to_metrics)
        assert judged(to_metrics, environment="staging") == ""
        assert judged(to_metrics.changed("metadata.labels", {"tf-serving.exempt": RULE})) == ""


NARROWING = [
    ("service.beta.kubernetes.io/azure-load-balancer-internal", "true", True),
    ("service.beta.kubernetes.io/azure-load-balancer-internal", "false", False),
    ("service.beta.kubernetes.io/aws-load-balancer-scheme", "internal", True),
    ("service.beta.kubernetes.io/aws-load-balancer-scheme", "internet-facing", False),
    ("networking.gke.io/load-balancer-type", "Internal", True),
    ("service.beta.kubernetes.io/load-balancer-source-ranges", "10.0.0.0/8", True),
    ("service.beta.kubernetes.io/load-balancer-source-ranges", "", False),
    ("service.beta.kubernetes.io/aws-load-balancer-eip-allocations", "eipalloc-1", True),
    ("metallb.io/loadBalancerIPs", "10.0.0.9", True),
    ("service.beta.kubernetes.io/azure-pip-name", "serving", True),
    ("example.com/cost-centre", "ml", False),
]


@pytest.mark.parametrize(("name", "value", "accepted"), NARROWING)
def test_in_prod_a_balancer_says_who_may_connect_or_where(name: str, value: str, accepted: bool) -> None:
    own = {"service": "LoadBalancer", "service_annotations": {name: value}}
    config = changed(four_gpus(), "front_end", own)
    [made] = [one for one in declared(settings(in_staging(config))) if one.name == "envoy-service"]
    assert ("in prod it says who may connect" not in judged(made)) == accepted
    told = [problem.path for problem in problems(config | {"environment": "prod"})]
    assert ("front_end.source_ranges" not in told) == accepted
    assert judged(made, environment="staging") == ""
    assert judged(made.changed("spec.loadBalancerIP", "10.0.0.9")) == ""
    assert judged(made.changed("spec.loadBalancerSourceRanges", ["10.0.0.0/8"])) == ""


@pytest.mark.parametrize("text", ["admin: [", "admin: 5", "no admin", "- admin\n", "admin: {address: {}}"])
def test_a_file_that_is_no_bootstrap_is_passed_over(text: str) -> None:
    assert judged(front_end().changed("uploads[0].content", text)) == ""


@pytest.mark.parametrize("value", ["true", "1", ""])
def test_the_profiler_is_off(value: str) -> None:
    assert "gpu0: --enable_profiler:" in judged(server().changed("command[7]", f"--enable_profiler={value}"))
    assert "gpu0: --enable_profiler: unset" in judged(server().without("command[7]"))


@pytest.mark.parametrize(
    ("path", "where"), [("ports", "ports"), ("ports[0]", "ports[0]"), ("ports[0].ip", "ports[0].ip")]
)
def test_ports_that_are_not_known_in_preview_are_refused_by_resource(path: str, where: str) -> None:
    found = messages(RULE, front_end().changed(path, UNKNOWN))
    assert f"Published port of envoy is not known in preview: {where}" in found[0]


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_only_the_front_ends_service_opens_a_way_in(kind: str) -> None:
    assert judged(service(), deployment()) == ""
    assert f"service: spec.type: {kind}: only the front end is reached" in judged(service(kind, pool="main"))
    of_front_end = judged(service(kind, role="front-end"))
    said = "it says who may connect" if kind == "LoadBalancer" else "on all addresses of all nodes"
    assert said in of_front_end
    assert judged(service(kind, role="front-end"), environment="staging") == ""


def test_a_host_port_of_a_pod_is_refused() -> None:
    port = {"containerPort": 8501.0, "hostPort": 8501.0}
    bad = deployment().changed("spec.template.spec.containers[0].ports", [port])
    assert "main/server: spec.template.spec.containers[0].ports[0].hostPort: all addresses:8501" in judged(
        bad
    )


def test_what_only_looks_like_a_front_end_is_judged_as_what_it_is() -> None:
    bootstrap = opened(front_end()).props["uploads"]
    assert judged(exporter().changed("uploads", bootstrap)) == ""
    assert "all on its networks reach" in judged(server().changed("uploads", bootstrap).labelled(exempt=RULE))
    assert judged(exporter().changed("networkMode", "host")) == ""


def test_the_fix_for_what_is_no_server_names_the_label() -> None:
    said = judged(exporter().without("labels"))
    assert f"127.0.0.1, and the label tf-serving.exempt: {RULE}" in said


def test_a_profiler_that_may_be_set_in_an_unknown_part_is_not_called_unset() -> None:
    [found] = messages(RULE, server().changed("command[7]", UNKNOWN))
    assert "Arguments of gpu0 is not known in preview: command[7]" in found
    assert "gpu0: --enable_profiler: true: it" in judged(
        server().changed("command[7]", "--enable_profiler=true")
    )


def test_a_kind_of_service_that_is_not_known_is_refused() -> None:
    assert "Type of service service is not known" in judged(service().changed("spec.type", UNKNOWN))


def test_an_external_address_opens_a_way_in_whatever_the_kind() -> None:
    assert "only the front end is reached" in judged(service().changed("spec.externalIPs", ["203.0.113.1"]))
    named = service(role="front-end").changed("spec.externalIPs", ["203.0.113.1"])
    assert judged(named) == ""


@pytest.mark.parametrize(("address", "inside"), [("localhost", True), ("gpu-01.example.com", False)])
def test_of_names_only_localhost_is_the_loopback(address: str, inside: bool) -> None:
    assert (judged(exporter().changed("ports[0].ip", address)) == "") == inside
