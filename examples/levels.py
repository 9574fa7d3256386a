"""Trains on three variants of an env, and plays most often the one with the lowest mean reward.

    python examples/levels.py train --experiment=poles
    python examples/levels.py eval --experiment=poles

Curves, log and the table of `eval` show each level by itself.
"""

import sys

import gymnasium as gym

import sample_factory
from sample_factory.__main__ import command


def make_cart(length=0.5):
    """Makes a cart with a pole of that length, in meters."""
    env = gym.make("CartPole-v1")
    env.unwrapped.length, env.unwrapped.polemass_length = length, env.unwrapped.masspole * length
    return env


class Worst(sample_factory.LevelChoice):
    """Draws the level with the lowest mean reward four times as often as each other one."""

    def __init__(self, levels, cfg):
        super().__init__(levels, cfg)
        self.means = [0.0] * len(levels)

    def add(self, level, episode):
        self.means[level] += 0.1 * (episode.reward - self.means[level])

    def weights(self, env_frames):
        return [4.0 if mean == min(self.means) else 1.0 for mean in self.means]

    def state(self):  # what a resumed run goes on with
        return self.means

    def load(self, state):
        self.means = state


if __name__ == "__main__":
    levels = {"short": {"length": 0.2}, "usual": {}, "long": {"length": 2.0}}
    defaults = {"level_choice": "worst", "train_for_env_steps": 200_000}
    sample_factory.register_env("poles", make_cart, defaults=defaults, levels=levels)
    sample_factory.register_level_choice("worst", Worst)
    commands = {name: command(name) for name in ("train", "eval")}
    if not sys.argv[1:] or sys.argv[1] not in commands:
        print(f"usage: python {sys.argv[0]} train|eval --experiment=NAME [flags]", file=sys.stderr)
        sys.exit(2)
    sys.exit(commands[sys.argv[1]](["--env=poles", *sys.argv[2:]]))
