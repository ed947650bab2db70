"""The data file: what each release of the server can do, and what tags and versions mean."""

import pytest

from components.facts import facts, is_gpu_image, server_version, version_number

# Counted in main.cc at each tag; 2.10, which the file leaves out, had 42.
FLAG_COUNTS = {
    "2.11.0": 43,
    "2.11.1": 43,
    "2.12.1": 43,
    "2.13.0": 43,
    "2.14.1": 43,
    "2.15.1": 46,
    "2.16.1": 46,
    "2.17.1": 46,
    "2.18.0": 47,
    "2.19.0": 48,
    "2.19.1": 48,
    "2.20.0": 48,
}


@pytest.mark.parametrize(("version", "count"), FLAG_COUNTS.items())
def test_a_release_has_the_flags_that_its_source_declares(version: str, count: int) -> None:
    assert len(facts().flags_of(version)) == count


@pytest.mark.parametrize(
    ("flag", "absent", "present"),
    [
        ("enable_grpc_healthcheck_service", "2.14.1", "2.15.1"),
        ("mixed_precision", "2.14.1", "2.15.1"),
        ("skip_initialize_tpu", "2.14.1", "2.15.1"),
        ("xla_gpu_compilation_enabled", "2.17.1", "2.18.0"),
        ("enable_serialization_as_tensor_content", "2.18.0", "2.19.0"),
    ],
)
def test_a_newer_flag_is_absent_before_its_release(flag: str, absent: str, present: str) -> None:
    assert flag not in facts().flags_of(absent)
    assert flag in facts().flags_of(present)


@pytest.mark.parametrize(
    ("version", "cuda", "tensorrt", "xla_gpu"),
    [
        ("2.11.1", "11.2", "7.2.2", False),
        ("2.14.1", "11.8", "8.4.3", False),
        ("2.15.1", "12.2", "8.6.1", False),
        ("2.18.0", "12.2", None, True),
        ("2.20.0", "12.5", None, True),
    ],
)
def test_a_release_carries_the_gpu_software_of_its_image(
    version: str, cuda: str, tensorrt: str | None, xla_gpu: bool
) -> None:
    release = facts().release(version)
    assert release is not None
    assert (release.cuda, release.tensorrt, release.xla_gpu) == (cuda, tensorrt, xla_gpu)


def test_gpu_xla_comes_with_the_flag_that_turns_it_on() -> None:
    for version in facts().versions():
        release = facts().release(version)
        assert release is not None
        assert release.xla_gpu == ("xla_gpu_compilation_enabled" in facts().flags_of(version)), version


def test_versions_are_listed_once_and_oldest_first() -> None:
    listed = facts().versions()
    assert listed == sorted(set(listed), key=version_number)


def test_a_version_that_was_never_released_is_not_among_the_known_and_its_substitute_is() -> None:
    for missing, substitute in facts().never_released.items():
        assert facts().release(missing) is None
        assert facts().release(substitute) is not None


def test_every_flag_starts_with_a_known_release_or_was_always_there() -> None:
    assert {flag.since for flag in facts().flags.values()} - {None} <= set(facts().versions())


def test_a_default_has_the_type_that_its_flag_declares() -> None:
    python_type: dict[str, type | tuple[type, ...]] = {
        "int": int,
        "float": (int, float),
        "bool": bool,
        "string": str,
    }
    for name, flag in facts().flags.items():
        if flag.default is not None:
            assert isinstance(flag.default, python_type[flag.type]), name
            assert isinstance(flag.default, bool) == (flag.type == "bool"), name


def test_versions_compare_as_numbers() -> None:
    assert version_number("535.54.03") > version_number("535.9.1")
    assert version_number("2.9.0") < version_number("2.14.1")
    assert version_number("450.80.02") == version_number("450.80.2")


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("tensorflow/serving:2.14.1-gpu", "2.14.1"),
        ("tensorflow/serving:2.14.1", "2.14.1"),
        ("tensorflow/serving:2.14.1-devel-gpu", "2.14.1"),
        ("tensorflow/serving:2.14.1-gpu@sha256:" + "0f" * 32, "2.14.1"),
        ("registry.example.com:5000/serving:2.14.1-gpu", "2.14.1"),
        ("registry:1.2.3/serving:2.14.1-gpu", "2.14.1"),
        ("tensorflow/serving:latest-gpu", None),
        ("tensorflow/serving:2.14-gpu", None),
        ("tensorflow/serving:v2.14.1-gpu", None),
        ("registry:1.2.3/serving:latest-gpu", None),
        ("tensorflow/serving:2.14.10", "2.14.10"),
        ("tensorflow/serving:2.14.1.2", "2.14.1"),
    ],
)
def test_the_version_is_read_from_the_tag(image: str, version: str | None) -> None:
    assert server_version(image) == version


@pytest.mark.parametrize(
    ("image", "gpu"),
    [
        ("tensorflow/serving:2.14.1-gpu", True),
        ("tensorflow/serving:2.14.1-gpu@sha256:" + "0f" * 32, True),
        ("tensorflow/serving:2.14.1", False),
        ("tensorflow/serving-gpu:2.14.1", False),
        ("tensorflow/serving:latest", False),
    ],
)
def test_only_a_gpu_tag_has_gpu_code(image: str, gpu: bool) -> None:
    assert is_gpu_image(image) is gpu
