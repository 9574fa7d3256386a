"""Stable-Baselines3's PPO in Doom, with the sizes of ViZDoom's own example, as rows of the table of Doom.

    pip install stable-baselines3
    python examples/doom_sb3.py --csv=configs/doom.csv --env=doom_defend_the_center --seed=1 --minutes=15

The env is the one of ViZDoom's Gymnasium wrapper. The objective is the same as in Sample Factory: kills minus
deaths in the first scenario, and a hundredth of the length of an episode in env frames in the others.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import gymnasium as gym
import numpy as np
from doom_table import IDENTITY, STEP, machine, read, write

ENVS = {
    "doom_defend_the_center": "VizdoomDefendCenter-v1",
    "doom_health_gathering": "VizdoomHealthGathering-v1",
    "doom_health_gathering_supreme": "VizdoomHealthGatheringSupreme-v1",
}
WIDTH, HEIGHT = 80, 60
FRAMESKIP, NUM_ENVS, NUM_STEPS = 4, 8, 128
REWARD_SCALE = 0.01  # ViZDoom's rewards of an episode are up to 2,100
EPISODES = 100  # in a mean, as in Sample Factory


class Screen(gym.ObservationWrapper):
    """Returns only the picture of ViZDoom's dict, at WIDTH x HEIGHT, as in ViZDoom's example."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        return cv2.resize(observation["screen"], (WIDTH, HEIGHT))


def wrap(env: gym.Env) -> gym.Env:
    """Returns the env with small pictures and scaled rewards; `Monitor`, inside of it, sees them unscaled."""
    return gym.wrappers.TransformReward(Screen(env), lambda reward: REWARD_SCALE * reward)


def train(env: str, seed: int, minutes: float, table: Path) -> None:
    """Trains for `minutes`, or until the first row if that is later. Adds a row at each multiple of STEP."""
    import vizdoom.gymnasium_wrapper  # noqa: F401, it registers the envs
    from stable_baselines3 import PPO, __version__
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Rows(BaseCallback):
        def _on_training_start(self) -> None:
            self.began = time.monotonic()
            self.objectives: list[float] = []
            self.num_rows = 0

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if episode := info.get("episode"):
                    by_length = 0.01 * FRAMESKIP * episode["l"]
                    self.objectives.append(by_length if "health" in env else episode["r"])
            frames = self.num_timesteps * FRAMESKIP
            seconds = time.monotonic() - self.began
            if frames // STEP > (frames - NUM_ENVS * FRAMESKIP) // STEP and self.objectives:
                self.add_row(frames // STEP * STEP, seconds)
            return seconds < 60 * minutes or not self.num_rows

        def add_row(self, frames: int, seconds: float) -> None:
            self.num_rows += 1
            trainer = f"Stable-Baselines3 {__version__}"
            row = dict(zip(IDENTITY, (env, trainer, str(seed), str(frames))))
            row |= {"minutes": f"{seconds / 60:.1f}", "machine": machine()}
            row["objective"] = f"{np.mean(self.objectives[-EPISODES:]):.4g}"
            print(*row.values(), flush=True)
            rows = read(table)
            rows[tuple(row[name] for name in IDENTITY)] = row
            write(rows.values(), table)

    wrapping = {"wrapper_class": wrap, "env_kwargs": {"frame_skip": FRAMESKIP}}
    envs = make_vec_env(ENVS[env], n_envs=NUM_ENVS, seed=seed, **wrapping)
    try:
        PPO("CnnPolicy", envs, n_steps=NUM_STEPS, seed=seed).learn(10**9, callback=Rows())
    finally:
        envs.close()


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--csv", type=Path, default=Path("doom.csv"), help="table to extend")
    parser.add_argument("--env", choices=ENVS, default="doom_defend_the_center")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15)
    arguments = parser.parse_args(argv)
    train(arguments.env, arguments.seed, arguments.minutes, arguments.csv)


if __name__ == "__main__":
    main(sys.argv[1:])
