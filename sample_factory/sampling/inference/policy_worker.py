"""A process that answers action requests in batches, one forward pass each."""

import time
from collections.abc import Sequence

import numpy as np
import torch

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.exchange.channels import Channels
from sample_factory.exchange.messages import (
    ActionsReady,
    ComponentReady,
    Incident,
    OpponentLost,
    PolicyRequest,
    StatsReport,
)
from sample_factory.exchange.policy_weights import NOTHING_PUBLISHED, Stamp, byte_layout
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, zero_non_finite
from sample_factory.runtime import cpu
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.clock import Clock, Every
from sample_factory.runtime.gpu_work import host_array
from sample_factory.sampling.inference.devices import RowShapes, make_inference
from sample_factory.sampling.inference.frozen_models import ActingModel, FrozenModels, UnreadableOpponent
from sample_factory.sampling.settings import PolicyWorkerArgs

# How long it waits for more requests once there is one: up to GATHER_ANSWERS times as long as the last answer
# took, within limits. Slow networks gain more by larger batches, and simulators have to wait for them anyway.
# Measured on 2 cores in fp32 (an answer takes 10 ms): 2,940 FPS with batches of 16 rows, 2,640 with the 10
# rows that come within 4 ms.
GATHER_ANSWERS, MIN_GATHER_SECONDS, MAX_GATHER_SECONDS = 2.0, 0.004, 0.02
REPORT_SECONDS = 5.0


class PolicyWorker:
    """In the child: holds a copy of one policy, and of its past selves that are played against.

    Promises that a request is answered with parameters at least as new as those published when the batch was
    gathered.
    """

    def __init__(
        self,
        args: PolicyWorkerArgs,
        buffers: TrajectoryBuffers,
        channels: Channels,
        context: ChildContext,
    ):
        policy_id, settings = args
        cpu.keep_freed_memory()
        torch.set_num_threads(settings.num_threads)
        self._policy_id, self._settings, self._stopping = policy_id, settings, context.stopping
        self._keep_going, self._beat = context.keep_going, context.beat
        self._buffers, self._channels = buffers, channels
        self._requests, self._weights = channels.requests[policy_id], channels.weights[policy_id]
        torch.manual_seed(settings.seed)
        policy = settings.policy.build(policy_id)
        self._model, self._device = policy.model, policy.device
        self._model.requires_grad_(False)
        self._layout, self._slot_bytes = byte_layout(self._model.state_dict())
        self._published = {
            name: (tensor.dtype, tensor.shape) for name, tensor in self._model.state_dict().items()
        }
        if policy.autocast:
            self._model.prepare_to_act(torch.bfloat16)
        self._frozen = FrozenModels(self._model, settings.experiment_dir, settings.max_past_selves)
        self._lost: set[Milestone] = set()  # past selves that could not be loaded
        self._stamp = Stamp(NOTHING_PUBLISHED)
        self._staging = host_array((self._slot_bytes,), np.dtype(np.uint8), self._device)
        self._of_kind = buffers.kind_of_policy(policy_id)
        shapes = RowShapes(self._of_kind.row_shapes(), buffers.rnn_state_size)
        self._inference = make_inference(policy, shapes, settings.cuda_graphs)
        self._clock, self._time_to_report = Clock(), Every(REPORT_SECONDS)
        self._num_batches = self._num_rows = 0
        self._gather_seconds = MIN_GATHER_SECONDS
        self._told: set[str] = set()  # kinds of broken numbers that stand in the log
        answers = f"policy {policy_id} answers requests on {self._inference.describe()}"
        ready = ComponentReady("policy_worker", answers)
        self._channels.reports.put(ready, self._keep_going)

    def run(self) -> None:
        """Until asked to stop: gather requests, answer them."""
        if not self._weights.wait_published(lambda: not self._stopping.is_set()):
            return
        while not self._stopping.is_set():
            self.step(timeout=0.1)

    def step(self, timeout: float) -> bool:
        """Answers what is asked within `timeout` seconds. True if anything was."""
        self._beat()
        self._clock.lap("other")
        requests = self.gather(timeout)
        self._clock.lap("wait")
        if requests:
            began = time.monotonic()
            self.answer(requests)
            wanted = GATHER_ANSWERS * (time.monotonic() - began)
            self._gather_seconds = min(max(MIN_GATHER_SECONDS, wanted), MAX_GATHER_SECONDS)
        if self._time_to_report():
            self._report_stats()
        return bool(requests)

    def gather(self, timeout: float) -> list[PolicyRequest]:
        """Requests that are there, and a few more if they come soon; and the newest parameters."""
        requests = self._requests.get_many(timeout=timeout)
        deadline = time.monotonic() + self._gather_seconds
        while 0 < len(requests) < self._settings.min_requests and timeout > 0:
            more = self._requests.get_many(timeout=max(0.0, deadline - time.monotonic()))
            if not more:
                break
            requests += more
        if requests and self._weights.newest != self._stamp:
            self._fetch_weights()
        return requests

    def answer(self, requests: Sequence[PolicyRequest]) -> None:
        """One forward pass for all rows of the live policy, and one for those of each past self."""
        for past_self in dict.fromkeys(request.past_self for request in requests):
            acting = self._acting_model(past_self)
            self._answer([request for request in requests if request.past_self == past_self], acting)

    def _acting_model(self, past_self: Milestone | None) -> ActingModel:
        """The live policy stands in for a past self that is lost until nobody asks for it any more: what is
        done in its place is not trained on either."""
        live = ActingModel(self._model, self._stamp)
        if past_self is None or past_self in self._lost:
            return live
        try:
            return self._frozen.get(past_self)
        except UnreadableOpponent as error:
            self._lost.add(past_self)
            text = f"policy {self._policy_id} plays against this past self no longer: {error}"
            self._channels.reports.put(Incident("lost_opponents", text), self._keep_going)
            self._channels.reports.put(OpponentLost(past_self), self._keep_going)
            return live

    @torch.inference_mode()
    def _answer(self, requests: Sequence[PolicyRequest], acting: ActingModel) -> None:
        """Outputs go where the inputs stood, states too."""
        shared = self._buffers
        buffers = np.concatenate([request.buffer_indices for request in requests])
        steps = np.repeat(
            [request.step for request in requests], [len(request.buffer_indices) for request in requests]
        )
        inputs = self._inference.inputs(len(buffers))
        self._of_kind.read_observations(buffers, steps, into=inputs.obs)
        finite = zero_non_finite(inputs.obs, num_axes=1)
        shared.rnn_state.take(buffers, axis=0, out=inputs.rnn_state, mode="clip")
        self._keep_chunk_states(buffers, steps, inputs.rnn_state)
        self._clock.lap("gather")
        packed, new_state = self._inference.answer(acting.model, inputs)
        good = finite & np.isfinite(packed).all(axis=1)
        if not good.all():
            # Nothing of a broken step must stay in the memory. The learner cuts at the same steps.
            new_state[~good] = 0.0
            self._report_broken(buffers, finite, good)
        self._clock.lap("forward")
        self._of_kind.outputs[buffers, steps] = packed
        shared.versions[buffers, steps] = acting.stamp.version
        shared.generations[buffers, steps] = acting.stamp.generation
        shared.rnn_state[buffers] = new_state
        for request in requests:
            inbox = self._channels.inboxes[request.worker_index]
            inbox.put(ActionsReady(request.split, self._policy_id, request.incarnation), self._keep_going)
        self._num_batches += 1
        self._num_rows += len(buffers)
        self._clock.lap("write")

    def _report_broken(self, buffers: np.ndarray, finite: np.ndarray, good: np.ndarray) -> None:
        """finite: whose observations were; good: whose outputs were too. All others are counted."""
        answered = f"policy {self._policy_id} answered its finite observation with NaN or inf"
        for whose, what in ((~finite, "its observation had NaN or inf"), (finite & ~good, answered)):
            if whose.any():
                self._report_broken_rows(buffers[whose], what)

    def _report_broken_rows(self, buffers: np.ndarray, what: str) -> None:
        """Counts them; tells only the first of a kind, since there may be some in every step."""
        text = ""
        if what not in self._told:
            self._told.add(what)
            topology = self._buffers.topology
            worker, agent = divmod(self._buffers.owner_of(buffers[0]), topology.agents_per_worker)
            env, agent = divmod(agent, topology.agents_per_env)
            text = (
                f"worker {worker}: env {env}, agent {agent}: {what}; such steps are not trained on "
                "(0_aux/broken_numbers counts them)"
            )
        self._channels.reports.put(Incident("broken_numbers", text, len(buffers)), self._keep_going)

    def _keep_chunk_states(self, buffers: np.ndarray, steps: np.ndarray, state: np.ndarray) -> None:
        """The learner starts each chunk from the state before its first step."""
        chunk_length = self._buffers.topology.chunk_length
        first = steps % chunk_length == 0
        if first.any():
            self._buffers.chunk_rnn_states[buffers[first], steps[first] // chunk_length] = state[first]

    def _fetch_weights(self) -> None:
        """One copy of bytes out of shared memory, one to the device, and one into the model's tensors."""
        if self._weights.slot_bytes != self._slot_bytes:
            sizes = f"{self._weights.slot_bytes} and {self._slot_bytes} bytes"
            raise ValueError(f"the models of learner and policy worker differ: {sizes}")
        self._stamp = self._weights.fetch(self._staging)
        self._model.load_state_dict(
            self._views(torch.from_numpy(self._staging).to(self._device, non_blocking=True))
        )
        self._clock.lap("fetch_weights")

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The tensors of the learner's model, as they stand in `flat`, [slot bytes] uint8."""
        views = {}
        for name, (dtype, shape) in self._published.items():
            begin, size = self._layout[name], shape.numel() * dtype.itemsize
            views[name] = flat[begin : begin + size].view(dtype).view(shape)
        return views

    def _report_stats(self) -> None:
        shares = self._clock.take_shares()
        shares["memory_mb"] = cpu.rss_mb()
        shares["avg_batch_size"] = self._num_rows / max(1, self._num_batches)
        self._num_batches = self._num_rows = 0
        self._channels.reports.put(StatsReport("policy_worker", self._policy_id, shares), self._keep_going)
