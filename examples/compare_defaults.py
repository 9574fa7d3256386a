"""Default flags on eight envs that are registered without any, beside Stable-Baselines3's default PPO.

    python examples/compare_defaults.py --csv=rows.csv
    python examples/compare_defaults.py --csv=rows.csv --library=before --repo=OTHER_CHECKOUT
    python examples/compare_defaults.py --csv=rows.csv --library=sb3 --python=OTHER_VENV/bin/python

Appends a row for each env and seed, unless it is there. A run has two cores, and ends after both --frames env
steps and --seconds, which are counted from the call that trains.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

CORES = {0, 1}
EPISODES = 100  # in a mean
COLUMNS = ("env", "library", "seed", "frames", "seconds", "seconds_at_frames", "at_frames", "at_seconds")


class Courier(gym.Env):
    """Walk to a target: a picture shows it, a vector is the own place, a mask forbids steps into walls."""

    SIDE, PIXELS = 6, 7  # of the room in fields, of a field in pixels
    STEPS = ((0, 1), (0, -1), (1, 0), (-1, 0))
    action_space = gym.spaces.Discrete(4)
    observation_space = gym.spaces.Dict(
        {
            "picture": gym.spaces.Box(0, 255, (SIDE * PIXELS, SIDE * PIXELS, 3), np.uint8),
            "place": gym.spaces.Box(0, 1, (2,), np.float32),
            "action_mask": gym.spaces.Box(0, 1, (4,), np.int8),
        }
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place, self.target = self.np_random.integers(self.SIDE, size=(2, 2))
        self.num_steps = 0
        return self._observe(), {}

    def step(self, action: int) -> Any:
        self.place = np.clip(self.place + self.STEPS[int(action)], 0, self.SIDE - 1)
        self.num_steps += 1
        arrived = bool((self.place == self.target).all())
        return self._observe(), 1.0 if arrived else -0.02, arrived, self.num_steps == 50, {}

    def _observe(self) -> dict[str, np.ndarray]:
        fields = np.zeros((self.SIDE, self.SIDE, 3), np.uint8)
        fields[tuple(self.target)] = (0, 255, 0)
        after = self.place + np.array(self.STEPS)
        return {
            "picture": fields.repeat(self.PIXELS, 0).repeat(self.PIXELS, 1),
            "place": (self.place / (self.SIDE - 1)).astype(np.float32),
            "action_mask": ((after >= 0) & (after < self.SIDE)).all(axis=1).astype(np.int8),
        }


def minigrid() -> gym.Env:
    from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper

    return ImgObsWrapper(RGBImgPartialObsWrapper(gym.make("MiniGrid-DoorKey-5x5-v0")))


def boxing() -> gym.Env:
    import ale_py

    gym.register_envs(ale_py)
    env = gym.make("ALE/Boxing-v5", frameskip=1, repeat_action_probability=0.0)
    return gym.wrappers.FrameStackObservation(gym.wrappers.AtariPreprocessing(env), 4)


ENVS = {
    "cartpole": lambda: gym.make("CartPole-v1"),
    "acrobot": lambda: gym.make("Acrobot-v1"),
    "pendulum": lambda: gym.make("Pendulum-v1"),
    "lunarlander": lambda: gym.make("LunarLander-v3"),
    "minigrid": minigrid,
    "boxing": boxing,
    "courier": Courier,
    "halfcheetah": lambda: gym.make("HalfCheetah-v5"),
}


class Episodes:
    """The ended episodes of a run: seconds, env steps of the run, reward."""

    def __init__(self, frames: int, seconds: float):
        self.frames, self.seconds = frames, seconds
        self.began = time.monotonic()
        self.rows: list[tuple[float, int, float]] = []

    def add(self, frames: int, reward: float) -> bool:
        """Returns whether the run goes on."""
        self.rows.append((time.monotonic() - self.began, frames, reward))
        return self.rows[-1][0] < self.seconds or frames < self.frames

    def result(self) -> dict[str, float]:
        def mean(rows: list[tuple[float, int, float]]) -> float:
            return float(np.mean([row[2] for row in rows[-EPISODES:]])) if rows else float("nan")

        until = [row for row in self.rows if row[1] <= self.frames]
        seconds, frames, _ = (self.rows or [(time.monotonic() - self.began, 0, 0.0)])[-1]
        return {
            "frames": frames,
            "seconds": round(seconds, 1),
            "seconds_at_frames": round(until[-1][0], 1) if until else float("nan"),
            "at_frames": mean(until),
            "at_seconds": mean([row for row in self.rows if row[0] <= self.seconds]),
        }


def train_sb3(env: str, seed: int, episodes: Episodes, _: list[str]) -> None:
    """Trains Stable-Baselines3's PPO with the defaults of that package."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    class Log(BaseCallback):
        def _on_step(self) -> bool:
            ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
            return min((episodes.add(self.num_timesteps, reward) for reward in ended), default=True)

    made = ENVS[env]()
    shape = made.observation_space.shape  # None of a Dict
    policy = "MultiInputPolicy" if shape is None else "CnnPolicy" if len(shape) == 3 else "MlpPolicy"
    PPO(policy, made, seed=seed).learn(10**9, callback=Log())


def train_ours(env: str, seed: int, episodes: Episodes, flags: list[str]) -> None:
    """Trains with default flags, and `flags`."""
    from sample_factory import Observer, register_env, register_observer
    from sample_factory.train import main

    class Log(Observer):
        def on_episode(self, run: Any, episode: Any) -> None:
            if not episodes.add(run.env_frames, episode.reward):
                run.stop("enough")

    register_env(f"compared_{env}", lambda full_env_name: ENVS[env]())
    register_observer("log", Log())
    with tempfile.TemporaryDirectory() as folder:
        command = [f"--env=compared_{env}", "--experiment=compared", f"--train_dir={folder}"]
        if main([*command, f"--seed={seed}", *flags]):
            raise SystemExit("the run has failed")


def measure(arguments: argparse.Namespace, env: str, seed: int) -> dict[str, Any]:
    """Returns the row of a run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "result.json")
        command = [arguments.python, __file__, f"--library={arguments.library}", f"--one={env}"]
        command += [f"--frames={arguments.frames}", f"--seconds={arguments.seconds}"]
        command += [f"--seeds={seed}", f"--out={out}", *arguments.flags]
        path = {"PYTHONPATH": str(Path(arguments.repo).absolute())} if arguments.repo else {}
        subprocess.run(command, check=True, env={**os.environ, **path}, stdout=subprocess.DEVNULL)
        return {"env": env, "library": arguments.library, "seed": seed, **json.loads(out.read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--csv", default="compared.csv")
    parser.add_argument("--library", default="ours", help="sb3, or any other name for a checkout of ours")
    parser.add_argument("--repo", default=str(Path(__file__).parent.parent), help="the checkout")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--envs", nargs="*", default=list(ENVS), choices=list(ENVS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    arguments, arguments.flags = parser.parse_known_args()
    if arguments.one:
        os.sched_setaffinity(0, CORES)
        episodes = Episodes(arguments.frames, arguments.seconds)
        train = train_sb3 if arguments.library == "sb3" else train_ours
        train(arguments.one, arguments.seeds[0], episodes, arguments.flags)
        Path(arguments.out).write_text(json.dumps(episodes.result()))
        return
    table = Path(arguments.csv)
    done = {tuple(row[:3]) for row in csv.reader(table.open())} if table.exists() else set()
    for env, seed in [(env, seed) for seed in arguments.seeds for env in arguments.envs]:
        if (env, arguments.library, str(seed)) not in done:
            row = measure(arguments, env, seed)
            with table.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                if not file.tell():
                    writer.writeheader()
                writer.writerow(row)
            print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
