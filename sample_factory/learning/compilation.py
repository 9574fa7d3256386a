"""--compile: the part of a model that torch.compile can make faster."""

import os
import shutil

import torch

from sample_factory.models.actor_critic import ActorCritic

CPP_COMPILERS = ("g++", "clang++")


def compile_encoders(model: ActorCritic, device: torch.device) -> None:
    """Compiles them in place, at their first use; the names in the state_dict stay.

    Raises RuntimeError if code for the CPU could not be compiled here.
    """
    compilers = [os.environ["CXX"]] if "CXX" in os.environ else CPP_COMPILERS
    if device.type == "cpu" and not any(map(shutil.which, compilers)):
        raise RuntimeError(f"--compile on a CPU needs a C++ compiler: found no {' or '.join(compilers)}")
    for tower in model.towers:
        tower.encoder.compile()
