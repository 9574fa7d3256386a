"""Two policies learn two roles of a game, because a rule of this script says who plays whom.

    python examples/matchmaking.py train --experiment=roles
    python examples/matchmaking.py train --experiment=mixed --matchmaking=random

Two players meet at a narrow bridge, again and again: one has to wait while the other crosses, or both lose
time. Neither sees which one it is. A policy that plays both agents, as with --matchmaking=random, can do no
better than half of the meetings. With a policy for each side, each of them learns a role.
"""

import sys

import gymnasium as gym
import numpy as np

from sample_factory import register_env, register_matchmaking
from sample_factory.enjoy import main as enjoy
from sample_factory.train import main as train

MEETINGS = 10  # in an episode


class Bridge:
    """Two agents with an empty observation. Action: wait or cross. Reward: 1 if exactly one crosses."""

    num_agents = 2
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self._meeting = 0
        return self._observations(), [{}, {}]

    def step(self, actions):
        self._meeting = (self._meeting + 1) % MEETINGS
        reward = float(actions[0] != actions[1])
        is_over = self._meeting == 0
        return self._observations(), [reward] * 2, [is_over] * 2, [False] * 2, [{}, {}]

    def close(self):
        """Does nothing: there is nothing to free."""

    def _observations(self):
        return [np.zeros(1, np.float32)] * 2


class Roles:
    """In a rollout worker: policy 0 always plays the first agent, and policy 1 the second."""

    def __init__(self, setup):
        self._policies = list(range(setup.num_agents))

    def next_match(self):
        return self._policies


DEFAULTS = {
    "num_policies": 2,
    "matchmaking": "roles",
    "encoder_mlp_layers": (16,),
    "hidden_size": 16,
    "use_rnn": False,
    "gamma": 0.0,  # meetings are independent of each other
    "learning_rate": 0.03,
    "rollout": MEETINGS,
    "batch_size": 320,
    "num_workers": 1,
    "num_envs_per_worker": 16,
    "train_for_env_steps": 12_000,
}


if __name__ == "__main__":
    register_env("bridge_", lambda full_env_name: Bridge(), defaults=DEFAULTS, follows_observation=False)
    register_matchmaking("roles", Roles)
    commands = {"train": train, "enjoy": enjoy}
    if not sys.argv[1:] or sys.argv[1] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        sys.exit(2)
    sys.exit(commands[sys.argv[1]](["--env=bridge_for_two", *sys.argv[2:]]))
