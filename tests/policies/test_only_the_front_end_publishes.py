"""only-the-front-end-publishes: ports, services, Envoy's admin page, the profiler."""

import pytest

from tests.policies.good import UNKNOWN, Declared, deployment, exporter, front_end, publisher, server, service
from tests.policies.judge import messages, violations

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is refused
RULE = "only-the-front-end-publishes"
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
    opened = front_end()
    text = opened.props["uploads"][0]["content"].replace("127.0.0.1", EVERYWHERE)
    assert "admin: 0.0.0.0:9901: all on its networks reach" in judged(
        opened.changed("uploads[0].content", text)
    )


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
    assert of_front_end == "" if kind == "LoadBalancer" else "on all addresses of all nodes" in of_front_end
    assert judged(service(kind, role="front-end"), environment="staging") == ""


def test_a_host_port_of_a_pod_is_refused() -> None:
    port = {"containerPort": 8501.0, "hostPort": 8501.0}
    bad = deployment().changed("spec.template.spec.containers[0].ports", [port])
    assert "main/server: spec.template.spec.containers[0].ports[0].hostPort: all addresses:8501" in judged(
        bad
    )


def test_what_only_looks_like_a_front_end_is_judged_as_what_it_is() -> None:
    bootstrap = front_end().props["uploads"][0]["content"].replace("127.0.0.1", EVERYWHERE)
    other = exporter().changed("uploads", [{"file": "/etc/x.yaml", "content": bootstrap}])
    assert judged(other) == ""
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


@pytest.mark.parametrize(("address", "inside"), [("localhost", True), ("gpu-01.example.com", False)])
def test_of_names_only_localhost_is_the_loopback(address: str, inside: bool) -> None:
    assert (judged(exporter().changed("ports[0].ip", address)) == "") == inside
