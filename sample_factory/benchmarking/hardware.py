"""Describes this machine, for the record of a measurement."""

import platform
import sys
from typing import NamedTuple

import psutil

from sample_factory.runtime import cpu


class Hardware(NamedTuple):
    """The part of the machine that this process may use."""

    cpu: str
    cores: int
    memory_gb: float
    gpus: tuple[str, ...]

    def __str__(self) -> str:
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        gpus = ", ".join(self.gpus) or "no GPU"
        return f"{self.cpu}, {cores}, {self.memory_gb:.0f} GB, {gpus}"


def describe_hardware() -> Hardware:
    """Imports torch, which knows the GPUs that it can use."""
    import torch

    gpus = tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    memory_gb = psutil.virtual_memory().total / 2**30
    return Hardware(_cpu_model(), cpu.num_usable_cores(), memory_gb, gpus)


def _cpu_model() -> str:
    if sys.platform == "linux":
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
