"""Copies full trajectory buffers into training batches, so that the buffers can be released at once."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, zero_non_finite
from sample_factory.learning.batch import Batch
from sample_factory.runtime.gpu_work import Uploads, host_array


class Batcher:
    """Makes batches for one policy, and releases the buffers as soon as they are copied."""

    def __init__(self, buffers: TrajectoryBuffers, policy_id: int, device: torch.device):
        self._buffers = buffers
        self._policy_id = policy_id
        self._device = device
        self._kind = buffers.storage_of_policy(policy_id)
        self._upload = Uploads(device)

    def next_batch(self, tickets: Sequence[int]) -> Batch:
        """Copies the buffers with these numbers to the device and releases them."""
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
        """Copies buffers [B] out of shared memory, with zeros in place of what is not trained on.

        Returns, as in `Batch`: the observations by key; other fields by name, where "outputs" [T, B, K] holds
        all that the policy put out; and the resets.
        """
        shared = self._buffers
        topology = shared.topology
        steps = np.arange(topology.rollout + 1)[:, None]
        at = (buffer_indices, steps[:-1])  # copies straight into [T, B, ...]
        obs = self._observations(buffer_indices, steps)
        outputs = self._kind.outputs[at]
        rnn_states = shared.chunk_rnn_states[buffer_indices, steps[: topology.chunks_per_trajectory]]
        rewards = shared.rewards[at]
        is_clean = zero_non_finite_steps(obs) & np.isfinite(outputs).all(axis=2)
        acted = (shared.policy_ids[at] == self._policy_id) & is_clean
        own = acted & np.isfinite(rewards)
        if not own.all():
            outputs[~own] = 0.0
            rnn_states[~acted[:: topology.chunk_length]] = 0.0
        terminated = shared.terminated[at]
        truncated = shared.truncated[at]
        # The last observation of an agent that does not act on it has no value to bootstrap from.
        truncated[-1] |= ~shared.active_at_end[buffer_indices] & ~terminated[-1]
        # The recurrent state is zeroed after episode ends, and after steps in which the agent was inactive,
        # another policy acted, or the observation had a NaN. A NaN reward does not reset it.
        cut_after = terminated | truncated | ~acted
        arrays = {
            "outputs": outputs,
            "chunk_rnn_states": rnn_states,
            "rewards": rewards,
            "own": own,
            "versions": shared.versions[at],
            "generations": shared.generations[at],
            "terminated": terminated,
            "truncated": truncated,
        }
        return obs, arrays, np.concatenate([np.zeros_like(cut_after[:1]), cut_after])

    def _observations(self, buffer_indices: np.ndarray, steps: np.ndarray) -> dict[str, np.ndarray]:
        """Copies observations of buffers [B] at steps [T+1, 1] into new arrays [T+1, B, *shape] by key."""
        shape = (len(steps), len(buffer_indices))
        obs = {
            key: host_array((*shape, *row_shape), dtype, self._device)
            for key, (row_shape, dtype) in self._kind.row_shapes().items()
        }
        self._kind.read_observations(buffer_indices, steps, into=obs)
        return obs


def zero_non_finite_steps(obs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Sets NaN and inf in observations [T+1, B, ...] to 0, in place.

    They would spread through the network even from masked steps. Returns bool [T, B]: False where an
    observation had any, and in the last row also where the observation after it had.
    """
    finite = zero_non_finite(obs, num_axes=2)
    finite[-2] &= finite[-1]
    return finite[:-1]
