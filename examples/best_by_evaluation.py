"""Keeps the policy that is best by the true reward, where training has a shaped one.

    python examples/best_by_evaluation.py train --experiment=parcels
    python examples/best_by_evaluation.py eval --experiment=parcels --checkpoint best latest --shaped=False

A courier delivers parcels. The reward of the training pays for the right door and a little for haste, and
misses that a parcel breaks in haste. So the policy first learns the doors and then to hurry: its reward rises
to the end, while ever fewer parcels arrive whole. --eval_flags switches the shaping off in the evaluations
during training, and --save_best_metric=eval_reward keeps the policy that they find best: an earlier one.
"""

import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.__main__ import command
from sample_factory.config.flags import flag

DOORS = 4
PARCELS = 10  # in an episode
HASTE_BONUS = 0.1


@dataclass(frozen=True)
class CourierFlags:
    """Flags of the courier."""

    shaped: bool = flag(True, "pay for the right door and for haste instead of for whole parcels")


class Courier(gym.Env):
    """Observation: the address of the parcel, one-hot. Action: the door, and whether to hurry."""

    observation_space = gym.spaces.Box(0, 1, (DOORS,), np.float32)
    action_space = gym.spaces.MultiDiscrete([DOORS, 2])

    def __init__(self, shaped: bool):
        self._shaped = shaped

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._num_left = PARCELS
        return self._next_parcel(), {}

    def step(self, action):
        door, hurries = action
        is_right = door == self._address
        reward = is_right + HASTE_BONUS * hurries if self._shaped else is_right and not hurries
        self._num_left -= 1
        return self._next_parcel(), float(reward), False, self._num_left == 0, {}

    def _next_parcel(self):
        self._address = self.np_random.integers(DOORS)
        return np.eye(DOORS, dtype=np.float32)[self._address]


LEARNING = {"use_rnn": False, "encoder_mlp_layers": (32,), "learning_rate": 0.01, "gamma": 0.0}
SIZES = {"num_workers": 1, "num_envs_per_worker": 16, "batch_size": 512, "train_for_env_steps": 15_000}
EVALUATION = {
    "eval_every_env_steps": 7500,
    "eval_episodes": 32,
    "eval_flags": "--shaped=False",
    "save_best_metric": "eval_reward",
    "save_best_after": 0,
    "serial_mode": True,  # training waits for each evaluation: otherwise it would end during the first one
}

if __name__ == "__main__":
    defaults = {**LEARNING, **SIZES, **EVALUATION}
    register_env(
        "courier",
        lambda full_env_name, cfg: Courier(cfg.shaped),
        CourierFlags,
        defaults,
        follows_observation=False,
    )
    commands = {name: command(name) for name in ("train", "eval")}
    if not sys.argv[1:] or sys.argv[1] not in commands:
        print(f"usage: python {sys.argv[0]} train|eval --experiment=NAME [flags]", file=sys.stderr)
        sys.exit(2)
    sys.exit(commands[sys.argv[1]](["--env=courier", *sys.argv[2:]]))
