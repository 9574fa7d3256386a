"""Which device torch runs on. Imports torch only when asked."""

import os
import sys


def resolve_device(device: str, index: int = 0) -> str:
    """The torch device for --device=auto|gpu|cpu.

    index: which of several users of a GPU asks; they take the visible GPUs in turn.
    Raises RuntimeError if a GPU is asked for and there is none, ValueError for any other word.
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
    """None if torch finds a GPU."""
    import torch

    if torch.cuda.is_available():
        return None
    if not torch.backends.cuda.is_built():
        return f"this torch ({torch.__version__}) is built for the CPU only"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"torch finds no GPU, and CUDA_VISIBLE_DEVICES={visible!r} says which it may see"
    return f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU; see whether nvidia-smi does"


def has_bf16(device: object) -> bool:
    """Whether bf16 autocast is faster than fp32 there: the hardware multiplies bf16, it does not emulate it.

    device: a torch.device or its name. CPU: AMX or AVX512-BF16 (Linux on x86; elsewhere unknown, so False).
    """
    if str(device) == "cpu":
        return bool(cpu_flags() & {"amx_bf16", "avx512_bf16"})
    import torch

    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)


def cpu_flags() -> frozenset[str]:
    """The CPU's instruction sets as Linux names them; empty elsewhere."""
    if sys.platform != "linux":
        return frozenset()
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()
