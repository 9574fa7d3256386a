import logging
import pkgutil

import pytest

from sample_factory.experiment import processes
from sample_factory.runtime.child import ChildFailed, call_in_child
from sample_factory.runtime.failures import qualified_name


def runs_out_of_memory():
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize("name", [processes.CHECKPOINT_ERROR, processes.OUT_OF_GPU_MEMORY])
def test_exceptions_that_are_recognised_by_name_exist(name):
    error = pkgutil.resolve_name(name)
    assert issubclass(error, Exception) and qualified_name(error) == name


def test_a_gpu_out_of_memory_is_reported_with_the_flags_to_lower(caplog):
    with pytest.raises(ChildFailed) as failure:
        call_in_child("learner_0", runs_out_of_memory)
    with caplog.at_level(logging.ERROR, "sample_factory"):
        processes.log_failure(failure.value)
    assert "learner_0 failed: torch.OutOfMemoryError: CUDA out of memory" in caplog.text
    assert "lower --batch_size" in caplog.text
