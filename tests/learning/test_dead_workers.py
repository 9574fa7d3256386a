"""A rollout worker dies while the batching thread of the learner stands still: real processes and threads."""

import os
import signal
import threading

import numpy as np
import pytest
import torch

from sample_factory.exchange.messages import Trajectories
from sample_factory.exchange.trajectory_buffers import FIRST_INCARNATION
from sample_factory.learning.batch import Batcher
from sample_factory.learning.receiver import Handover, Receiver
from sample_factory.runtime.child import Child
from sample_factory.runtime.queues import SocketQueue
from sample_factory.runtime.supervisor import Supervisor, stop_all
from tests.counting import CountingEnv, counts, make_config, make_shared
from tests.runtime.waiting import eventually

AGENTS = np.arange(2)
NUM_LATE = 5
PATIENCE = 30.0


class Sampler:
    """In the child: hands over one rollout after another, and sends the tickets of each only after it has
    handed over NUM_LATE others, or when it finds no free buffer.

    The first incarnation dies with tickets that it has not sent. The second one fails if a buffer is released
    before its ticket is sent.
    """

    def __init__(self, buffers, inbox, context):
        self.buffers = buffers
        self.inbox = inbox
        self.context = context
        self.unsent = []  # buffers of a rollout, the oldest first
        self.num_sent = 0

    def run(self):
        while self.context.keep_going():
            taken = self.buffers.acquire(0, AGENTS)
            if taken is not None:
                self.buffers.policy_ids[taken] = 0
                self.buffers.hand_over(0, taken, AGENTS, np.ones((2, 1), bool))
                self.unsent.append(taken)
            if taken is None or len(self.unsent) > NUM_LATE:
                self.send_oldest()
            if self.num_sent == 2 and self.buffers.incarnations[0] == FIRST_INCARNATION:
                os.kill(os.getpid(), signal.SIGKILL)
        while self.unsent:
            self.send_oldest()

    def send_oldest(self):
        if self.unsent:
            oldest = self.unsent.pop(0)
            assert self.buffers._pending[oldest].all(), "released before its ticket was sent"
            self.inbox.put(Trajectories(oldest.tolist()))
            self.num_sent += 1


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
        self.resumed.wait(PATIENCE)

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
    child = Child("rollout_worker_0", f"{__name__}:Sampler", (buffers, channels.learners[0]))
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
