"""The devices that the tests of this folder run on. Without a GPU, the CPU shows that the tests work."""

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
NEEDS_GPU = pytest.mark.skipif(not HAS_GPU, reason="needs a GPU that torch can use")
# As --device names them, and as torch does.
FLAG_VALUES = ["cpu", pytest.param("gpu", marks=NEEDS_GPU)]
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_GPU)]
BEST = "gpu" if HAS_GPU else "cpu"  # of tests that take too long for both
