"""A rollout worker of `test_dead_workers`, without torch."""

import os
import signal

import numpy as np

from sample_factory.exchange.messages import Trajectories
from sample_factory.exchange.trajectory_buffers import FIRST_INCARNATION

AGENTS = np.arange(2)
NUM_LATE = 5


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
