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
from doom_table import STEP, machine, read, write

ENVS = {
    "doom_defend_the_center": "VizdoomDefendCenter-v1",
    "doom_health_gathering": "VizdoomHealthGathering-v1",
    "doom_health_gathering_supreme": "VizdoomHealthGatheringSupreme-v1",
}
WIDTH, HEIGHT = 80, 60
FRAMESKIP, NUM_ENVS, NUM_STEPS = 4, 8, 128
EPISODES = 100  # in a mean, as in Sample Factory


class Screen(gym.ObservationWrapper):
    """The small picture alone, of a dict with the measurements; as the example does it."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        return cv2.resize(observation["screen"], (WIDTH, HEIGHT))


def train(env: str, seed: int, minutes: float, table: Path) -> None:
    """Adds a row to the table for each multiple of STEP env frames; ends after so many minutes, and a row."""
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
            ended = [info["episode"] for info in self.locals["infos"] if "episode" in info]
            lengths = "health" in env
            self.objectives += [0.01 * FRAMESKIP * e["l"] if lengths else e["r"] for e in ended]
            seconds = time.monotonic() - self.began
            frames = self.num_timesteps * FRAMESKIP
            if frames // STEP > (frames - NUM_ENVS * FRAMESKIP) // STEP and self.objectives:
                self.add_row(str(frames // STEP * STEP), seconds / 60)
            return seconds < 60 * minutes or not self.num_rows

        def add_row(self, frames: str, minutes: float) -> None:
            trainer = f"Stable-Baselines3 {__version__}"
            row = {"env": env, "trainer": trainer, "seed": str(seed), "frames": frames, "machine": machine()}
            row |= {"minutes": f"{minutes:.1f}", "objective": f"{np.mean(self.objectives[-EPISODES:]):.4g}"}
            self.num_rows += 1
            print(*row.values(), flush=True)
            write([*read(table).values(), row], table)

    wrapping = {"wrapper_class": Screen, "env_kwargs": {"frame_skip": FRAMESKIP}}
    envs = make_vec_env(ENVS[env], n_envs=NUM_ENVS, seed=seed, **wrapping)
    PPO("CnnPolicy", envs, n_steps=NUM_STEPS, seed=seed).learn(10**9, callback=Rows())


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--csv", type=Path, default=Path("doom.csv"), help="table to extend; its rows stay")
    parser.add_argument("--env", choices=ENVS, default="doom_defend_the_center")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15)
    arguments = parser.parse_args(argv)
    train(arguments.env, arguments.seed, arguments.minutes, arguments.csv)


if __name__ == "__main__":
    main(sys.argv[1:])
