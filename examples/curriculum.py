"""Raises the difficulty of an env as the policy gets better, and ends the run when the last level is solved.

    python examples/curriculum.py train --experiment=lock
    python examples/curriculum.py enjoy --experiment=lock --no_render

The env is a combination lock: each dial opens with one of four actions, a wrong one ends the episode, and
only the last dial gives a reward. Random actions open ten dials once in a million episodes, so nothing is
learned from the whole lock. The curriculum begins with the last dial: at level n, n dials are still locked.
"""

import collections
import sys

import gymnasium as gym
import numpy as np

from sample_factory import Observer, register_env, register_observer
from sample_factory.enjoy import main as enjoy
from sample_factory.envs.abilities import TrainingInfo
from sample_factory.train import main as train

ENV = "lock_of_ten"
COMBINATION = (2, 0, 3, 1, 1, 0, 2, 3, 0, 1)  # the right action for each dial
WINDOW = 60  # episodes of a level that decide whether it is solved


class Lock(gym.Env, TrainingInfo):
    """Observation: the current dial, one-hot. Reward: 1 for opening the last one."""

    observation_space = gym.spaces.Box(0, 1, (len(COMBINATION),), np.float32)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        # Outside of training there are no values: then the whole lock is to be opened.
        self._level = self.training_info.get("level", len(COMBINATION))
        self._dial = len(COMBINATION) - self._level
        return self._observation(), {}

    def step(self, action):
        is_right = action == COMBINATION[self._dial]
        is_open = is_right and self._dial == len(COMBINATION) - 1
        self._dial += int(is_right and not is_open)
        return (
            self._observation(),
            float(is_open),
            bool(is_open or not is_right),
            False,
            {"level": self._level},
        )

    def _observation(self):
        return np.eye(len(COMBINATION), dtype=np.float32)[self._dial]


class Curriculum(Observer):
    """Raises the level when 90 % of the last episodes at it were successful."""

    def on_init(self, run):
        self._set_level(run, 1)

    def on_episode(self, run, episode):
        if episode.info["level"] != self._level:
            return  # it began before the level changed
        self._rewards.append(episode.reward)
        if len(self._rewards) == WINDOW and np.mean(self._rewards) >= 0.9:
            if self._level == len(COMBINATION):
                run.stop(f"all {self._level} dials are learned")
            else:
                self._set_level(run, self._level + 1)

    def extra_summaries(self, run, policy_id):
        return {"curriculum/level": self._level}

    def _set_level(self, run, level):
        self._level = level
        self._rewards = collections.deque(maxlen=WINDOW)
        run.send_to_envs({"level": level})


DEFAULTS = {
    "encoder_mlp_layers": (32,),
    "use_rnn": False,
    "learning_rate": 0.01,
    "rollout": 16,
    "batch_size": 256,
    "num_envs_per_worker": 8,
    "train_for_env_steps": 300_000,
}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_env("lock_", lambda full_env_name: Lock(), defaults=DEFAULTS)
    register_observer("curriculum", Curriculum)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
