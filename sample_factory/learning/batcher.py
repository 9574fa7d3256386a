"""From full trajectory buffers to training tensors: the only copy of
the data. Time comes first everywhere."""

from typing import Mapping, NamedTuple, Sequence

import numpy as np
import torch
from torch import Tensor

from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers


class Batch(NamedTuple):
    """B pieces of experience of T steps on the device, no longer tied to any buffer. uint8 observations stay
    uint8.

    A fresh batch holds whole trajectories; `in_chunks` cuts them for backpropagation through time.
    Steps that are not this policy's own (`own` False) hold zeros in actions, log_probs, values and logits.
    """

    obs: dict[str, Tensor]  # [T+1, B, *shape]
    actions: Tensor  # [T, B, K] float32
    log_probs: Tensor  # [T, B] float32
    values: Tensor  # [T, B] float32, on the critic's normalised scale
    logits: Tensor  # [T, B, L] float32
    versions: Tensor  # [T, B] int32
    rewards: Tensor  # [T, B] float32
    terminated: Tensor  # [T, B] bool
    truncated: Tensor  # [T, B] bool
    own: Tensor  # [T, B] bool: this policy acted here
    states: Tensor  # [T / chunk, B, H] float32: before the first step of each chunk
    resets: np.ndarray  # [T+1, B] bool, on the host: the recurrent state is zeroed before this step

    def in_chunks(self) -> "Batch":
        """The same experience as [chunk, B * T / chunk]; one state for each piece."""
        pieces = self.states.shape[0]
        if pieces == 1:
            return self
        chunk = self.rewards.shape[0] // pieces

        def cut_with_next(tensor: Tensor) -> Tensor:
            return torch.cat([tensor[i * chunk : (i + 1) * chunk + 1] for i in range(pieces)], dim=1)

        resets = np.concatenate([self.resets[i * chunk : (i + 1) * chunk + 1] for i in range(pieces)], axis=1)
        resets[0] = False  # the stored state already is what the policy acted on
        return Batch(
            {key: cut_with_next(tensor) for key, tensor in self.obs.items()},
            *(cut(tensor, pieces) for tensor in self[1:10]),
            states=self.states.flatten(0, 1)[None],
            resets=resets,
        )

    def select(self, index: np.ndarray) -> "Batch":
        """Columns `index` [n]; all of them in order cost nothing."""
        if len(index) == self.rewards.shape[1]:
            return self
        columns = torch.from_numpy(index).to(self.rewards.device)
        obs = {key: tensor[:, columns] for key, tensor in self.obs.items()}
        rest = [tensor[:, columns] for tensor in self[1:11]]
        return Batch(obs, *rest, resets=self.resets[:, index])


def cut(tensor: Tensor, pieces: int) -> Tensor:
    """[T, B, ...] to [T / pieces, pieces * B, ...]: first the first pieces of all, then the second ones."""
    return tensor.unflatten(0, (pieces, -1)).transpose(0, 1).flatten(1, 2)


class Batcher:
    """Makes batches for one policy and gives the buffers back at once."""

    def __init__(self, buffers: TrajectoryBuffers, policy_id: int, device: torch.device):
        self._buffers, self._policy_id, self._device = buffers, policy_id, device

    def next_batch(self, tickets: Sequence[int]) -> Batch:
        """Copies the buffers with these numbers to the device and releases them."""
        shared, rows, topology = self._buffers, self._buffers.rows, self._buffers.topology
        index = np.asarray(tickets, np.int64)
        steps = np.arange(topology.rollout + 1)[:, None]
        at = (index, steps[:-1])  # one copy straight into [T, B, ...]
        obs = {key: array[index, steps] for key, array in shared.obs.items()}
        outputs, states = shared.outputs[at], shared.states[index, steps[: topology.chunks_per_trajectory]]
        rewards = shared.rewards[at]
        own = shared.policy_ids[at] == self._policy_id
        own &= np.isfinite(outputs).all(axis=2) & np.isfinite(rewards) & _finite_steps(obs)
        if not own.all():
            outputs[~own] = 0.0
            states[~own[:: topology.chunk]] = 0.0
        terminated, truncated = shared.terminated[at], shared.truncated[at]
        # Not only at episode ends: an agent that was inactive, or another policy's, comes back with a zero
        # state.
        cut_after = terminated | truncated | ~own
        packed = self._to_device(outputs)
        batch = Batch(
            obs={key: self._to_device(array) for key, array in obs.items()},
            actions=packed[..., rows.actions],
            log_probs=packed[..., rows.log_prob],
            values=packed[..., rows.value],
            logits=packed[..., rows.logits],
            versions=self._to_device(shared.versions[at]),
            rewards=self._to_device(rewards),
            terminated=self._to_device(terminated),
            truncated=self._to_device(truncated),
            own=self._to_device(own),
            states=self._to_device(states),
            resets=np.concatenate([np.zeros_like(cut_after[:1]), cut_after]),
        )
        shared.release(index, self._policy_id)
        return batch

    def _to_device(self, array: np.ndarray) -> Tensor:
        # The array belongs to this batch alone, so a copy that is still in flight cannot be overwritten.
        return torch.from_numpy(array).to(self._device)


def _finite_steps(obs: Mapping[str, np.ndarray]) -> np.ndarray:
    """[T, B] bool: False where an observation [T+1, B, ...] holds NaN or inf, at T-1 also for the last one.

    Non-finite numbers are made 0: they would spread through the network even where they are masked.
    """
    first = next(iter(obs.values()))
    finite = np.ones(first.shape[:2], bool)
    for array in obs.values():
        if array.dtype.kind == "f":
            good = np.isfinite(array)
            finite &= good.reshape(*finite.shape, -1).all(axis=2)
            array[~good] = 0.0
    finite[-2] &= finite[-1]
    return finite[:-1]
