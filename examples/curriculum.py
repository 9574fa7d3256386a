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

COMBINATION = (2, 0, 3, 1, 1, 0, 2, 3, 0, 1)  # the right action for each dial
DIALS = len(COMBINATION)
WINDOW = 60  # episodes of a level that decide whether it is solved


class Lock(gym.Env, TrainingInfo):
    """Observation: the current dial, one-hot. Reward: 1 for opening the last one."""

    observation_space = gym.spaces.Box(0, 1, (DIALS,), np.float32)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        self._level = self.training_info.get("level", DIALS)  # no values in `enjoy`: the whole lock
        self._dial = DIALS - self._level
        return np.eye(DIALS, dtype=np.float32)[self._dial], {}

    def step(self, action):
        is_right = bool(action == COMBINATION[self._dial])
        is_open = is_right and self._dial == DIALS - 1
        self._dial = min(self._dial + 1, DIALS - 1)
        observation = np.eye(DIALS, dtype=np.float32)[self._dial]
        return observation, float(is_open), is_open or not is_right, False, {"level": self._level}


class Curriculum(Observer):
    """Raises the level when 90 % of the last episodes at it were successful. A resumed run goes on at its
    level, which is kept in the experiment folder."""

    def on_init(self, run):
        self._file = run.folder / "level.txt"
        self._set_level(run, int(self._file.read_text()) if self._file.exists() else 1)

    def on_episode(self, run, episode):
        if episode.info["level"] == self._level:  # not begun before the level changed
            self._rewards.append(episode.reward)
        if len(self._rewards) == WINDOW and np.mean(self._rewards) >= 0.9:
            if self._level == DIALS:
                run.stop(f"all {DIALS} dials are learned")
            else:
                self._set_level(run, self._level + 1)

    def extra_summaries(self, run, policy_id):
        return {"curriculum/level": self._level}

    def _set_level(self, run, level):
        self._level = level
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(str(level))
        unfinished.replace(self._file)  # at once, so that a run that is killed leaves a whole file
        self._rewards = collections.deque(maxlen=WINDOW)
        run.send_to_envs({"level": level})


DEFAULTS = {"use_rnn": False, "encoder_mlp_layers": (32,), "learning_rate": 0.01}
SIZES = {"rollout": 16, "batch_size": 256, "num_envs_per_worker": 8, "train_for_env_steps": 300_000}

if __name__ == "__main__":
    register_env(
        "lock_", lambda full_env_name: Lock(), defaults={**DEFAULTS, **SIZES}, follows_observation=False
    )
    register_observer("curriculum", Curriculum)
    commands = {"train": train, "enjoy": enjoy}
    if not sys.argv[1:] or sys.argv[1] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        sys.exit(2)
    sys.exit(commands[sys.argv[1]](["--env=lock_of_ten", *sys.argv[2:]]))
