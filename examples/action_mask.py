"""Forbids actions with a mask: an agent that may put a piece only on free fields.

    python examples/action_mask.py train --experiment=fill_board
    python examples/action_mask.py enjoy --experiment=fill_board

An observation with the key `action_mask` has one number for each choice of the action space; 0 forbids it.
The policy never chooses a forbidden action, in training and in evaluation. The mask reaches the action
distribution only: put what the network should see into another key, too.
"""

import sys

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.enjoy import main as enjoy
from sample_factory.train import main as train

ENV = "my_fill_board"
NUM_FIELDS = 9


class FillBoard(gym.Env):
    """Each step puts a piece on a free field; a piece beside no other one gives a point.

    Observation: `board`, float32 [9], 1 where a piece is, and `action_mask`, int8 [9], 1 where none is.
    Action: 0 to 8, a field. An episode ends when the row of fields is full.
    """

    def __init__(self):
        self.observation_space = gym.spaces.Dict(
            {
                "board": gym.spaces.Box(0, 1, (NUM_FIELDS,), np.float32),
                "action_mask": gym.spaces.Box(0, 1, (NUM_FIELDS,), np.int8),
            }
        )
        self.action_space = gym.spaces.Discrete(NUM_FIELDS)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self._board = np.zeros(NUM_FIELDS, np.float32)
        return self._observation(), {}

    def step(self, action: int):
        if self._board[action]:
            raise ValueError(f"field {action} is not free")  # never happens: the mask forbids it
        beside = self._board[max(0, action - 1) : action + 2]
        reward = float(not beside.any())
        self._board[action] = 1
        return self._observation(), reward, bool(self._board.all()), False, {}

    def _observation(self) -> dict[str, np.ndarray]:
        free = self._board == 0
        if not free.any():
            free[:] = True  # of each component, at least one choice must be allowed
        return {"board": self._board.copy(), "action_mask": free.astype(np.int8)}


def make_env(full_env_name: str, cfg) -> gym.Env:
    """In a rollout worker: makes one env."""
    return FillBoard()


DEFAULTS = {
    "encoder_mlp_layers": (64,),
    "use_rnn": False,
    "gamma": 0.9,
    "learning_rate": 3e-3,
    "ppo_epochs": 4,
    "batch_size": 512,
    "rollout": 16,
    "exploration_loss_coeff": 0.0,
    "num_envs_per_worker": 16,
    "train_for_env_steps": 50_000,
}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_env(ENV, make_env, defaults=DEFAULTS, follows_observation=False)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
