"""Repeated actions: an env steps several times with each action of the policy."""

import numpy as np

from sample_factory.envs.protocol import MultiAgentEnv, ObservationRows, Picture, StepResult


def repeat_actions(env: MultiAgentEnv, times: int) -> MultiAgentEnv:
    """Returns the env with `times` steps for each action; the env itself for 1."""
    return env if times == 1 else ActionRepeat(env, times)


class ActionRepeat:
    """A MultiAgentEnv that steps several times with the same actions, until an episode ends.

    The rewards of the steps are added up. The observations are those after the last step.
    """

    def __init__(self, env: MultiAgentEnv, times: int):
        self.env = env.env
        self.num_agents = env.num_agents
        self.kinds = env.kinds
        self.reward_shaping = env.reward_shaping
        self.process = env.process
        self.training_info = env.training_info
        self._env = env
        self._times = times

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        """Starts the first episode of every agent. Returns `active` as in StepResult."""
        return self._env.reset(seed, into)

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        """Acts with every agent, several times."""
        rewards = np.zeros(self.num_agents)
        for _ in range(self._times):
            result = self._env.step(actions, into)
            rewards += result.rewards
            if np.any(result.terminated) or np.any(result.truncated):
                break
        return result._replace(rewards=rewards)

    def render(self) -> Picture | list[Picture] | None:
        """Returns a picture of the last step, as the env draws it."""
        return self._env.render()

    def close(self) -> None:
        """Closes the env."""
        self._env.close()
