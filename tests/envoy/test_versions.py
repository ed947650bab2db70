"""Versions by header, canaries and mirrors on a real Envoy: what reaches an instance, and what never does."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.envoy.harness import PREDICT, Site, site, wait_for
from tests.envoy.pools import SmallPool
from tests.envoy.spread import paths, users
from tests.simulator.wire import message

pytestmark = pytest.mark.envoy

HEADER = "x-tf-model-version"
LABELLED = {
    "name": "resnet",
    "path": "/srv/models/resnet",
    "versions": {"specific": [3, 4]},
    "labels": {"stable": 3, "canary": 4},
}
SERVICE = "/tensorflow.serving.PredictionService"


def labelled(canary: dict[str, Any] | None = None, **more: Any) -> SmallPool:
    traffic = {"traffic": {"canary": canary}} if canary else {}
    return SmallPool(
        name="vision", instances=2, models=["resnet"], more={"models": [LABELLED], **traffic, **more}
    )


TEXT = SmallPool(name="text", instances=1, models=["bert"])


@pytest.fixture(scope="module")
def two(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(envoy_binary, tmp_path_factory.mktemp("envoy"), [labelled(), TEXT]) as made:
        yield made
        # After an error in the script Envoy passes the request on as it was: to the newest version.
        assert made.stat("http.grpc.lua.executions") > 10
        assert made.stat("http.grpc.lua.errors") == 0


@pytest.fixture(autouse=True)
def _nothing_seen_yet(request: pytest.FixtureRequest) -> None:
    if "two" in request.fixturenames:
        seen(request.getfixturevalue("two"))


def seen(made: Site) -> list[str]:
    """Paths, or gRPC methods and messages, that reached any instance."""
    lines = [line.split(" ") for backend in made.backends.values() for line in backend.seen()]
    return [" ".join(line[:2]) if line[0].startswith("/") else line[1] for line in lines]


def asked(made: Site, path: str, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return made.rest("POST", path, b"{}", named)


@pytest.mark.parametrize(
    ("path", "value", "reaches"),
    [
        ("/v1/models/resnet:predict", "canary", "/v1/models/resnet/labels/canary:predict"),
        ("/v1/models/resnet:classify", "stable", "/v1/models/resnet/labels/stable:classify"),
        ("/v1/models/resnet:regress?a=/b:c", "3", "/v1/models/resnet/versions/3:regress?a=/b:c"),
        ("/v1/models/bert:predict", "17", "/v1/models/bert/versions/17:predict"),
        (
            "/v1/models/bert:classify?q=1",
            "1753600000123456",
            "/v1/models/bert/versions/1753600000123456:classify?q=1",
        ),
        # What the path says wins, whatever the header holds.
        ("/v1/models/resnet/versions/4:predict", "stable", "/v1/models/resnet/versions/4:predict"),
        ("/v1/models/resnet/labels/canary:predict", "no such", "/v1/models/resnet/labels/canary:predict"),
        ("/v1/models/bert/versions/1:predict", "2", "/v1/models/bert/versions/1:predict"),
    ],
)
def test_the_header_names_the_version_unless_the_path_does(
    two: Site, path: str, value: str, reaches: str
) -> None:
    assert asked(two, path, x_tf_model_version=value).status == 200
    assert seen(two) == [reaches]


def test_without_the_header_nothing_is_put_in(two: Site) -> None:
    assert asked(two, "/v1/models/resnet:predict").status == 200
    assert seen(two) == ["/v1/models/resnet:predict"]


@pytest.mark.parametrize("value", ["5", "Canary", "canary ", "", "../x", "3/x", "%33", "stable,canary", "03"])
def test_a_version_that_the_model_has_not_is_refused_with_those_that_it_has(two: Site, value: str) -> None:
    answer = asked(two, "/v1/models/resnet:predict", x_tf_model_version=value)
    if value == "canary ":  # the blank is no part of a header's value
        assert answer.status == 200
        return
    assert answer.status == 400
    assert answer.json() == {
        "error": f"{HEADER}: resnet has no such version or label; accepted: canary, stable, 3, 4"
    }
    assert seen(two) == []


@pytest.mark.parametrize("value", ["stable", "-1", "1.0", "1 2", "9" * 20])
def test_where_no_versions_are_listed_any_number_passes_and_nothing_else(two: Site, value: str) -> None:
    answer = asked(two, "/v1/models/bert:predict", x_tf_model_version=value)
    assert answer.status == 400
    assert answer.json() == {
        "error": f"{HEADER}: bert has no such version or label; accepted: a version's number"
    }
    assert seen(two) == []


def test_the_log_has_the_path_of_the_client_and_that_of_the_server(two: Site) -> None:
    asked(two, "/v1/models/resnet:predict?logged", x_tf_model_version="canary")
    # A client cannot make one up.
    asked(two, "/v1/models/resnet:predict?forged", x_envoy_original_path="/elsewhere")

    def logged(path: str) -> list[str]:
        return [str(line["upstream_path"]) for line in two.log_lines() if line["path"] == path]

    rewritten = "/v1/models/resnet/labels/canary:predict?logged"
    wait_for("the line", lambda: logged("/v1/models/resnet:predict?logged") == [rewritten])
    plain = "/v1/models/resnet:predict?forged"
    wait_for("the other line", lambda: logged(plain) == [plain])


# gRPC


def request(model: str, size: int = 3, **spec: Any) -> bytes:
    """A PredictRequest of some size."""
    content = {"model_spec": {"name": model, **spec}, "output_filter": ["x" * size]}
    return message("tensorflow.serving.PredictRequest", content).SerializeToString()


def understood(made: Site) -> tuple[str, Any]:
    """The method of the one request that was seen, and what a server reads in its message."""
    [line] = seen(made)
    method, text = line.split(" ")
    read = message("tensorflow.serving.PredictRequest", {})
    read.ParseFromString(bytes.fromhex(text))
    return method, read


@pytest.mark.parametrize(
    ("model", "value", "label", "version"),
    [
        ("resnet", "canary", "canary", None),
        ("resnet", "4", "", 4),
        ("bert", "123456789012345", "", 123456789012345),
        ("bert", "0", "", 0),
        ("bert", "128", "", 128),
        ("bert", "0017", "", 17),
        ("bert", str(2**53 + 1), "", 2**53 + 1),
        ("bert", str(2**63 - 1), "", 2**63 - 1),
    ],
)
def test_a_grpc_message_is_given_the_version_of_the_header(
    two: Site, model: str, value: str, label: str, version: int | None
) -> None:
    sent = request(model, signature_name="s")
    two.grpc(PREDICT, sent, [("x-tf-model", model), (HEADER, value)])
    method, read = understood(two)
    assert method == PREDICT
    assert read.model_spec.name == model
    assert read.model_spec.signature_name == "s"
    assert read.output_filter == ["xxx"]
    assert read.model_spec.version_label == label
    assert (read.model_spec.version.value if read.model_spec.HasField("version") else None) == version


@pytest.mark.parametrize("own", [{"version": 3}, {"version_label": "stable"}])
def test_a_version_that_the_client_wrote_into_its_message_wins(two: Site, own: dict[str, Any]) -> None:
    two.grpc(PREDICT, request("resnet", **own), [("x-tf-model", "resnet"), (HEADER, "canary")])
    _, read = understood(two)
    assert (read.model_spec.version.value, read.model_spec.version_label) == (
        own.get("version", 0),
        own.get("version_label", ""),
    )


@pytest.mark.parametrize("size", [0, 200, 20_000, 200_000, 15_000_000])
def test_a_message_of_any_size_arrives_whole(two: Site, size: int) -> None:
    sent = request("resnet", size)
    answer, _ = two.grpc(PREDICT, sent, [("x-tf-model", "resnet"), (HEADER, "canary")])
    added = len(b"\x0a\x08\x22\x06canary")
    assert f'"bytes": {len(sent) + added}'.encode() in answer


def test_without_the_header_a_grpc_message_is_not_touched(two: Site) -> None:
    sent = request("resnet")
    two.grpc(PREDICT, sent, [("x-tf-model", "resnet")])
    assert seen(two) == [f"{PREDICT} {sent.hex()}"]


@pytest.mark.parametrize("method", ["Classify", "Regress", "GetModelMetadata"])
def test_every_method_that_names_a_version_is_given_one(two: Site, method: str) -> None:
    two.grpc(f"{SERVICE}/{method}", request("resnet"), [("x-tf-model", "resnet"), (HEADER, "4")])
    assert understood(two)[1].model_spec.version.value == 4


@pytest.mark.parametrize(
    "path", [f"{SERVICE}/MultiInference", "/tensorflow.serving.ModelService/GetModelStatus"]
)
def test_a_method_that_names_none_is_passed_on_as_it_is(two: Site, path: str) -> None:
    two.grpc(path, b"message", [("x-tf-model", "resnet"), (HEADER, "canary")])
    assert seen(two) == [f"{path} {b'message'.hex()}"]


@pytest.mark.parametrize(
    ("model", "value"), [("resnet", "5"), ("resnet", ""), ("bert", "x"), ("bert", "1" * 20)]
)
def test_a_grpc_request_for_a_version_that_is_not_there_is_told_so(two: Site, model: str, value: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        two.grpc(PREDICT, request(model), [("x-tf-model", model), (HEADER, value)])
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    accepted = {"resnet": "canary, stable, 3, 4", "bert": "a version's number"}[model]
    assert refused.value.details() == (
        f"{HEADER}: {model} has no such version or label; accepted: {accepted}"
    )
    assert seen(two) == []


def test_a_compressed_message_is_refused_rather_than_sent_to_another_version(two: Site) -> None:
    options = [("grpc.default_compression_algorithm", grpc.Compression.Gzip.value)]
    target = f"127.0.0.1:{two.plan.spec.grpc_port}"
    with grpc.insecure_channel(target, options=options) as channel:
        call = channel.unary_unary(PREDICT, request_serializer=None, response_deserializer=None)
        metadata = (("x-tf-model", "resnet"), (HEADER, "canary"))
        with pytest.raises(grpc.RpcError) as refused:
            call(request("resnet", 5000), metadata=metadata, timeout=20)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "compressed" in str(refused.value.details())
    assert seen(two) == []


# Canaries


def share_of(found: Counter[str], begin: str) -> float:
    return 100 * sum(count for path, count in found.items() if path.startswith(begin)) / found.total()


CANARY = "/v1/models/resnet/labels/canary:"
STABLE = "/v1/models/resnet/labels/stable:"


def test_a_sticky_canary_by_label_takes_its_share_of_the_users_and_always_the_same(
    envoy_binary: Path, tmp_path: Path
) -> None:
    ids = users(3000)
    chosen = {}
    for percent in (10, 20):
        (folder := tmp_path / str(percent)).mkdir()
        canary = {"percent": percent, "label": "canary", "sticky": True}
        with site(envoy_binary, folder, [labelled(canary)]) as made:
            first = paths(made, ids)
            assert paths(made, ids[:300]) == {user: first[user] for user in ids[:300]}
            assert set(first.values()) == {f"{CANARY}predict", f"{STABLE}predict"}
            # 3 sigma of 3,000 users are 2.2 %.
            assert abs(share_of(Counter(first.values()), CANARY) - percent) < 2.5
            chosen[percent] = {user for user, path in first.items() if path.startswith(CANARY)}
            # The same users over gRPC, by the message.
            seen(made)
            for user in ids[:30]:
                made.grpc(PREDICT, request("resnet"), [("x-user-id", user)])
                label = understood(made)[1].model_spec.version_label
                assert (label == "canary") == (user in chosen[percent]), user
            # A version in the path or the header is not split.
            user = next(iter(chosen[percent]))
            headers = {"x-user-id": user, HEADER: "stable"}
            assert made.rest("POST", "/v1/models/resnet:predict", b"{}", headers).status == 200
            path = "/v1/models/resnet/versions/3:predict"
            assert made.rest("POST", path, b"{}", {"x-user-id": user}).status == 200
            assert sorted(seen(made)) == [f"{STABLE}predict", path]
            # Who names no user is split by chance.
            nobody = Counter(paths(made, ids[:1500], header="x-nobody").values())
            assert abs(share_of(nobody, CANARY) - percent) < 4
    assert chosen[10] < chosen[20]


def test_a_canary_that_is_not_sticky_takes_its_share_of_the_requests(
    envoy_binary: Path, tmp_path: Path
) -> None:
    with site(envoy_binary, tmp_path, [labelled({"percent": 25, "label": "canary"})]) as made:
        found = Counter(paths(made, ["u"] * 1 + users(2000)).values())
        assert abs(share_of(found, CANARY) - 25) < 4
        seen(made)
        labels: Counter[str] = Counter()
        for _ in range(120):
            made.grpc(PREDICT, request("resnet"))
            labels[understood(made)[1].model_spec.version_label] += 1
        assert set(labels) == {"stable", "canary"}


def test_a_canary_of_nobody_changes_no_request(envoy_binary: Path, tmp_path: Path) -> None:
    canary = {"percent": 0, "label": "newer", "sticky": True}
    with site(envoy_binary, tmp_path, [labelled(canary)]) as made:
        assert set(paths(made, users(50)).values()) == {"/v1/models/resnet:predict"}
        seen(made)
        sent = request("resnet")
        made.grpc(PREDICT, sent, [("x-user-id", "u")])
        assert seen(made) == [f"{PREDICT} {sent.hex()}"]


NEWER = SmallPool(
    name="newer",
    instances=1,
    models=["resnet"],
    more={"models": [{"name": "resnet", "path": "/srv/models/resnet", "versions": {"specific": [5]}}]},
)


def test_a_canary_pool_takes_its_share_and_whoever_names_its_version(
    envoy_binary: Path, tmp_path: Path
) -> None:
    pools = [labelled({"percent": 20, "pool": "newer", "sticky": True}), NEWER]
    with site(envoy_binary, tmp_path, pools) as made:
        newer = made.plan.pool("newer").endpoints[0].name
        ids = users(1000)
        for user in ids:
            made.rest("POST", "/v1/models/resnet:predict", b"{}", {"x-user-id": user})
        taken = len(made.backends[newer].seen())
        assert 150 < taken < 250
        seen(made)
        for path, headers in (
            ("/v1/models/resnet/versions/5:predict", {}),
            ("/v1/models/resnet:predict", {HEADER: "5"}),
        ):
            answer = made.rest("POST", path, b"{}", headers)
            assert (answer.status, answer.served_by) == (200, newer)
        assert set(seen(made)) == {"/v1/models/resnet/versions/5:predict"}
        for path, headers in (
            ("/v1/models/resnet/versions/4:predict", {}),
            ("/v1/models/resnet:predict", {HEADER: "stable"}),
        ):
            answer = made.rest("POST", path, b"{}", headers)
            assert answer.status == 200
            assert answer.served_by != newer
        _, served_by = made.grpc(PREDICT, request("resnet"), [(HEADER, "5")])
        assert served_by == newer
        # No message is changed for a pool: it is chosen beside the message.
        seen(made)
        sent = request("resnet")
        served = {made.grpc(PREDICT, sent, [("x-user-id", user)])[1] for user in ids[:40]}
        assert newer in served
        assert set(seen(made)) == {f"{PREDICT} {sent.hex()}"}


def test_a_mirror_gets_copies_and_its_answers_go_nowhere(envoy_binary: Path, tmp_path: Path) -> None:
    pools = [labelled(traffic={"mirror": {"pool": "newer"}}), NEWER]
    with site(envoy_binary, tmp_path, pools) as made:
        copy = made.plan.pool("newer").endpoints[0].name
        made.backends[copy].behave({"answer": "full"})
        answers = [asked(made, "/v1/models/resnet:predict") for _ in range(20)]
        assert {answer.status for answer in answers} == {200}
        assert copy not in {answer.served_by for answer in answers}
        for _ in range(5):
            assert made.grpc(PREDICT, request("resnet"))[1] != copy

        def copies() -> tuple[int, int]:
            rest, grpc_ = (made.stat(f"cluster.{name}-newer.upstream_rq_total") for name in ("rest", "grpc"))
            return rest, grpc_

        wait_for("25 copies", lambda: copies() == (20, 5))
        # What names a version is not copied: the mirror need not have it.
        assert asked(made, "/v1/models/resnet/versions/3:predict").status == 200
        assert asked(made, "/v1/models/resnet:predict", x_tf_model_version="stable").status == 200
        assert asked(made, "/v1/models/resnet:predict").status == 200
        wait_for("one more copy", lambda: copies() == (21, 5))
