import logging

import pytest

from sample_factory.experiment import run as experiment
from sample_factory.runtime.child import ChildFailed, call_in_child


def runs_out_of_memory():
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_gpu_that_is_out_of_memory_is_told_with_what_to_lower(caplog):
    with pytest.raises(ChildFailed) as failure:
        call_in_child("learner_0", runs_out_of_memory)
    with caplog.at_level(logging.ERROR, "sample_factory"):
        experiment.log_failure(failure.value)
    assert "learner_0 failed: torch.OutOfMemoryError: CUDA out of memory" in caplog.text
    assert "lower --batch_size" in caplog.text
