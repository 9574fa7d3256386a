"""The machine on which something is measured: its parts, its packages, and what else uses it."""

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from sample_factory.benchmarking.stages import Stage
from sample_factory.runtime.cpu import num_usable_cores

FOREIGN_CORES = 0.25  # less than that is the usual background load of a system
STOLEN_CORES = 0.05  # on an idle host, nothing is stolen


def describe_hardware() -> dict[str, Any]:
    """Returns "cpu" (name), "cores" (usable number), "memory_gb" and "gpus" (names) of this machine.
    Imports torch, which knows the GPUs."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.machine()),
        "cores": num_usable_cores(),
        "memory_gb": psutil.virtual_memory().total / 2**30,
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def used_by_others(stages: Iterable[Stage]) -> str:
    """Returns a sentence about the cores that other programs and virtual machines have used during the
    measurements; "" if they have used hardly any."""
    measured = [stage.cores for stage in stages if stage.cores is not None]
    others = max((cores["of_others"] for cores in measured), default=0.0)
    stolen = max((cores["stolen"] for cores in measured), default=0.0)
    parts = []
    if others >= FOREIGN_CORES:
        parts.append(f"other programs kept up to {others:.1f} cores busy")
    if stolen >= STOLEN_CORES:
        parts.append(f"the host of this virtual machine took up to {stolen:.1f} cores away (steal time)")
    return ", and ".join(parts)
