"""Trains on your own multi-agent environment, registered in the way of Sample Factory 1.

    python examples/custom_multi_env.py train --experiment=meeting
    python examples/custom_multi_env.py enjoy --experiment=meeting

Two agents learn to meet, in about 10 seconds. One policy plays both. Scripts written for Sample Factory 1
register their envs as below; `register_env`, as in custom_env.py, works for a multi-agent env as well.
"""

import sys

import gymnasium as gym
import numpy as np

from sample_factory.enjoy import main as enjoy
from sample_factory.envs.env_registry import global_env_registry
from sample_factory.train import main as train

ENV = "my_meeting"
EPISODE_STEPS = 32
STUNNED_STEPS = 2
LEFT, STAY, RIGHT = range(3)


class Meeting:
    """Two agents in a narrow corridor. When they meet at a place, both get a point and start elsewhere.

    They move at the same time: neighbours who move towards each other swap places and do not meet. An agent
    that runs into a wall is stunned and takes no action for 2 steps.

    Observation of an agent: its place, the other's, its own number, and whether the other is stunned.
    Action: left, stay, or right. A multi-agent env needs no base class, only the members below.
    """

    num_agents = 2

    def __init__(self, corridor_length: int):
        self._length = corridor_length
        # The spaces of one agent. The network looks up Discrete observations in a table.
        self.observation_space = gym.spaces.MultiDiscrete([corridor_length, corridor_length, 2, 2])
        self.action_space = gym.spaces.Discrete(3)
        self._random = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Returns two lists with an entry for each agent: observations, infos."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._step = 0
        self._num_bumps = 0
        self._scatter()
        return self._observations(), [{}, {}]

    def step(self, actions: list[int]):
        """Returns five lists: observations, rewards, terminated, truncated, infos."""
        for agent, action in enumerate(actions):
            self._move(agent, action)
        met = self._places[0] == self._places[1]
        if met:
            self._scatter()
        self._step += 1
        time_is_up = self._step == EPISODE_STEPS
        infos = [{}, {}]
        if time_is_up:
            infos = [{"episode_extra_stats": {"bumps": self._num_bumps}} for _ in infos]
            # A multi-agent env resets itself, since its agents may end their episodes at different times. At
            # an end it returns the first observation of the next episode.
            self.reset()
        for info, stunned in zip(infos, self._stunned):
            # The next action of an inactive agent is ignored, and not trained on.
            info["is_active"] = stunned == 0
        return self._observations(), [float(met)] * 2, [False] * 2, [time_is_up] * 2, infos

    def render(self) -> np.ndarray:
        """Returns a frame [height, width, 3] uint8: one agent red, the other green."""
        frame = np.zeros((1, self._length, 3), np.uint8)
        frame[0, self._places, (0, 1)] = 255
        return frame.repeat(64, 0).repeat(64, 1)

    def close(self) -> None:
        """Does nothing: there is nothing to free."""

    def _move(self, agent: int, action: int) -> None:
        if self._stunned[agent] > 0:
            self._stunned[agent] -= 1
            return
        place = self._places[agent] + action - STAY
        if 0 <= place < self._length:
            self._places[agent] = place
        else:
            self._stunned[agent] = STUNNED_STEPS
            self._num_bumps += 1

    def _scatter(self) -> None:
        self._places = self._random.choice(self._length, 2, replace=False)
        self._stunned = [0, 0]

    def _observations(self) -> list[np.ndarray]:
        return [
            np.array([self._places[me], self._places[other], me, self._stunned[other] > 0])
            for me, other in ((0, 1), (1, 0))
        ]


def make_env(full_env_name: str, cfg=None, env_config=None) -> Meeting:
    """In a rollout worker: makes one env. `cfg` has every flag as an attribute."""
    return Meeting(cfg.corridor_length)


def add_extra_params(env: str, parser) -> None:
    """Adds the family's own flags to an argparse parser."""
    parser.add_argument("--corridor_length", default=7, type=int, help="places in the corridor")


def override_default_params(env: str, parser) -> None:
    """Sets defaults of flags that all envs share."""
    parser.set_defaults(
        encoder_mlp_layers=(64, 64),
        use_rnn=False,
        gamma=0.9,
        rollout=16,
        batch_size=512,
        learning_rate=1e-3,
        num_envs_per_worker=16,
        train_for_env_steps=100_000,
    )


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    global_env_registry().register_env(
        env_name_prefix="my_meeting",
        make_env_func=make_env,
        add_extra_params_func=add_extra_params,
        override_default_params_func=override_default_params,
    )
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
