"""Which arithmetic a network runs in."""

from typing import Any

from sample_factory.runtime import gpu


def use_bf16(precision: str, device: Any, observation_space: Any) -> bool:
    """Whether to run under bf16 autocast, for --precision=auto|fp32|bf16.

    auto: where the hardware has bf16 and there are images to encode. A small MLP only loses accuracy, and
    gains no
    speed, by it.
    """
    if precision != "auto":
        return precision == "bf16"
    has_images = any(len(space.shape) == 3 for space in observation_space.spaces.values())
    return has_images and gpu.has_bf16(str(device))
