"""Trains a team with a critic that sees what all of its members observe.

    python examples/centralized_critic.py train --experiment=together --centralized_critic=True
    python examples/centralized_critic.py train --experiment=alone
    python examples/centralized_critic.py enjoy --experiment=together

Four farmers share one harvest. The weather of a field, which only its farmer sees, decides most of what it
yields. A critic that sees all fields does not praise a farmer for the luck of the others. After training
nobody needs it: the last command plays without a critic.
"""

import sys

import gymnasium as gym
import numpy as np

from sample_factory import register_env
from sample_factory.enjoy import main as enjoy
from sample_factory.train import main as train

ENV = "my_village"
NUM_TOOLS = 8  # the right one for crop i is tool i
NUM_DAYS = 16
WEATHER = 2.0  # standard deviation of what it adds to each day's harvest of a field


class Village:
    """Four agents, a season of 16 days.

    Observation of an agent: float32 [10]: today's crop of its field as a one-hot vector, the share of the
    season that has passed, and the weather of its field: constant in a season, normally distributed, mean 0.
    Action: one of 8 tools. Reward, the same for all: the mean over the fields of 1 for the right tool, plus
    twice the weather.
    """

    num_agents = 4
    observation_space = gym.spaces.Box(-np.inf, np.inf, (NUM_TOOLS + 2,), np.float32)
    action_space = gym.spaces.Discrete(NUM_TOOLS)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Returns two lists with an entry for each agent: observations, infos."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._day = 0
        self._num_right = np.zeros(self.num_agents)
        self._weather = self._random.normal(size=self.num_agents)
        return self._observe(), [{}] * self.num_agents

    def step(self, actions: list[int]):
        """Returns five lists: observations, rewards, terminated, truncated, infos."""
        is_right = np.array(actions) == self._crops
        self._num_right += is_right
        self._day += 1
        reward = float(np.mean(is_right + WEATHER * self._weather))
        is_over = self._day == NUM_DAYS
        observations, infos = self._observe(), [{}] * self.num_agents
        if is_over:
            # Averaged over episodes and written to TensorBoard as 0_aux/avg_skill.
            infos = [{"episode_extra_stats": {"skill": right / NUM_DAYS}} for right in self._num_right]
            observations, _ = self.reset()  # a multi-agent env resets itself
        return observations, *([value] * self.num_agents for value in (reward, is_over, False)), infos

    def _observe(self) -> list[np.ndarray]:
        self._crops = self._random.integers(NUM_TOOLS, size=self.num_agents)
        return [
            np.array([*(np.arange(NUM_TOOLS) == crop), self._day / NUM_DAYS, weather], np.float32)
            for crop, weather in zip(self._crops, self._weather)
        ]

    def render(self) -> None:
        """There is nothing to see."""

    def close(self) -> None:
        """Does nothing: there is nothing to free."""


DEFAULTS = {
    "gamma": 1.0,
    "ppo_epochs": 4,
    "actor_critic_share_weights": False,
    "train_for_env_steps": 100_000,
}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_env(ENV, lambda full_env_name: Village(), defaults=DEFAULTS)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
