"""Chooses the device that torch runs on, and watches how busy it is. Imports torch only within functions."""

import os
import subprocess
from collections.abc import Sequence
from importlib import metadata

# Device files of the drivers of NVIDIA, NVIDIA in WSL, and AMD.
DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


def resolve_device(device: str, index: int = 0) -> str:
    """Returns the torch device for --device=auto|gpu|cpu: "cpu", or e.g. "cuda:1".

    index: number of the process or policy that uses the device; they take the visible GPUs in turn.
    Raises RuntimeError if --device=gpu and there is no GPU, ValueError for an unknown device.
    """
    if device not in ("auto", "gpu", "cpu"):
        raise ValueError(f"--device={device} is unknown; use auto, gpu or cpu")
    if device == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return f"cuda:{index % torch.cuda.device_count()}"
    if device == "gpu":
        raise RuntimeError(f"--device=gpu, but {why_no_gpu()}")
    return "cpu"


def why_no_gpu() -> str | None:
    """Returns why torch finds no GPU; None if it finds one."""
    import torch

    if torch.cuda.is_available():
        return None
    if not torch.backends.cuda.is_built():
        return f"this torch ({torch.__version__}) is built for the CPU only"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"torch finds no GPU among those of CUDA_VISIBLE_DEVICES={visible!r}"
    return (
        f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU; check whether nvidia-smi does"
    )


def name_of_gpu(index: int) -> str:
    """Returns the value of CUDA_VISIBLE_DEVICES that lets a child process see only one GPU.
    index: position of this GPU among all GPUs that this process sees. Raises ValueError if this process sees
        fewer GPUs."""
    names = _visible_names()
    if names is None:
        return str(index)
    if index >= len(names):
        raise ValueError(f"there is no GPU {index} among those of CUDA_VISIBLE_DEVICES={','.join(names)!r}")
    return names[index]


def those_visible(indices: Sequence[int]) -> tuple[int, ...]:
    """Returns `indices` without the GPUs that CUDA_VISIBLE_DEVICES hides; all if the variable is not set."""
    names = _visible_names()
    return tuple(index for index in indices if names is None or index < len(names))


def _visible_names() -> list[str] | None:
    """Returns the GPUs listed in CUDA_VISIBLE_DEVICES; None if it is not set: all GPUs are visible."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if visible is None else [name.strip() for name in visible.split(",") if name.strip()]


def may_have_gpu(device: str) -> bool:
    """Returns whether the network may run on a GPU with --device=auto|gpu|cpu, without loading torch.
    True if there is a driver, even if torch then cannot use the GPU."""
    if device != "auto":
        return device == "gpu"
    versions = [package.version for package in metadata.distributions(name="torch")]
    is_for_cpus = bool(versions) and versions[0].endswith("+cpu")
    if is_for_cpus or os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return False
    return any(os.path.exists(file) for file in DRIVER_FILES)


def has_bf16(device: object) -> bool:
    """Returns whether the hardware multiplies bf16, so that bf16 autocast is faster than fp32.

    device: a torch.device or its name. A CPU needs AMX or AVX512-BF16; always False for a CPU other than x86.
    """
    if str(device) == "cpu":
        return bool(cpu_flags() & {"amx_bf16", "avx512_bf16"})
    import torch

    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def cpu_flags() -> frozenset[str]:
    """Returns the names of the CPU's instruction sets in /proc/cpuinfo; empty except on x86."""
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def gpu_busy() -> float | None:
    """Returns the utilisation of the busiest GPU: the share, 0..1, of nvidia-smi's last sample period with
    running kernels. None if nvidia-smi is missing or reports no number."""
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    percents = [int(word) for word in output.split() if word.isdigit()]
    return max(percents) / 100 if percents else None
