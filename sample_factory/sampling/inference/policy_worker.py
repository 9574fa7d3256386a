"""A process that answers action requests in batches, one forward pass each."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.channels import Channels
from sample_factory.exchange.messages import (
    ActionsReady,
    ComponentReady,
    Incident,
    OpponentLost,
    PolicyRequest,
    Report,
    StatsReport,
)
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.exchange.run_plan import ActingPlan
from sample_factory.exchange.topology import Topology
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, zero_non_finite
from sample_factory.runtime import cpu
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.clock import Clock, Every
from sample_factory.sampling.inference.acting_models import FrozenModels, LiveModel, UnreadableOpponent
from sample_factory.sampling.inference.devices import RowShapes, make_inference
from sample_factory.sampling.inference.number_reports import NumberReports
from sample_factory.spaces.actions import action_layout

# After the first request, a policy worker waits for more: up to GATHER_ANSWERS times as long as the last
# answer took, within limits. Larger batches gain more with slow networks, for which simulators wait anyway.
# Measured on 2 cores in fp32 (an answer takes 10 ms): 2,940 frames/s with batches of 16 rows, 2,640 with the
# 10 rows that arrive within 4 ms.
GATHER_ANSWERS = 2.0
MIN_GATHER_SECONDS = 0.004
MAX_GATHER_SECONDS = 0.02
REPORT_SECONDS = 5.0
MAX_MIN_REQUESTS = 8


class PolicyWorker:
    """In the child: answers action requests with the networks of one policy and of its past selves. The live
    policy acts with the newest weights that were published when the batch was gathered, or newer ones. The
    attribute `clock` measures what the worker spends its time on."""

    def __init__(
        self,
        plan: ActingPlan,
        policy_id: int,
        index: int,
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        """Builds the policy's network, and seeds torch. `index` numbers this worker among the workers of its
        policy."""
        torch.set_num_threads(1)
        torch.manual_seed(plan.seed + 1000 * (policy_id + 1) + index)
        self._policy_id = policy_id
        self._min_requests = _min_requests(buffers.topology)
        self._stopping = context.stopping
        self._keep_going = context.keep_going
        self._beat = context.beat
        self._channels = channels
        self._requests = channels.requests[policy_id]
        self._weights = channels.weights[policy_id]
        self._buffers = buffers
        self._storage = buffers.storage_of_policy(policy_id)
        policy = plan.policies[policy_id].build(policy_id)
        self._live = LiveModel(policy, self._weights)
        self._frozen = FrozenModels(policy.model, plan.experiment_dir, plan.max_past_selves)
        self._lost: set[Milestone] = set()  # past selves that could not be loaded
        # Policies of several experiments may have states of different sizes: the buffers have the largest.
        own_size = slice(0, policy.model.state_size)
        self._rnn_state = buffers.rnn_state[:, own_size]
        self._chunk_rnn_states = buffers.chunk_rnn_states[..., own_size]
        shapes = RowShapes(self._storage.row_shapes(), policy.model.state_size)
        spec = plan.policies[policy_id]
        sizes = action_layout(spec.action_space).discrete_sizes
        self._numbers = NumberReports(policy_id, spec.observation_space, sizes, buffers, self._report)
        self._inference = make_inference(policy, shapes, plan.cuda_graphs, plan.choice)
        self.clock = Clock()
        self._time_to_report = Every(REPORT_SECONDS)
        self._num_batches = 0  # since the last report
        self._num_rows = 0
        self._gather_seconds = MIN_GATHER_SECONDS
        answers = f"policy {policy_id} answers requests on {self._inference.describe()}"
        self._report(ComponentReady("policy_worker", answers, is_detail=True))

    def run(self) -> None:
        """Gathers and answers requests until the supervisor stops this process."""
        cpu.keep_freed_memory()  # not what initialising the network took
        if not self._weights.wait_published(self._keep_going):
            return
        while not self._stopping.is_set():
            self.step(timeout=0.1)

    def step(self, timeout: float) -> bool:
        """Answers the requests that arrive within `timeout` seconds. Returns whether there were any."""
        self._beat()
        self.clock.lap("other")
        requests = self.gather(timeout)
        self.clock.lap("wait")
        if requests:
            began = time.monotonic()
            self.answer(requests)
            wanted = GATHER_ANSWERS * (time.monotonic() - began)
            self._gather_seconds = min(max(MIN_GATHER_SECONDS, wanted), MAX_GATHER_SECONDS)
        if self._time_to_report():
            self._report_stats()
        return bool(requests)

    def gather(self, timeout: float) -> list[PolicyRequest]:
        """Returns the requests that arrive within `timeout` seconds, and those that follow within a few
        milliseconds. If there are any, fetches the newest weights."""
        requests = self._requests.get_many(timeout=timeout)
        deadline = time.monotonic() + self._gather_seconds
        while 0 < len(requests) < self._min_requests and timeout > 0:
            more = self._requests.get_many(timeout=max(0.0, deadline - time.monotonic()))
            if not more:
                break
            requests += more
        if requests and self._live.is_outdated:
            self._live.fetch()
            self.clock.lap("fetch_weights")
        return requests

    def answer(self, requests: Sequence[PolicyRequest]) -> None:
        """Runs one forward pass for all rows of the live policy, and one for the rows of each past self.
        Drops requests from rollout workers that have died, since the workers that replace them may already
        use the same buffers."""
        current = self._buffers.incarnations
        requests = [request for request in requests if request.incarnation == current[request.worker_index]]
        for past_self in dict.fromkeys(request.past_self for request in requests):
            model, stamp = self._model_of(past_self)
            own = [request for request in requests if request.past_self == past_self]
            self._answer(own, model, stamp)

    def _model_of(self, past_self: Milestone | None) -> tuple[nn.Module, Stamp]:
        """Returns (network, stamp of its weights) to act with: the live policy if `past_self` is None.

        The live policy also replaces a past self that cannot be loaded, since samples of past selves are not
        trained on.
        """
        if past_self is not None and past_self not in self._lost:
            try:
                return self._frozen.get(past_self)
            except UnreadableOpponent as error:
                self._lost.add(past_self)
                text = f"policy {self._policy_id} plays against this past self no longer: {error}"
                self._report(Incident("lost_opponents", text))
                self._report(OpponentLost(past_self))
        return self._live.model, self._live.stamp

    @torch.inference_mode()
    def _answer(self, requests: Sequence[PolicyRequest], model: nn.Module, stamp: Stamp) -> None:
        """Runs one forward pass of `model` for all requests, writes its outputs to the trajectory buffers,
        then notifies the rollout workers that sent the requests."""
        indices = np.concatenate([request.buffer_indices for request in requests])
        sizes = [len(request.buffer_indices) for request in requests]
        steps = np.repeat([request.step for request in requests], sizes)
        inputs = self._inference.inputs(len(indices))
        self._storage.read_observations(indices, steps, into=inputs.obs)
        finite = zero_non_finite(inputs.obs, num_axes=1)
        self._rnn_state.take(indices, axis=0, out=inputs.rnn_state, mode="clip")
        self._store_chunk_rnn_states(indices, steps, inputs.rnn_state)
        self._numbers.check_observations(inputs.obs, indices, finite)
        self._numbers.check_masks(inputs.obs, indices)
        self.clock.lap("gather")
        packed, rnn_state = self._inference.answer(model, inputs)
        is_finite = np.isfinite(packed)
        if not (is_finite.all() and finite.all()):
            good = finite & is_finite.all(axis=1)
            # A state after non-finite numbers must not be used. The learner resets it at the same steps.
            rnn_state[~good] = 0.0
            self._numbers.report_broken(indices, finite, good)
        self.clock.lap("forward")
        self._storage.outputs[indices, steps] = packed
        self._buffers.versions[indices, steps] = stamp.version
        self._buffers.generations[indices, steps] = stamp.generation
        self._rnn_state[indices] = rnn_state
        for request in requests:
            inbox = self._channels.inboxes[request.worker_index]
            inbox.put(ActionsReady(request.split, self._policy_id, request.incarnation), self._keep_going)
        self._num_batches += 1
        self._num_rows += len(indices)
        self.clock.lap("write")

    def _store_chunk_rnn_states(self, indices: np.ndarray, steps: np.ndarray, rnn_state: np.ndarray) -> None:
        """Stores the recurrent states of rows at the first step of a chunk: learners unroll the chunk from
        its stored state.

        indices, steps: [n], buffer and step of each row. rnn_state: [n, state_size], before these steps.
        """
        chunk_length = self._buffers.topology.chunk_length
        is_first = steps % chunk_length == 0
        if is_first.any():
            chunks = steps[is_first] // chunk_length
            self._chunk_rnn_states[indices[is_first], chunks] = rnn_state[is_first]

    def _report_stats(self) -> None:
        shares = self.clock.take_shares()
        shares["memory_mb"] = cpu.rss_mb()
        shares["avg_batch_size"] = self._num_rows / max(1, self._num_batches)
        self._num_batches = 0
        self._num_rows = 0
        self._report(StatsReport("policy_worker", self._policy_id, shares))

    def _report(self, report: Report) -> None:
        self._channels.reports.put(report, self._keep_going)


def _min_requests(topology: Topology) -> int:
    """Returns how many requests a policy worker waits for, within its time limit, before a forward pass: one
    for each split in its share of half the splits, since the other half is being stepped meanwhile."""
    num_requests = topology.num_workers * topology.num_splits // (2 * topology.policy_workers_per_policy)
    return max(1, min(MAX_MIN_REQUESTS, num_requests))
