"""Several learners of a policy that share one GPU."""

import pickle

import pytest
import torch

from sample_factory.learning.learner_group import LearnerGroup, gpu_backend
from sample_factory.runtime.child import Child
from sample_factory.runtime.gpu import resolve_device
from tests.gpu.devices import BEST
from tests.learning.test_learner_group import NUM_LEARNERS, numbers, train

CASE = "gru_vtrace"


@pytest.mark.parametrize(
    ("num_learners", "num_gpus", "backend"), [(2, 1, "gloo"), (2, 2, "nccl"), (2, 8, "nccl"), (3, 2, "gloo")]
)
def test_nccl_is_used_only_where_each_learner_has_a_gpu_of_its_own(num_learners, num_gpus, backend):
    assert gpu_backend(num_learners, num_gpus) == f"cpu:gloo,cuda:{backend}"


class SecondLearner:
    """In the child: trains beside the test."""

    def __init__(self, place, path, context):
        self._path = path
        torch.set_num_threads(1)
        torch.backends.cudnn.allow_tf32 = False
        self._group = LearnerGroup(1, NUM_LEARNERS)
        self._group.connect(torch.device(resolve_device(BEST, 1)), place)

    def run(self):
        self._path.write_bytes(pickle.dumps(list(numbers(train(CASE, self._group, BEST)))))


def test_two_learners_on_the_gpus_of_this_machine_equal_one(tmp_path):
    path = tmp_path / "second"
    group = LearnerGroup(0, NUM_LEARNERS)
    place = group.listen()
    child = Child("second", SecondLearner, (place, path))
    child.start()
    try:
        group.connect(torch.device(resolve_device(BEST)), place)
        first = list(numbers(train(CASE, group, BEST)))
        child.join(60)
        second = pickle.loads(path.read_bytes())
    finally:
        child.kill()
        torch.distributed.destroy_process_group()
    alone = list(numbers(train(CASE, None, BEST)))
    assert len(first) == len(second) == len(alone) > 20
    for of_first, of_second, of_one in zip(first, second, alone):
        torch.testing.assert_close(of_first, of_one, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(of_first, of_second, atol=1e-5, rtol=1e-5)
