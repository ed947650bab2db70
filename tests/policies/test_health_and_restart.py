"""health-and-restart: what is asked, how long loading may take, restart and stop."""

from dataclasses import replace

import pytest

from components.probes import serving_probe
from tests.kubernetes_stacks import four_gpus, settings
from tests.policies.good import UNKNOWN, Declared, deployment, exporter, front_end, publisher, server
from tests.policies.judge import messages, violations
from tests.policies.test_kubernetes_stacks import declared

RULE = "health-and-restart"
POD = "spec.template.spec"
CONTAINER = f"{POD}.containers[0]"


def judged(*declared: Declared, **config: object) -> str:
    return "\n".join(messages(RULE, *declared, **config))  # type: ignore[arg-type]


def asking(*words: str) -> Declared:
    return server().changed("healthcheck.tests", list(words))


def test_good_containers_and_whatever_else_runs_are_accepted() -> None:
    assert violations(RULE, server(), front_end(), exporter(), publisher(), deployment()) == []


@pytest.mark.parametrize("tests", [None, ["NONE"]])
def test_a_server_has_a_health_check(tests: list[str] | None) -> None:
    bad = server().without("healthcheck") if tests is None else server().changed("healthcheck.tests", tests)
    [found] = violations(RULE, bad)
    assert found.resource == "gpu0"
    assert "gpu0: healthcheck: unset: nobody asks whether its model is loaded" in found.message
    assert "Fix: ask for its models: /v1/models/<model>/metadata" in found.message


@pytest.mark.parametrize(
    "words",
    [
        ("CMD-SHELL", "curl -f http://localhost:8501/v1/models/resnet50/metadata || exit 1"),
        ("CMD-SHELL", "curl -s localhost:8501/v1/models/resnet50/versions/3/metadata"),
        ("CMD-SHELL", "curl -s localhost:8501/v1/models/resnet50/labels/stable/metadata"),
        ("CMD-SHELL", "curl -s localhost:8501/v1/models/resnet50:predict -d @/probe.json"),
        ("CMD-SHELL", "curl -s localhost:8501/v1/models/resnet50 | grep AVAILABLE"),
    ],
)
def test_a_check_that_fails_while_a_model_is_not_loaded_is_accepted(words: tuple[str, ...]) -> None:
    assert judged(asking(*words)) == ""


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("CMD-SHELL", "curl -f http://localhost:8501/v1/models/resnet50"), "/v1/models/resnet50"),
        (("CMD", "ask", "/v1/models/resnet"), "/v1/models/resnet"),
        (("CMD", "ask", "/v1/models/resnet5/metadata"), "/v1/models/resnet5/metadata"),
        (("CMD", "ask", "/v1/models/resnet50x/metadata"), "/v1/models/resnet50x/metadata"),
        (("CMD-SHELL", "exec 3<>/dev/tcp/127.0.0.1/8500"), "CMD-SHELL exec 3<>/dev/tcp/127.0.0.1/8500"),
        (("CMD", "true"), "CMD true"),
    ],
)
def test_a_check_that_passes_while_a_model_is_not_loaded_is_refused(
    words: tuple[str, ...], shown: str
) -> None:
    assert f"gpu0: healthcheck: {shown}: does not tell whether resnet50 is loaded" in judged(asking(*words))


def test_the_check_of_our_own_servers_which_reads_a_list_is_accepted() -> None:
    assert judged(asking(*serving_probe(8501, "/config/serving"))) == ""


def test_a_check_that_reads_a_list_and_asks_for_what_answers_in_every_state_is_refused() -> None:
    words = [word.replace("/metadata", "") for word in serving_probe(8501, "/config/serving")]
    assert "does not tell whether resnet50 is loaded" in judged(asking(*words))


@pytest.mark.parametrize(("listed", "enough"), [("resnet50\n", True), ("bert\n", False)])
def test_a_list_that_is_seen_names_the_model(listed: str, enough: bool) -> None:
    checked = asking(*serving_probe(8501, "/etc/serving"))
    found = judged(checked.changed("uploads", [{"file": "/etc/serving", "content": listed}]))
    assert ("does not tell whether resnet50 is loaded" in found) is not enough


def test_each_model_of_a_server_is_asked_for() -> None:
    listed = 'model_config_list { config { name: "resnet50" } config { name: "bert" } }'
    found = judged(server().changed("uploads[0].content", listed))
    assert "does not tell whether bert is loaded" in found
    assert "whether resnet50" not in found


def test_where_no_model_is_named_any_models_page_will_do() -> None:
    unnamed = server().changed("uploads[0].content", "").labelled(models="")
    assert judged(unnamed) == ""
    assert "whether <model> is loaded" in judged(unnamed.changed("healthcheck.tests", ["CMD", "true"]))
    reading = unnamed.changed("healthcheck.tests", list(serving_probe(8501, "/etc/serving")))
    assert judged(reading.changed("uploads[2]", {"file": "/etc/serving", "content": "bert\n"})) == ""


@pytest.mark.parametrize(("start", "enough"), [("9m45s", True), ("9m44s", False), (None, False)])
def test_the_check_bears_with_a_server_that_loads(start: str | None, enough: bool) -> None:
    # Three failures, 5 s apart, come on top.
    bad = (
        server().without("healthcheck.startPeriod")
        if start is None
        else server().changed("healthcheck.startPeriod", start)
    )
    found = judged(bad)
    assert (found == "") == enough
    seconds = "0" if start is None else "584"
    assert enough or f"healthcheck.startPeriod: {seconds} s: its load time is 600 s" in found
    assert enough or "Fix: set startPeriod to 600 s or more" in found


@pytest.mark.parametrize(
    ("path", "value", "start"),
    [
        ("healthcheck.interval", None, "8m30s"),  # 30 s by default
        ("healthcheck.retries", None, "9m45s"),  # 3 by default
        ("healthcheck.retries", 0.0, "9m45s"),  # which 0 stands for
        ("healthcheck.retries", 1.0, "9m55s"),
    ],
)
def test_what_a_check_leaves_out_is_the_engines(path: str, value: object, start: str) -> None:
    check = server().without(path) if value is None else server().changed(path, value)
    assert judged(check.changed("healthcheck.startPeriod", start)) == ""
    a_second_less = f"{start.removesuffix('s')[:-1]}{int(start[-2]) - 1}s" if start[-2] != "0" else "8m29s"
    assert "healthcheck.startPeriod" in judged(check.changed("healthcheck.startPeriod", a_second_less))


def test_up_waits_for_a_server_as_long_as_it_loads() -> None:
    assert "gpu0: waitTimeout: 599 s: its load time is 600 s" in judged(
        server().changed("waitTimeout", 599.0)
    )
    assert "gpu0: waitTimeout: 60 s: its load time is 600 s" in judged(server().without("waitTimeout"))
    assert "gpu0: wait: unset: `up` goes on" in judged(server().without("wait"))
    assert "gpu0: wait: unset: `up` goes on" in judged(server().changed("wait", False))


def test_a_load_time_that_nobody_declares_is_a_setting() -> None:
    quick = server().without("labels").changed("waitTimeout", 120.0)
    assert "waitTimeout: 120 s: its load time is taken as 300 s" in judged(quick)
    assert judged(quick, assumedLoadS=120.0) == ""


@pytest.mark.parametrize("restart", [None, "no", "on-failure"])
@pytest.mark.parametrize("declared", [server(), front_end()], ids=lambda one: one.name)
def test_servers_and_the_front_end_come_back(declared: Declared, restart: str | None) -> None:
    bad = declared.without("restart") if restart is None else declared.changed("restart", restart)
    found = judged(bad)
    assert f"{declared.name}: restart: {restart or 'unset'}: it stays down" in found
    assert "Fix: set restart to unless-stopped" in found
    assert judged(declared.changed("restart", "always")) == ""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("stopTimeout", 0.0, "stopTimeout: 0: it is killed at once"),
        ("destroyGraceSeconds", 0.0, "destroyGraceSeconds: 0: the provider kills it at once"),
        ("destroyGraceSeconds", None, "destroyGraceSeconds: unset: the provider kills it at once"),
        ("destroyGraceSeconds", -1.0, "destroyGraceSeconds: -1: the provider kills it at once"),
        ("stopSignal", "SIGKILL", "stopSignal: SIGKILL: requests in flight are cut off"),
    ],
)
@pytest.mark.parametrize("declared", [server(), front_end()], ids=lambda one: one.name)
def test_what_is_in_flight_ends_before_a_container_does(
    declared: Declared, path: str, value: object, said: str
) -> None:
    assert f"{declared.name}: {said}" in judged(declared.changed(path, value))


@pytest.mark.parametrize("seconds", [1.0, None])
def test_a_second_is_time_and_the_engines_ten_are_too(seconds: float | None) -> None:
    for one in (server(), front_end()):
        stopping = one.without("stopTimeout") if seconds is None else one.changed("stopTimeout", seconds)
        assert judged(stopping) == ""


def test_a_server_gets_the_signal_to_stop() -> None:
    for shell in ("/bin/bash", "sh", "/start.sh"):
        assert f"entrypoints: {shell}: bash" in judged(server().changed("entrypoints", [shell, "-c"]))
    assert judged(front_end().changed("entrypoints", ["/bin/bash", "-c"])) == ""
    assert "gpu0: init: unset: as process 1" in judged(server().without("init"))
    assert "gpu0: init: unset: as process 1" in judged(server().changed("init", False))
    assert "gpu0: entrypoints: the image's script: bash is between" in judged(server().without("entrypoints"))
    script = server().changed("entrypoints", ["/usr/bin/tf_serving_entrypoint.sh"])
    assert "entrypoints: /usr/bin/tf_serving_entrypoint.sh: bash" in judged(script)
    assert judged(front_end().without("init")) == ""  # Envoy handles the signal itself


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("healthcheck", "Health check of gpu0 is not known in preview: healthcheck"),
        ("healthcheck.tests[5]", "Health check of gpu0 is not known in preview: healthcheck.tests[5]"),
        ("healthcheck.startPeriod", "Health check of gpu0 is not known in preview: healthcheck.startPeriod"),
        ("waitTimeout", "Health check of gpu0 is not known in preview: waitTimeout"),
        ("restart", "Restart policy of gpu0 is not known in preview: restart"),
        ("destroyGraceSeconds", "Stop setting of gpu0 is not known in preview: destroyGraceSeconds"),
    ],
)
def test_what_is_not_known_in_preview_is_refused_by_resource(path: str, said: str) -> None:
    [found] = violations(RULE, server().changed(path, UNKNOWN))
    assert found.resource == "gpu0"
    assert said in found.message


@pytest.mark.parametrize(
    "path",
    [
        "readinessProbe.httpGet.path",
        "readinessProbe.httpGet",
        "readinessProbe",
        "startupProbe",
        "startupProbe.failureThreshold",
    ],
)
def test_of_a_probe_that_is_not_known_nothing_else_is_said(path: str) -> None:
    [found] = messages(RULE, deployment().changed(f"{CONTAINER}.{path}", UNKNOWN))
    assert f"Health check of main/server is not known in preview: {CONTAINER}.{path}" in found


def test_a_start_period_that_is_no_duration_is_refused() -> None:
    assert "healthcheck.startPeriod is a text, not a duration" in judged(
        server().changed("healthcheck.startPeriod", "soon")
    )


def test_a_server_is_never_exempt_and_a_front_end_is_by_its_label() -> None:
    assert judged(server().without("restart").labelled(exempt=RULE)) != ""
    assert judged(front_end().without("restart").labelled(exempt=RULE)) == ""


def test_what_runs_before_a_pods_server_has_no_probes() -> None:
    first = {
        "name": "warm-up",
        "image": "tensorflow/serving:2.14.1-gpu",
        "command": ["tensorflow_model_server"],
    }
    assert judged(deployment().changed(f"{POD}.initContainers", [first])) == ""


def test_a_pod_is_ready_only_with_its_model() -> None:
    assert "main/server: readinessProbe: unset" in judged(deployment().without(f"{CONTAINER}.readinessProbe"))
    status = deployment().changed(f"{CONTAINER}.readinessProbe.httpGet.path", "/v1/models/resnet50")
    assert "main/server: readinessProbe: /v1/models/resnet50: does not tell" in judged(status)
    port = deployment().changed(f"{CONTAINER}.readinessProbe", {"tcpSocket": {"port": 8500.0}})
    assert "main/server: readinessProbe: nothing: does not tell" in judged(port)


def test_a_pod_has_time_to_load() -> None:
    short = deployment().changed(f"{CONTAINER}.startupProbe.failureThreshold", 119.0)
    assert "main/server: startupProbe: 595 s: its load time is 600 s; it is ended while it loads" in judged(
        short
    )
    assert judged(deployment().changed(f"{CONTAINER}.startupProbe.failureThreshold", 120.0)) == ""
    alive = deployment().without(f"{CONTAINER}.startupProbe")
    assert judged(alive) == ""  # nothing ends it
    hasty = alive.changed(f"{CONTAINER}.livenessProbe", {"tcpSocket": {"port": 8500.0}})
    assert "main/server: livenessProbe: 30 s: its load time is 600 s" in judged(hasty)


def test_a_rollout_has_time_to_load() -> None:
    late = deployment().changed("spec.progressDeadlineSeconds", 599.0)
    assert "main/server: spec.progressDeadlineSeconds: 599: its load time is 600 s" in judged(late)
    assert judged(deployment().without("spec.progressDeadlineSeconds")) == ""  # 600 by default
    container = {"name": "web", "image": "web:1.0.0"}
    web = deployment("web").changed(f"{POD}.containers", [container]).labelled(role="other")
    assert judged(deployment(), web.changed("spec.progressDeadlineSeconds", 10.0)) == ""


def test_only_a_deployment_has_a_deadline() -> None:
    slow = deployment().without("spec.progressDeadlineSeconds").labelled(load_timeout_s="900")
    slow = slow.changed(f"{CONTAINER}.startupProbe.failureThreshold", 180.0)
    assert "spec.progressDeadlineSeconds: 600: its load time is 900 s" in judged(slow)
    assert judged(replace(slow, type="kubernetes:apps/v1:StatefulSet")) == ""
    pod = Declared(type="kubernetes:core/v1:Pod", name="main", props=slow.props["spec"]["template"])
    assert judged(pod) == ""


def test_a_pod_comes_back_and_stops_with_time() -> None:
    assert "main/server: restartPolicy: Never: it stays down" in judged(
        deployment().changed(f"{POD}.restartPolicy", "Never")
    )
    assert "main/server: terminationGracePeriodSeconds: 0" in judged(
        deployment().changed(f"{POD}.terminationGracePeriodSeconds", 0.0)
    )


def test_a_pods_server_lingers_until_no_request_comes() -> None:
    made = declared(settings(four_gpus()))
    assert judged(*made) == ""
    main = next(replace(one, depends_on=()) for one in made if one.name == "main")
    for bad in (main.without(f"{CONTAINER}.lifecycle"), main.changed(f"{CONTAINER}.lifecycle", {})):
        assert "main/server: lifecycle.preStop: unset: it ends while requests" in judged(bad)
    assert judged(main.changed(f"{CONTAINER}.lifecycle.preStop", {"sleep": {"seconds": 25.0}})) == ""
    assert "Stop setting of main/server is not known in preview" in judged(
        main.changed(f"{CONTAINER}.lifecycle", UNKNOWN)
    )
    envoy = next(one for one in made if one.name == "envoy").without(f"{CONTAINER}.lifecycle")
    assert "preStop" not in judged(replace(envoy, depends_on=()))
