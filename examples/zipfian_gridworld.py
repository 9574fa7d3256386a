"""Trains where most tasks are rare, and reports the accuracy on frequent, on all, and on rare tasks.

    python examples/zipfian_gridworld.py train --experiment=zipf
    python examples/zipfian_gridworld.py train --experiment=zipf_memory --episodic_memory=True
    python examples/zipfian_gridworld.py evaluate --experiment=zipf

A task is a room and the name of an object in it: walk to that object and touch no other one. What the object
of a name looks like has to be learned from trials. The task of rank k is drawn with a probability
proportional to k^-exponent, after Zipf's Gridworld of Chan et al. 2022 (https://arxiv.org/abs/2203.08222).
Reported is the share of episodes that end at the right object, as in that paper, when tasks are drawn as in
training (Zipfian accuracy), uniformly, and from the rarest fifth.
"""

import argparse
import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from sample_factory import evaluate, register_env
from sample_factory.config.flags import flag
from sample_factory.train import main as train

ENV = "zipfian_gridworld"
NUM_ROOMS = 10
OBJECTS_PER_ROOM = 4
NUM_TASKS = NUM_ROOMS * OBJECTS_PER_ROOM
SIDE = 9  # of a room, with the outer walls
VIEW = 2  # cells that an agent sees in each direction
LOOK = 6  # numbers that describe the look of an object
MAX_STEPS = 40
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
DRAWS = ("zipfian", "uniform", "rare")


@dataclass(frozen=True)
class ZipfianFlags:
    """Flags of the Zipfian gridworld."""

    task_draw: str = flag("zipfian", "how the task of an episode is drawn", choices=DRAWS)
    zipf_exponent: float = flag(1.0, "exponent of Zipf's law: 0 is uniform", at_least=0)


def task_probabilities(draw: str, exponent: float) -> np.ndarray:
    """Returns the probability of each task, [NUM_TASKS], the most frequent one first."""
    ranks = np.arange(1, NUM_TASKS + 1)
    weights = {
        "zipfian": ranks**-exponent,
        "uniform": np.ones(NUM_TASKS),
        "rare": (ranks > 0.8 * NUM_TASKS).astype(float),
    }[draw]
    return weights / weights.sum()


def make_rooms() -> tuple[np.ndarray, np.ndarray]:
    """Returns the cells of all rooms, and the objects [NUM_ROOMS, SIDE, SIDE], -1 where there is none.

    Cells are padded by VIEW walls: [NUM_ROOMS, SIDE + 2 * VIEW, SIDE + 2 * VIEW, 1 + LOOK] float32, whether
    it is a wall, then the look of the object. Rooms are the same in all processes and runs.
    """
    rng = np.random.default_rng(0)
    looks = rng.choice([-1.0, 1.0], (NUM_TASKS, LOOK))
    cells = np.zeros((NUM_ROOMS, SIDE + 2 * VIEW, SIDE + 2 * VIEW, 1 + LOOK), np.float32)
    cells[..., 0] = 1
    objects = np.full((NUM_ROOMS, SIDE, SIDE), -1)
    for room in range(NUM_ROOMS):
        inner = cells[room, VIEW + 1 : -VIEW - 1, VIEW + 1 : -VIEW - 1]
        inner[..., 0] = 0
        inner[rng.integers(0, 3), 3, 0] = 1  # a few walls, which cut nothing off
        inner[3, rng.integers(4, 7), 0] = 1
        free = np.argwhere(inner[..., 0] == 0)
        for i, (y, x) in enumerate(free[rng.choice(len(free), OBJECTS_PER_ROOM, replace=False)]):
            index = OBJECTS_PER_ROOM * room + i
            objects[room, y + 1, x + 1] = index
            inner[y, x, 1:] = looks[index]
    return cells, objects


class ZipfianGridworld(gym.Env):
    """Rooms with objects, seen from above, 5 x 5 cells around the agent.

    Observation: float32 vector: the view, then the name of the object to find, one of NUM_TASKS. Action: a
    step up, down, left or right; walls stop it. The right object gives 1; any object ends the episode.
    """

    def __init__(self, draw: str, exponent: float):
        size = (2 * VIEW + 1) ** 2 * (1 + LOOK) + NUM_TASKS
        self.observation_space = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gym.spaces.Discrete(4)
        self._cells, self._objects = make_rooms()
        # Rooms and names have no order: which task has which rank.
        self._tasks = np.random.default_rng(1).permutation(NUM_TASKS)
        self._limits = np.cumsum(task_probabilities(draw, exponent))

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        rank = min(int(np.searchsorted(self._limits, self.np_random.random(), "right")), NUM_TASKS - 1)
        self._task = int(self._tasks[rank])
        self._room = self._task // OBJECTS_PER_ROOM
        walls = self._cells[self._room, VIEW:-VIEW, VIEW:-VIEW, 0]
        free = np.argwhere((walls == 0) & (self._objects[self._room] < 0))
        self._y, self._x = free[self.np_random.integers(len(free))].tolist()
        self._step = 0
        return self._observe(), {}

    def step(self, action: int):
        self._step += 1
        y, x = self._y + MOVES[action][0], self._x + MOVES[action][1]
        if not self._cells[self._room, y + VIEW, x + VIEW, 0]:
            self._y, self._x = y, x
        touched = self._objects[self._room, self._y, self._x]
        reward = float(touched == self._task)
        truncated = self._step == MAX_STEPS
        return self._observe(), reward, bool(touched >= 0), truncated, {}

    def _observe(self) -> np.ndarray:
        width = 2 * VIEW + 1
        seen = self._cells[self._room, self._y : self._y + width, self._x : self._x + width]
        name = np.zeros(NUM_TASKS, np.float32)
        name[self._task] = 1
        return np.concatenate((seen.reshape(-1), name))


def make_env(full_env_name: str, cfg, render_mode: str | None = None) -> gym.Env:
    """In a rollout worker: makes one env."""
    return ZipfianGridworld(cfg.task_draw, cfg.zipf_exponent)


DEFAULTS = {
    "encoder_mlp_layers": (128,),
    "hidden_size": 64,
    "rollout": 32,
    "batch_size": 1024,
    "learning_rate": 2e-3,
    "num_envs_per_worker": 32,  # cheap envs: larger batches for inference
    "train_for_env_steps": 500_000,
}


def report(argv: list[str]) -> int:
    """Prints the three accuracies of an experiment. argv: flags. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="zipfian_gridworld.py evaluate")
    parser.add_argument("--experiment", required=True)
    parser.add_argument("--train_dir")
    parser.add_argument("--episodes", type=int, default=1000)
    args = parser.parse_args(argv)
    for draw in DRAWS:
        results = evaluate(args.experiment, args.train_dir, num_episodes=args.episodes, task_draw=draw)
        print(f"{draw} accuracy: {results.reward.mean:.3f}")
    return 0


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `evaluate`, then flags. Returns the exit code."""
    register_env(ENV, make_env, ZipfianFlags, DEFAULTS, follows_observation=False)
    if not argv or argv[0] not in ("train", "evaluate"):
        print(f"usage: python {sys.argv[0]} train|evaluate --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return report(argv[1:]) if argv[0] == "evaluate" else train([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
