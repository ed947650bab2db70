"""The data file: what each release of the server can do, and what tags and versions mean."""

import re

import pytest

from components.facts import GpuModel, Hardware, facts, is_gpu_image, server_version, version_number
from components.pool_settings import Batching
from components.settings import Settings
from components.stack_file import accepted_keys
from components.types import format_cpus, parse_cpus

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


@pytest.mark.parametrize(("name", "card"), facts().gpus.items())
def test_no_profile_of_a_gpu_takes_more_than_the_gpu_has(name: str, card: GpuModel) -> None:
    for profile, size in card.mig.items():
        slices, memory_gb = map(int, re.fullmatch(r"(\d)g\.(\d+)gb", profile).groups())  # type: ignore[union-attr]
        assert size.most * slices <= 7, f"{name} {profile}"
        assert size.most * size.memory_mib <= card.memory_mib, f"{name} {profile}"
        # NVIDIA rounds the name up.
        assert 0.9 * memory_gb * 1000 < size.memory_mib <= memory_gb * 1024, f"{name} {profile}"


@pytest.mark.parametrize("card", facts().gpus.values(), ids=facts().gpus)
def test_of_each_gpu_it_is_known_what_tensorflow_leaves_alone(card: GpuModel) -> None:
    assert 0 < facts().reserve_mib(card) < card.memory_mib


@pytest.mark.parametrize(("name", "machine"), facts().hardware.items())
def test_the_slots_of_a_machine_have_cpus_of_their_own_on_their_socket(name: str, machine: Hardware) -> None:
    assert machine.gpu in facts().gpus
    sockets = {node: parse_cpus(cpus) for node, cpus in machine.sockets.items()}
    assert sum(map(len, sockets.values())) == len(frozenset().union(*sockets.values()))
    taken: set[int] = set()
    for slot in machine.slots:
        cpus = parse_cpus(slot.cpus)
        assert cpus <= sockets[slot.numa_node], f"{name} {slot.cpus}"
        assert not cpus & taken, f"{name} {slot.cpus}"
        assert format_cpus(cpus) == slot.cpus
        taken |= cpus


@pytest.mark.parametrize(("name", "preset"), facts().batching_presets.items())
def test_a_preset_is_a_batching_that_settings_accept(name: str, preset: dict[str, object]) -> None:
    assert Batching.model_validate(preset | {"preset": name}).preset == name


@pytest.mark.parametrize(("key", "remedy"), facts().invented.items())
def test_an_invented_key_is_no_setting_where_its_remedy_does_not_say_so(key: str, remedy: str) -> None:
    # Some are settings in another place: what is said then names that place.
    homes = [place for place, keys in accepted_keys(Settings).items() if key in keys]
    for home in homes:
        place = f"set {key} of the pool" if home == "pools[]" else f"{home.rpartition('.')[2]}.{key} of"
        assert place in remedy, f"{home}.{key}"


def test_a_remedy_names_settings_that_there_are() -> None:
    keys = accepted_keys(Settings)
    for key, remedy in facts().invented.items():
        for place, setting in re.findall(r"set (?:(\w+)\.)?(\w+) of the pool", remedy):
            assert setting in keys[f"pools[].{place}" if place else "pools[]"], key
        for setting in re.findall(r"set (\w+) of the model", remedy):
            assert setting in keys["pools[].models[]"], key


def test_no_release_needs_an_older_driver_than_the_one_before() -> None:
    drivers = [version_number(release.minimum_driver) for release in facts().releases]
    assert drivers == sorted(drivers)
