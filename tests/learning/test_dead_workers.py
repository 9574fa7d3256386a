"""A rollout worker dies while the batching thread of the learner stands still: real processes and threads."""

import threading

import pytest
import torch

from sample_factory.learning.batch import Batcher
from sample_factory.learning.receiver import Handover, Receiver
from sample_factory.runtime.child import Child
from sample_factory.runtime.queues import SocketQueue
from sample_factory.runtime.supervisor import Supervisor, stop_all
from tests.counting import CountingEnv, counts, make_config, make_shared
from tests.learning.late_sampler import AGENTS, NUM_LATE
from tests.waiting import eventually

PATIENCE = 100.0


class Batching:
    """A batching thread that stands still after its first batch until `resumed` is set."""

    def __init__(self, buffers, channels):
        self.resumed = threading.Event()
        self.num_batches = 0
        self.error: BaseException | None = None
        self._is_ending = False
        self._handover = Handover(1)
        batcher = Batcher(buffers, 0, torch.device("cpu"))
        self._receiver = Receiver(0, buffers, batcher, channels, self._handover, self._stand_still)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_ending = True
        self.resumed.set()
        self._thread.join()

    def _stand_still(self, _):
        self.resumed.wait(10 * PATIENCE)

    def _run(self):
        try:
            while not self._is_ending:
                self._receiver.step(len(AGENTS), timeout=0.01)
                self.num_batches += self._handover.take_batch(0.0) is not None
        except AssertionError as error:
            self.error = error


@pytest.fixture
def shared():
    buffers, channels = make_shared(make_config(traj_buffers_excess_ratio=40), CountingEnv())
    return buffers, channels._replace(learners=[SocketQueue()])


def test_however_late_the_learner_looks_no_buffer_is_released_twice_and_none_is_lost(shared):
    buffers, channels = shared
    total = buffers.topology.num_buffers
    child = Child("rollout_worker_0", "tests.learning.late_sampler:Sampler", (buffers, channels.learners[0]))
    with Batching(buffers, channels) as batching, Supervisor([child], restartable=[child]) as supervisor:
        supervisor.start_all()
        assert eventually(supervisor.check, PATIENCE), "it kills itself"
        assert counts(buffers)[0] > NUM_LATE * len(AGENTS), "there is something to fill for the successor"
        buffers.reclaim(0)
        supervisor.restart(child)
        assert eventually(lambda: counts(buffers) == (0, 0, total), PATIENCE), "the successor fills the rest"
        batching.resumed.set()
        assert eventually(lambda: batching.num_batches > total or supervisor.check(), PATIENCE)
        assert not supervisor.check(), supervisor.children[0].error
        stop_all(supervisor.children, grace_seconds=15)
        assert eventually(lambda: counts(buffers) == (total, 0, 0) or batching.error, PATIENCE)
    assert batching.error is None
