import pytest

from ops.nvidia_smi import Gpu, NvidiaSmiError, parse_gpus, parse_mig_uuids

A100S = "".join(f"{i}, GPU-1a2b3c4d-0000-4000-8000-00000000000{i}, 535.129.03, Disabled\n" for i in range(8))

MIG_LIST = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1a2b3c4d-0000-4000-8000-000000000000)
  MIG 3g.40gb     Device  0: (UUID: MIG-5e6f7a8b-1111-5111-9111-000000000001)
  MIG 4g.40gb     Device  1: (UUID: MIG-5e6f7a8b-1111-5111-9111-000000000002)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1a2b3c4d-0000-4000-8000-000000000001)
"""


def test_eight_gpus_are_read_in_their_order() -> None:
    gpus = parse_gpus(A100S)
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert gpus[7] == Gpu(7, "GPU-1a2b3c4d-0000-4000-8000-000000000007", "535.129.03", mig=False)


def test_only_a_gpu_whose_mig_mode_is_on_counts_as_split() -> None:
    text = "\n".join(
        f"{i}, GPU-1a2b3c4d-0000-4000-8000-00000000000{i}, 535.129.03, {mode}"
        for i, mode in enumerate(("Enabled", "Disabled", "[N/A]"))
    )
    assert [gpu.mig for gpu in parse_gpus(text)] == [True, False, False]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("No devices were found\n", "No devices were found"),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.129\n",
            "Failed to initialize NVML: Driver/library version mismatch",
        ),
        (
            "Unable to determine the device handle for GPU0000:4B:00.0: Unknown Error\n",
            "Unable to determine the device handle for GPU0000:4B:00.0: Unknown Error",
        ),
        ("bash: line 1: nvidia-smi: command not found", "bash: line 1: nvidia-smi: command not found"),
        ("", "nvidia-smi printed nothing"),
        ("0, GPU-1a2b3c4d-0000-4000-8000-000000000000, [Unknown Error], Disabled", "0, GPU-1a2b3c4d"),
    ],
)
def test_anything_but_gpus_is_handed_on_as_it_was_said(said: str, told: str) -> None:
    with pytest.raises(NvidiaSmiError, match=r"^" + told.replace("(", r"\(")):
        parse_gpus(said)


def test_one_lost_gpu_among_good_ones_is_not_passed_over() -> None:
    with pytest.raises(NvidiaSmiError, match="ERR"):
        parse_gpus(A100S + "8, [ERR!], 535.129.03, Disabled\n")


def test_drivers_that_name_mig_instances_by_their_gpu_are_read_too() -> None:
    named = "MIG-GPU-1a2b3c4d-0000-4000-8000-000000000000/2/0"
    assert parse_mig_uuids(f"  MIG 3g.20gb     Device  0: (UUID: {named})\n") == {named}


def test_mig_instances_are_listed_by_their_own_uuids() -> None:
    assert parse_mig_uuids(MIG_LIST) == {
        "MIG-5e6f7a8b-1111-5111-9111-000000000001",
        "MIG-5e6f7a8b-1111-5111-9111-000000000002",
    }
