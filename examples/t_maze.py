"""Trains on a T-maze: which recurrent core remembers a hint for how long?

    python examples/t_maze.py train --experiment=maze --corridor_length=10
    python examples/t_maze.py train --experiment=longer --corridor_length=30 --rnn_type=mingru
    python examples/t_maze.py enjoy --experiment=maze

The first observation of an episode shows on which side the reward is; all following ones look alike, until
the agent reaches the junction at the end of the corridor and has to choose a side (Bakker 2001,
"Reinforcement learning with long short-term memory"). Without a memory, half of the choices are right.
"""

import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.config.flags import flag
from sample_factory.enjoy import main as enjoy
from sample_factory.train import main as train

ENV = "my_t_maze"
FORWARD = 0
PENALTY = -0.1  # for running into a wall


@dataclass(frozen=True)
class TMazeFlags:
    """Flags of the T-maze."""

    corridor_length: int = flag(10, "steps from the start to the junction", at_least=1)


class TMaze(gym.Env):
    """A corridor with a junction at its end.

    Observation: float32 [3]: the side of the reward, -1 or 1, in the first step and 0 afterwards; 1 in the
    corridor; 1 at the junction. Action: 0 walks forward, 1 turns left, 2 turns right. The right turn at the
    junction gives 1, the wrong one 0, and either ends the episode. Walking into a wall costs 0.1.
    """

    def __init__(self, corridor_length: int):
        self.observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self._length = corridor_length

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self._side = int(self.np_random.integers(2))
        self._place = 0
        self._step = 0
        return self._observe(), {}

    def step(self, action: int):
        self._step += 1
        at_junction = self._place == self._length
        turns = action != FORWARD
        info = {}
        if turns and at_junction:
            is_right = action - 1 == self._side
            reward = float(is_right)
            # Averaged over episodes and written to TensorBoard as 0_aux/avg_right_turn.
            info["episode_extra_stats"] = {"right_turn": reward}
        elif turns == at_junction:
            reward = 0.0
            self._place += 1
        else:
            reward = PENALTY
        truncated = self._step == 4 * (self._length + 1)
        return self._observe(), reward, turns and at_junction, truncated, info

    def _observe(self) -> np.ndarray:
        hint = 2 * self._side - 1 if self._step == 0 else 0
        at_junction = self._place == self._length
        return np.array([hint, not at_junction, at_junction], np.float32)


def make_env(full_env_name: str, cfg, render_mode: str | None = None) -> gym.Env:
    """In a rollout worker: makes one env."""
    return TMaze(cfg.corridor_length)


DEFAULTS = {
    "encoder_mlp_layers": (32,),
    "hidden_size": 32,
    "rollout": 64,  # steps of backpropagation through time: a whole episode in the longer mazes too
    "batch_size": 512,  # 8 trajectories
    "learning_rate": 3e-3,
    "num_envs_per_worker": 16,  # cheap envs: larger batches for inference
    "train_for_env_steps": 200_000,
}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_env("my_t_maze", make_env, TMazeFlags, DEFAULTS, follows_observation=False)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
