"""Tests of the rule that pins workers to cores, and of the choice of the device."""

import math
import os
import resource
import types

import pytest

from sample_factory.runtime import cpu, gpu

UNPINNED = None


@pytest.mark.parametrize(
    "num_workers, cores, expected",
    [
        (2, [0, 1], [{0}, {1}]),
        (4, [0, 1], [{0}, {1}, {0}, {1}]),
        (5, [0, 1], [{0}, {1}, {0}, {1}, {0, 1}]),
        (1, [0, 1, 2, 3], [{0, 1, 2, 3}]),
        (2, [4, 5, 8, 9], [{4, 5}, {8, 9}]),
        (3, [0, 1, 2, 3], [UNPINNED] * 3),
        (6, [0, 1, 2, 3], [{0}, {1}, {2}, {3}, {0, 1}, {2, 3}]),
        (7, [0, 1, 2, 3], [{0}, {1}, {2}, {3}, UNPINNED, UNPINNED, UNPINNED]),
    ],
)
def test_whole_rounds_get_a_core_each_and_the_rest_share_or_float(num_workers, cores, expected):
    assert [cpu.worker_cores(i, num_workers, cores) for i in range(num_workers)] == expected


def test_the_cores_to_share_are_those_of_this_process():
    assert set(cpu.available_cores()) == os.sched_getaffinity(0)
    assert cpu.worker_cores(0, len(cpu.available_cores())) == {cpu.available_cores()[0]}


def test_memory_is_counted_in_megabytes():
    assert 5 < cpu.rss_mb() < 100_000
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    assert cpu.rss_mb() == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, rel=0.2)


def test_the_limit_of_open_files_never_shrinks():
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, former[1]))
        assert cpu.raise_open_files_limit() > 512
        assert cpu.raise_open_files_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, former)


def test_an_unknown_device_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match="auto, gpu or cpu"):
        gpu.resolve_device("tpu")


def test_the_device_is_the_requested_or_the_available_one():
    torch = pytest.importorskip("torch")
    assert gpu.resolve_device("cpu") == "cpu"
    if torch.cuda.is_available():
        assert gpu.resolve_device("auto") == gpu.resolve_device("gpu") == "cuda:0"
        assert gpu.resolve_device("gpu", torch.cuda.device_count()) == "cuda:0"
        assert isinstance(gpu.has_bf16(torch.device("cuda:0")), bool)
    else:
        assert gpu.resolve_device("auto") == "cpu"
        with pytest.raises(
            RuntimeError, match="--device=gpu, but this torch .* is built for the CPU only|finds no GPU"
        ):
            gpu.resolve_device("gpu")


def test_bf16_on_a_cpu_follows_its_instruction_set(monkeypatch):
    for flags, expected in [({"avx2"}, False), ({"avx2", "avx512_bf16"}, True), ({"amx_bf16"}, True)]:
        monkeypatch.setattr(gpu, "cpu_flags", lambda flags=flags: frozenset(flags))
        assert gpu.has_bf16("cpu") is expected


@pytest.mark.parametrize("text, expected", [("max\n", 1024), ("536870912\n", 512), ("99999999999\n", 1024)])
def test_the_memory_is_that_of_the_machine_or_the_limit_of_a_container(tmp_path, text, expected):
    file = tmp_path / "memory.max"
    file.write_text(text)
    assert cpu.memory_limit_mb(2**30, str(file)) == expected
    assert cpu.memory_limit_mb(2**30, str(tmp_path / "none")) == 1024


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200000 100000", 2), ("150000 100000", 1.5), ("max 100000", math.inf)]
    + [(text, math.inf) for text in ("", "max", "100000", "100000 0")],
)
def test_the_limit_of_cpu_time_is_that_of_the_container(tmp_path, text, expected):
    file = tmp_path / "cpu.max"
    file.write_text(text + "\n")
    assert cpu.cpu_limit(str(file)) == expected
    assert cpu.cpu_limit(str(tmp_path / "none")) == math.inf


@pytest.mark.parametrize(("limit", "expected"), [(2, 2), (1.5, 2), (0.5, 1), (64, 4), (math.inf, 4)])
def test_the_usable_cores_are_those_of_the_affinity_or_as_many_as_the_limit(monkeypatch, limit, expected):
    monkeypatch.setattr(cpu, "available_cores", lambda: [0, 2, 3, 7])
    monkeypatch.setattr(cpu, "cpu_limit", lambda: limit)
    assert cpu.num_usable_cores() == expected


@pytest.mark.parametrize(
    "device, version, visible, has_driver, expected",
    [
        ("gpu", "2.13.0+cpu", None, False, True),
        ("cpu", "2.13.0", None, True, False),
        ("auto", "2.13.0", None, True, True),
        ("auto", "2.13.0", None, False, False),
        ("auto", "2.13.0+cpu", None, True, False),
        ("auto", "2.13.0", "", True, False),
    ],
)
def test_a_gpu_is_expected_by_its_driver_unless_torch_cannot_use_it(
    monkeypatch, tmp_path, device, version, visible, has_driver, expected
):
    package = types.SimpleNamespace(version=version)
    monkeypatch.setattr(gpu.metadata, "distributions", lambda name: [package])
    monkeypatch.setattr(gpu, "DRIVER_FILES", [str(tmp_path)] if has_driver else [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu.may_have_gpu(device) is expected


@pytest.mark.parametrize(
    ("output", "busy"), [("37", 0.37), ("12\n80", 0.8), ("[N/A]", None), ("No devices were found", None)]
)
def test_the_busiest_gpu_counts_and_a_gpu_that_does_not_tell_is_not_known(
    tmp_path, monkeypatch, output, busy
):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{output}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpu.gpu_busy() == busy


def test_without_nvidia_smi_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.gpu_busy() is None
