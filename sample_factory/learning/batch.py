"""Batches of training tensors: copied from trajectory buffers, and the network unrolled over them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sample_factory.exchange.trajectory_buffers import WAITING, TrajectoryBuffers, zero_non_finite
from sample_factory.models.actor_critic import NetworkOutput
from sample_factory.models.policy_spec import BuiltPolicy
from sample_factory.runtime.gpu_work import Uploads, host_array


class Batch(NamedTuple):
    """Holds training tensors of B trajectories of T steps on the device, copied from trajectory buffers.

    Fields are [T, B], but obs [T+1, B, *shape] by key (uint8 stays uint8), actions [T, B, K], logits [T, B,
    L], active_at_end [1, B], chunk_rnn_states [number of chunks, B, H] before the first step of each chunk,
    and resets [T+1, B] bool in host memory, True where the recurrent state is zeroed before the step.

    own: whether the policy being trained acted, and the step may be trained on. Otherwise actions, log_probs,
        values, logits and costs are 0.
    versions, generations: parts of the Stamp of the weights that acted. values: on the critic's normalised
        scale.
    """

    obs: dict[str, Tensor]  # [T+1, B, *shape]
    actions: Tensor  # [T, B, K] float32
    log_probs: Tensor  # [T, B] float32: of the actions, under the policy that acted
    values: Tensor  # [T, B] float32, on the critic's normalised scale
    logits: Tensor  # [T, B, L] float32
    versions: Tensor  # [T, B] int32, see exchange.policy_weights.Stamp
    generations: Tensor  # [T, B] int32, see exchange.policy_weights.Stamp
    rewards: Tensor  # [T, B] float32
    terminated: Tensor  # [T, B] bool
    truncated: Tensor  # [T, B] bool
    own: Tensor  # [T, B] bool: this policy acted here, and the step may be trained on
    active_at_end: Tensor  # [1, B] bool: the agent acts on the last observation, so that it has a value
    chunk_rnn_states: Tensor  # [N, B, H] float32: before the first step of each of N chunks of a trajectory
    resets: np.ndarray  # [T+1, B] bool, in host memory: the recurrent state is zeroed before this step
    costs: Tensor | None = None  # [T, B] float32, 0 where not `own`; None unless the algorithm needs them

    def chunks(self) -> tuple[dict[str, Tensor], Tensor, np.ndarray]:
        """Cuts trajectories into C chunks of R steps for backpropagation through time.

        Returns the inputs of `ActorCritic.unroll`: observations [R+1, C, *shape] by key, with the observation
        after each chunk; recurrent states [C, H] before the first step; resets [R+1, C] in host memory.
        Columns are the first chunks of all trajectories, then the second chunks, and so on.
        """
        num_chunks = self.chunk_rnn_states.shape[0]
        if num_chunks == 1:
            return self.obs, self.chunk_rnn_states[0], self.resets
        length = self.rewards.shape[0] // num_chunks
        rows = [slice(i * length, (i + 1) * length + 1) for i in range(num_chunks)]
        resets = np.concatenate([self.resets[of_chunk] for of_chunk in rows], axis=1)
        resets[0] = False  # the stored state already is the one that the policy acted with
        obs = {
            key: torch.cat([tensor[of_chunk] for of_chunk in rows], dim=1) for key, tensor in self.obs.items()
        }
        return obs, self.chunk_rnn_states.flatten(0, 1), resets

    def select(self, columns: np.ndarray) -> "Batch":
        """Returns a batch of the n trajectories at the indices `columns`, [n] int64; returns this batch,
        without a copy, if n is the number of all trajectories."""
        if len(columns) == self.rewards.shape[1]:
            return self
        on_device = torch.from_numpy(columns).to(self.rewards.device)
        obs = {key: tensor.index_select(1, on_device) for key, tensor in self.obs.items()}
        tensors = {
            name: value.index_select(1, on_device)
            for name, value in self._asdict().items()
            if isinstance(value, Tensor)
        }
        return self._replace(obs=obs, resets=self.resets[:, columns], **tensors)


def unroll(policy: BuiltPolicy, batch: Batch) -> NetworkOutput:
    """Runs the network over the T+1 steps of each trajectory; returns its outputs, [T+1, B, ...].

    The value of step T+1 is for bootstrapping only and is not trained. `rnn_state` of the output has a row
    for each chunk, not for each trajectory.
    """
    with torch.autocast(policy.device.type, torch.bfloat16, enabled=policy.autocast):
        output = policy.model.unroll(*batch.chunks())
    num_chunks = batch.chunk_rnn_states.shape[0]
    of_steps = {name: x for name, x in output._asdict().items() if name != "rnn_state" and x is not None}
    return output._replace(**{name: join_chunks(tensor, num_chunks) for name, tensor in of_steps.items()})


def join_chunks(tensor: Tensor, num_chunks: int) -> Tensor:
    """Joins N chunks of each of B trajectories, [R+1, N * B, ...], to trajectories [T+1, B, ...].

    The last row of a chunk and the first row of the next chunk are the same step: the latter is kept.
    """
    if num_chunks == 1:
        return tensor
    num_trajectories = tensor.shape[1] // num_chunks
    steps = tensor[:-1].reshape(-1, num_chunks, num_trajectories, *tensor.shape[2:])
    steps = steps.transpose(0, 1).flatten(0, 1)
    return torch.cat([steps, tensor[-1:, -num_trajectories:]])


class Batcher:
    """Copies full trajectory buffers into batches for one policy, and releases the buffers at once."""

    def __init__(self, buffers: TrajectoryBuffers, policy_id: int, device: torch.device):
        self._buffers = buffers
        self._policy_id = policy_id
        self._device = device
        self._kind = buffers.storage_of_policy(policy_id)
        self._upload = Uploads(device)

    def next_batch(self, tickets: Sequence[int]) -> Batch:
        """Copies the buffers with the indices `tickets` to the device, and releases them."""
        buffer_indices = np.asarray(tickets, np.int64)
        host_obs, arrays, resets = self._read(buffer_indices)
        obs = self._upload(host_obs)
        on_device = self._upload(arrays)
        self._buffers.release(buffer_indices, self._policy_id)
        packed = on_device.pop("outputs")
        rows = self._kind.rows
        return Batch(
            obs=obs,
            actions=packed[..., rows.actions],
            log_probs=packed[..., rows.log_prob],
            values=packed[..., rows.value],
            logits=packed[..., rows.logits],
            **on_device,
            resets=resets,
        )

    def _read(
        self, buffer_indices: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
        """Copies the buffers at the indices [B] out of shared memory, with zeros in steps that are not
        trained on.

        If agents take turns, the steps in which an agent waits are moved to the end of its trajectory, so
        that its turns follow each other, and each trajectory of the batch is a single chunk.

        Returns (observations by key, other arrays by name of the field of `Batch`, `Batch.resets`). All
        outputs of the policy are one array, "outputs", [T, B, K].
        """
        shared = self._buffers
        topology = shared.topology
        steps = np.arange(topology.rollout + 1)[:, None]
        num_chunks = topology.chunks_per_trajectory
        waiting = shared.policy_ids[buffer_indices, steps[:-1]] == WAITING
        if waiting.any():
            steps = np.argsort(np.pad(waiting, ((0, 1), (0, 0))), axis=0, kind="stable")
            num_chunks = 1
        is_step = steps[:-1] < topology.rollout  # not the observation after the last one
        at = (buffer_indices, np.where(is_step, steps[:-1], 0))  # copies straight into [T, B, ...]
        obs = {
            key: host_array((len(steps), len(buffer_indices), *shape), dtype, self._device)
            for key, (shape, dtype) in self._kind.row_shapes().items()
        }
        self._kind.read_observations(buffer_indices, steps, into=obs)
        # NaN and inf would spread through the network even from masked steps.
        is_finite = zero_non_finite(obs, num_axes=2)
        is_finite[-2] &= is_finite[-1]  # the last step bootstraps from the observation after it
        outputs = self._kind.outputs[at]
        rnn_states = shared.chunk_rnn_states[buffer_indices, np.arange(num_chunks)[:, None]]
        rewards = shared.rewards[at]
        is_clean = is_finite[:-1] & np.isfinite(outputs).all(axis=2)
        acted = (shared.policy_ids[at] == self._policy_id) & is_step & is_clean
        own = acted & np.isfinite(rewards)
        if not own.all():
            outputs[~own] = 0.0
            rnn_states[~acted[:: topology.rollout // num_chunks]] = 0.0
        terminated = shared.terminated[at]
        truncated = shared.truncated[at]
        active_at_end = shared.active_at_end[buffer_indices][None]
        # The recurrent state is zeroed after a step
        # - that ended an episode, or
        # - in which this policy did not act: the agent was inactive, another policy acted, or the observation
        #   had a NaN (not so for a NaN reward), or
        # - that is the last one, if the agent is inactive afterwards.
        cut_after = terminated | truncated | ~acted
        cut_after[-1:] |= ~active_at_end
        arrays = {
            "outputs": outputs,
            "chunk_rnn_states": rnn_states,
            "rewards": rewards,
            "own": own,
            "versions": shared.versions[at],
            "generations": shared.generations[at],
            "terminated": terminated,
            "truncated": truncated,
            "active_at_end": active_at_end,
        }
        if topology.has_costs:
            arrays["costs"] = np.where(own, shared.costs[at], np.float32(0.0))
        return obs, arrays, np.concatenate([np.zeros_like(cut_after[:1]), cut_after])
