"""Constrained types: each rule, with what it refuses and what comes close and is accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from components.types import (
    PATTERN_WORDS,
    SLOT_PART,
    Base64Url,
    ConfigKey,
    CpuSet,
    Driver,
    Endpoint,
    FolderPath,
    GpuId,
    GpuResource,
    HeaderName,
    HeaderValue,
    HostName,
    ImageReference,
    Label,
    MigId,
    ModelName,
    ModelPath,
    ObjectName,
    Owner,
    QualifiedName,
    RawFile,
    RestPath,
    Slug,
    format_cpus,
    parse_cpus,
)

TYPES = {
    "slug": Slug,
    "model name": ModelName,
    "label": Label,
    "owner": Owner,
    "gpu": GpuId,
    "mig": MigId,
    "folder": FolderPath,
    "file": RawFile,
    "image": ImageReference,
    "host": HostName,
    "object": ObjectName,
    "qualified name": QualifiedName,
    "GPU resource": GpuResource,
    "header": HeaderName,
    "header value": HeaderValue,
    "config key": ConfigKey,
    "base64url": Base64Url,
    "REST path": RestPath,
    "driver": Driver,
    "endpoint": Endpoint,
    "path": ModelPath,
    "cpus": CpuSet,
}
UUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
DIGEST = "@sha256:" + "0f" * 32

ACCEPTED = [
    ("object", "gpu-cluster"),
    ("object", "0"),
    ("qualified name", "nvidia.com/gpu.product"),
    ("qualified name", "dedicated"),
    ("GPU resource", "nvidia.com/gpu"),
    ("GPU resource", "nvidia.com/mig-1g.10gb"),
    ("GPU resource", "nvidia.com/gpu.shared"),
    ("slug", "a"),
    ("slug", "gpu-01"),
    ("slug", "a" * 32),
    ("model name", "half_plus_two"),
    ("model name", "ResNet.v1-5"),
    ("model name", "3d"),
    ("model name", "m" * 63),
    ("label", "canary_2"),
    ("owner", "ml-platform"),
    ("owner", "Vision_2.eu"),
    ("owner", "o" * 63),
    ("gpu", f"GPU-{UUID}"),
    ("mig", f"MIG-{UUID}"),
    ("mig", f"MIG-GPU-{UUID}/3/0"),
    ("config key", "tls_private_key"),
    ("base64url", "AQAB"),
    ("header value", "hot"),
    ("header value", "Bearer a.b-c"),
    ("REST path", "/v1/models/resnet"),
    ("REST path", "/v1/models/resnet:classify"),
    ("REST path", "/v1/models/resnet/versions/3:"),
    ("header", "x-user-id"),
    ("header", "authorization"),
    ("folder", "/etc/docker/certs"),
    ("folder", "~/.docker/gpu-01"),
    ("folder", "./certs"),
    ("file", "./files/models.config"),
    ("file", "models.config"),
    ("image", "tensorflow/serving:2.14.1-gpu"),
    ("image", f"tensorflow/serving:2.14.1-gpu{DIGEST}"),
    ("image", "registry.example.com:5000/team/serving:2.14.1-gpu"),
    ("image", "serving:latest"),
    ("host", "gpu-01"),
    ("host", "gpu-01.example.com"),
    ("host", "10.0.0.1"),
    ("driver", "535.54"),
    ("driver", "535.129.03"),
    ("endpoint", "default"),
    ("endpoint", "unix:///run/docker.sock"),
    ("endpoint", "ssh://gpu-01"),
    ("endpoint", "tcp://gpu-01:2376"),
    ("endpoint", "tcp://gpu-01:65535"),
    ("endpoint", "ssh://svc_deploy@gpu-01.example.com:2222"),
    ("path", "/srv/models/resnet50"),
    ("path", "./models/resnet50"),
    ("path", "/srv/models/2024/resnet50"),
    ("path", "/srv/models/v1"),
    ("path", "/srv/models/my model"),
    ("path", "/srv/a..b"),
    ("path", "/srv/variables"),
]
REFUSED = [
    ("object", "a" * 64),
    ("object", "a.b"),
    ("object", "-a"),
    ("qualified name", "a/b/c"),
    ("qualified name", "/a"),
    ("GPU resource", "gpu"),
    ("GPU resource", "nvidia.com/"),
    ("slug", ""),
    ("slug", "1a"),
    ("slug", "-a"),
    ("slug", "a-"),
    ("slug", "A"),
    ("slug", "a_b"),
    ("slug", "a" * 33),
    ("slug", "a\n"),
    ("model name", "a/b"),
    ("model name", "a:predict"),
    ("model name", "a b"),
    ("model name", "-a"),
    ("model name", "m" * 64),
    ("model name", "m\n"),
    ("owner", "me@example.com"),
    ("owner", "-ml"),
    ("owner", "o" * 64),
    ("label", "can-ary"),
    ("label", ""),
    ("gpu", "0"),
    ("gpu", "all"),
    ("gpu", "0,1"),
    ("gpu", UUID),
    ("gpu", f"GPU-{UUID[:-1]}"),
    ("gpu", f"GPU-{UUID.upper()}"),
    ("gpu", f"GPU-{UUID},GPU-{UUID}"),
    ("gpu", f"MIG-{UUID}"),
    ("mig", f"GPU-{UUID}"),
    ("mig", f"MIG-GPU-{UUID}"),
    ("mig", "0:1"),
    ("folder", "certs"),
    ("folder", "~root/certs"),
    ("folder", "/a b"),
    ("file", "/etc/models.config"),
    ("file", "a b"),
    ("file", ""),
    ("image", "tensorflow/serving"),
    ("image", f"tensorflow/serving{DIGEST}"),
    ("image", f"tensorflow/serving:2.14.1-gpu{DIGEST[:-1]}"),
    ("image", "Tensorflow/serving:2.14.1-gpu"),
    ("image", "tensorflow/serving:2.14.1-gpu "),
    ("host", "gpu_01"),
    ("host", "http://gpu-01"),
    ("host", "gpu-01:8080"),
    ("host", "gpu-01."),
    ("host", ""),
    ("driver", "535"),
    ("driver", "535.129.03-server"),
    ("driver", "12.2"),
    ("endpoint", "gpu-01"),
    ("endpoint", "ssh://gpu-01:0"),
    ("endpoint", "ssh://deploy@gpu-01:65536"),
    ("endpoint", "tcp://gpu-01:70000"),
    ("endpoint", "ssh://gpu-01:ssh"),
    ("endpoint", "ssh://-oProxyCommand"),
    ("endpoint", "ssh://-l@gpu-01"),
    ("endpoint", "tcp://deploy@gpu-01:2376"),
    ("endpoint", "tcp://gpu-01:2376/v1"),
    ("endpoint", "unix://run/docker.sock"),
    ("endpoint", "ssh://user:word@gpu-01"),
    ("endpoint", "ssh://gpu-01/path"),
    ("endpoint", "Default"),
]
REFUSED_PATHS = {
    "srv/models/ranker": "give an absolute path of the node, or ./… in this project",
    "~/models": "give an absolute path of the node",
    "": "give an absolute path of the node",
    "s3://bucket/models": "models are read from a folder of the node",
    "gs://bucket/models": "models are read from a folder of the node",
    "/srv/a:b": "a path that is mounted cannot hold ':'",
    "/srv/a\nb": "a path that is mounted cannot hold ':' or a control character",
    "/srv/a\tb": "a path that is mounted cannot hold ':' or a control character",
    "/srv/a\0b": "a path that is mounted cannot hold ':' or a control character",
    "/srv/../etc": "'..' is not accepted",
    "/srv/..": "'..' is not accepted",
    "./../m": "'..' is not accepted",
    "/srv/models/m/1": "give the folder that holds the version folders, not version 1 itself",
    "/srv/models/m/001/": "give the folder that holds the version folders, not version 001 itself",
    "/srv/models/m/7/variables": "give the folder that holds the version folders, not version 7 itself",
    "/": "give the model's own folder, not the root of the node",
    "//": "give the model's own folder, not the root of the node",
    "./": "give the model's own folder, not this whole project",
    "./.": "give the model's own folder, not this whole project",
}


def validate(kind: str, text: object) -> object:
    return TypeAdapter[object](TYPES[kind]).validate_python(text)


@pytest.mark.parametrize(("kind", "text"), ACCEPTED)
def test_what_the_rule_allows_is_kept_as_it_is(kind: str, text: str) -> None:
    assert validate(kind, text) == text


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_what_only_looks_right_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ValidationError):
        validate(kind, text)


@pytest.mark.parametrize(("path", "reason"), REFUSED_PATHS.items())
def test_a_path_that_cannot_be_mounted_is_refused_with_the_reason(path: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        validate("path", path)
    assert reason in str(caught.value.errors()[0]["ctx"]["error"])


def test_a_slash_at_the_end_of_a_path_does_not_matter() -> None:
    assert validate("path", "/srv/models/resnet50/") == "/srv/models/resnet50"


def test_every_pattern_is_described_in_words() -> None:
    with_pattern = set(TYPES) - {"path", "cpus"}
    assert len(PATTERN_WORDS) == len(with_pattern | {SLOT_PART.pattern})
    assert all(words and "^" not in words for words in PATTERN_WORDS.values())


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", {0}),
        ("0-3", {0, 1, 2, 3}),
        ("0-1,4-5", {0, 1, 4, 5}),
        ("3,1", {1, 3}),
        ("7-7", {7}),
        ("0-2,1-3", {0, 1, 2, 3}),
        (" 0 , 2 ", {0, 2}),
    ],
)
def test_a_cpu_set_is_read_as_linux_reads_it(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", ",", "0,", "a", "-1", "0-", "1-2-3", "0:1", "0x1", "1.5", "12345"])
def test_what_is_no_cpu_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="numbers and ranges, such as 0-15,64-79"):
        parse_cpus(text)


def test_a_range_that_runs_backwards_is_named() -> None:
    with pytest.raises(ValueError, match="the range 3-1 runs backwards"):
        parse_cpus("0,3-1")


def test_a_cpu_set_is_written_the_way_the_kernel_prints_it() -> None:
    assert validate("cpus", "79,3,0,1,2,64-78") == "0-3,64-79"


@given(st.frozensets(st.integers(0, 9999), min_size=1))
def test_a_written_cpu_set_reads_back_as_the_same_cpus(cpus: frozenset[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus


PARTS = st.one_of(
    st.integers(0, 300).map(str),
    st.tuples(st.integers(0, 300), st.integers(0, 20)).map(lambda ends: f"{ends[0]}-{ends[0] + ends[1]}"),
)


@given(st.lists(PARTS, min_size=1).map(",".join))
def test_formatting_what_was_parsed_is_stable(text: str) -> None:
    once = format_cpus(parse_cpus(text))
    assert format_cpus(parse_cpus(once)) == once
