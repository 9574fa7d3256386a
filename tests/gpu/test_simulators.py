"""A batched simulator of torch on a device: training batches hold what has happened in it."""

import pytest
import torch

import sample_factory
from sample_factory.learning.algorithms.ppo import PPO
from tests.counting import EPISODE, LAST_ACTION, STEP
from tests.envs.simulators import TorchCrowd
from tests.gpu.devices import FLAG_VALUES

COPIES = 16


class Crowd(TorchCrowd):
    is_made = False  # in this process: the algorithm is tried out before the run

    def __init__(self, num_envs: int = COPIES, device: str = "cpu"):
        super().__init__(num_envs, device)
        Crowd.is_made = True


class LinesUp(PPO):
    """Asserts that every step of a batch follows from the step before it."""

    num_steps = 0

    def earlier_batches(self, batch):
        obs, actions = batch.obs["obs"], batch.actions[..., 0]
        if Crowd.is_made:
            ended = batch.terminated | batch.truncated
            assert (batch.rewards == obs[:-1, :, STEP] + 1).all() and batch.own.all()
            assert (obs[1:, :, LAST_ACTION] == actions).all()
            assert (obs[1:, :, STEP] == torch.where(ended, 0, obs[:-1, :, STEP] + 1)).all()
            assert (obs[1:, :, EPISODE] == obs[:-1, :, EPISODE] + ended).all()
            assert (batch.truncated == (ended & (obs[:-1, :, EPISODE] % 2 == 1))).all()
            LinesUp.num_steps += batch.own.numel()
        return super().earlier_batches(batch)


@pytest.mark.parametrize("device", FLAG_VALUES)
def test_batches_hold_what_happens_in_a_simulator(tmp_path, device, monkeypatch):
    monkeypatch.setattr(LinesUp, "num_steps", 0)
    monkeypatch.setattr(Crowd, "is_made", False)
    own = {"vector_env_copies": COPIES, "train_for_env_steps": 100 * COPIES, "train_dir": tmp_path}
    own |= {"normalize_input": False, "reward_clip": 1000.0, "encoder_mlp_layers": (8,)}
    sample_factory.run(Crowd, "up", algo=LinesUp, serial_mode=True, seed=1, device=device, **own)
    assert LinesUp.num_steps >= 90 * COPIES
