"""From full trajectory buffers to training tensors: the only copy of the data. Time comes first."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, zero_non_finite
from sample_factory.runtime.gpu_work import Uploads, host_array


class Pieces(NamedTuple):
    """What the network is unrolled over: C pieces of R steps, and the observation after each."""

    obs: dict[str, Tensor]  # [R+1, C, *shape]
    state: Tensor  # [C, H] float32: before the first step
    resets: np.ndarray  # [R+1, C] bool, on the host


class Batch(NamedTuple):
    """B trajectories of T steps on the device, no longer tied to any buffer. uint8 observations stay uint8.

    Steps that are not this policy's own (`own` False) hold zeros in actions, log_probs, values and logits.
    """

    obs: dict[str, Tensor]  # [T+1, B, *shape]
    actions: Tensor  # [T, B, K] float32
    log_probs: Tensor  # [T, B] float32
    values: Tensor  # [T, B] float32, on the critic's normalised scale
    logits: Tensor  # [T, B, L] float32
    versions: Tensor  # [T, B] int32
    generations: Tensor  # [T, B] int32, see exchange.policy_weights.Stamp
    rewards: Tensor  # [T, B] float32
    terminated: Tensor  # [T, B] bool
    truncated: Tensor  # [T, B] bool
    own: Tensor  # [T, B] bool: this policy acted here
    states: Tensor  # [P, B, H] float32: before the first step of each of P pieces of a trajectory
    resets: np.ndarray  # [T+1, B] bool, on the host: the recurrent state is zeroed before this step

    def pieces(self) -> Pieces:
        """Cut for backpropagation through time: first the first pieces of all trajectories, then the second
        ones, and so on."""
        num_pieces = self.states.shape[0]
        if num_pieces == 1:
            return Pieces(self.obs, self.states[0], self.resets)
        length = self.rewards.shape[0] // num_pieces
        stretches = [slice(i * length, (i + 1) * length + 1) for i in range(num_pieces)]
        resets = np.concatenate([self.resets[stretch] for stretch in stretches], axis=1)
        resets[0] = False  # the stored state already is what the policy acted on
        obs = {
            key: torch.cat([tensor[stretch] for stretch in stretches], dim=1)
            for key, tensor in self.obs.items()
        }
        return Pieces(obs, self.states.flatten(0, 1), resets)

    def select(self, index: np.ndarray) -> "Batch":
        """Trajectories `index` [n]; all of them cost nothing."""
        if len(index) == self.rewards.shape[1]:
            return self
        columns = torch.from_numpy(index).to(self.rewards.device)
        obs = {key: tensor[:, columns] for key, tensor in self.obs.items()}
        tensors = {
            name: value[:, columns] for name, value in self._asdict().items() if isinstance(value, Tensor)
        }
        return self._replace(obs=obs, resets=self.resets[:, index], **tensors)


def join_pieces(tensor: Tensor, num_pieces: int) -> Tensor:
    """Of the pieces [R+1, P * B, ...] to the trajectories [T+1, B, ...].

    The step after a piece is the first of the next one, which counts; after the last piece it stays.
    """
    if num_pieces == 1:
        return tensor
    num_trajectories = tensor.shape[1] // num_pieces
    steps = tensor[:-1].unflatten(1, (num_pieces, num_trajectories)).transpose(0, 1).flatten(0, 1)
    return torch.cat([steps, tensor[-1:, -num_trajectories:]])


class Batcher:
    """Makes batches for one policy and gives the buffers back at once."""

    def __init__(self, buffers: TrajectoryBuffers, policy_id: int, device: torch.device):
        self._buffers, self._policy_id, self._device = buffers, policy_id, device
        self._of_kind, self._upload = buffers.kind_of_policy(policy_id), Uploads(device)

    def next_batch(self, tickets: Sequence[int]) -> Batch:
        """Copies the buffers with these numbers to the device and releases them."""
        shared, rows, topology = self._buffers, self._of_kind.rows, self._buffers.topology
        index = np.asarray(tickets, np.int64)
        steps = np.arange(topology.rollout + 1)[:, None]
        at = (index, steps[:-1])  # one copy straight into [T, B, ...]
        obs = self._observations(index, steps)
        outputs = self._of_kind.outputs[at]
        states = shared.chunk_rnn_states[index, steps[: topology.chunks_per_trajectory]]
        rewards = shared.rewards[at]
        acted = (shared.policy_ids[at] == self._policy_id) & _clean(obs) & np.isfinite(outputs).all(axis=2)
        own = acted & np.isfinite(rewards)
        if not own.all():
            outputs[~own] = 0.0
            states[~acted[:: topology.chunk_length]] = 0.0
        terminated, truncated = shared.terminated[at], shared.truncated[at]
        # What is seen where the agent does not act has no value to bootstrap from.
        truncated[-1] |= ~shared.active_at_end[index] & ~terminated[-1]
        # Not only at episode ends: an agent that was inactive, another policy's, or saw NaN, comes back with
        # a zero state. One with a broken reward remembers.
        cut_after = terminated | truncated | ~acted
        host = {"outputs": outputs, "states": states, "rewards": rewards, "own": own}
        host |= {"versions": shared.versions[at], "generations": shared.generations[at]}
        host |= {"terminated": terminated, "truncated": truncated}
        uploaded, on_device = self._upload(obs), self._upload(host)
        shared.release(index, self._policy_id)
        packed = on_device.pop("outputs")
        return Batch(
            obs=uploaded,
            actions=packed[..., rows.actions],
            log_probs=packed[..., rows.log_prob],
            values=packed[..., rows.value],
            logits=packed[..., rows.logits],
            **on_device,
            resets=np.concatenate([np.zeros_like(cut_after[:1]), cut_after]),
        )

    def _observations(self, index: np.ndarray, steps: np.ndarray) -> dict[str, np.ndarray]:
        """Of the buffers [B] at steps [T+1, 1]: [T+1, B, *shape] by key, in memory of their own."""
        shape = (len(steps), len(index))
        obs = {
            key: host_array((*shape, *of_one), dtype, self._device)
            for key, (of_one, dtype) in self._of_kind.row_shapes().items()
        }
        self._of_kind.read_observations(index, steps, into=obs)
        return obs


def _clean(obs: Mapping[str, np.ndarray]) -> np.ndarray:
    """[T, B] bool: False where an observation [T+1, B, ...] held NaN or inf, at T-1 also for the last one.

    Non-finite numbers are made 0: they would spread through the network even where they are masked.
    """
    finite = zero_non_finite(obs, num_axes=2)
    finite[-2] &= finite[-1]
    return finite[:-1]
