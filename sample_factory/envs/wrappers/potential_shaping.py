"""Potential-based reward shaping, for Gymnasium and PettingZoo envs (Ng, Harada and Russell 1999).

F(s, s') = gamma * phi(s') - phi(s) is added to the reward. The potential of a terminal state counts as 0,
which keeps the optimal policy in episodic tasks too (Grzes 2017). A truncated episode does not end there: its
last state keeps its potential, as it keeps its value.
"""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

try:
    from pettingzoo.utils import BaseParallelWrapper
except ImportError:  # then there is no env to wrap
    BaseParallelWrapper = object

from sample_factory.envs.contract import to_number
from sample_factory.envs.conventions import TRUNCATED, convention_of
from sample_factory.envs.end_infos import true_objective
from sample_factory.envs.protocol import EPISODE_CONTINUES

Potential = Callable[[Any, Mapping[str, Any]], float]


class ShapedEpisode:
    """Shapes the rewards of one agent's episode, and sums its unshaped rewards in `unshaped_return`."""

    def __init__(
        self, potential: Potential, gamma: float, weight: float, observation: Any, info: Mapping[str, Any]
    ):
        """Begins an episode in the state that `observation` and `info` describe. potential, gamma, weight:
        see PotentialShaping."""
        self._potential = potential
        self._gamma = gamma
        self._weight = weight
        self._phi = weight * potential(observation, info)
        self.unshaped_return = 0.0

    def shape(self, observation: Any, reward: float, terminated: bool, info: Mapping[str, Any]) -> float:
        """Returns the shaped reward of a step. observation, info: what the step returned. If the observation
        is None, the potential stays that of the previous state; a terminal state has the potential 0."""
        self.unshaped_return += reward
        phi = self._phi
        if terminated:
            phi = 0.0
        elif observation is not None:
            phi = self._weight * self._potential(observation, info)
        shaped = reward + self._gamma * phi - self._phi
        self._phi = phi
        return shaped

    def end_info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the info of the episode's end, in which the unshaped return is the true objective unless
        the env reports one."""
        return {**info, "true_objective": true_objective(info, self.unshaped_return)}


class PotentialShaping(gym.Wrapper):
    """Adds gamma * phi(s') - phi(s) to the reward of a single-agent env; optimal policies stay optimal.

    An end that is both terminated and truncated counts as the table of conventions says. The unshaped return
    is reported as the true objective unless the env reports one itself; where lost lives end episodes
    (EPISODE_CONTINUES), it is the return of the whole game.
    """

    def __init__(self, env: "gym.Env[Any, Any]", potential: Potential, gamma: float, weight: float = 1.0):
        """Wraps `env`. potential: function of (observation, info) that returns phi of the state. gamma:
        discount, as in training. weight: factor of phi."""
        super().__init__(env)
        self._both_are_a_limit = convention_of(env).both_ends == TRUNCATED
        self._shaping = (potential, gamma, weight)
        self._return_before = 0.0  # of the lives before the next episode

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self._episode = ShapedEpisode(*self._shaping, observation, info)
        self._episode.unshaped_return, self._return_before = self._return_before, 0.0
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        is_terminal = bool(terminated) and not (truncated and self._both_are_a_limit)
        shaped = self._episode.shape(observation, to_number(reward), is_terminal, info)
        if terminated or truncated:
            info = self._episode.end_info(info)
            if info.get(EPISODE_CONTINUES):
                self._return_before = self._episode.unshaped_return
        return observation, shaped, terminated, truncated, info


class ParallelPotentialShaping(BaseParallelWrapper):  # type: ignore[misc]
    """Shapes the reward of each agent of a PettingZoo ParallelEnv, by its observation and info.

    With a potential for each agent, the Nash equilibria of a game stay the same (Devlin and Kudenko 2011).
    """

    def __init__(self, env: Any, potential: Potential, gamma: float, weight: float = 1.0):
        super().__init__(env)
        self._shaping = (potential, gamma, weight)
        self._episodes: dict[Any, ShapedEpisode] = {}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Any, Any], dict[Any, dict[str, Any]]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._episodes = {
            agent: ShapedEpisode(*self._shaping, observations[agent], infos.get(agent, {}))
            for agent in self.env.agents
        }
        return observations, infos

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, dict[Any, float], Any, Any, dict[Any, Any]]:
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        shaped = dict(rewards)
        infos = dict(infos)
        for agent in dict.fromkeys([*observations, *self._episodes]):
            observation = observations.get(agent)
            info = infos.get(agent, {})
            if agent not in self._episodes:  # has just joined
                self._episodes[agent] = ShapedEpisode(*self._shaping, observation, info)
                continue
            is_terminal = bool(terminations.get(agent, False))
            # Without agents, the adapter truncates all that have no end of their own.
            has_ended = is_terminal or truncations.get(agent, False) or not self.env.agents
            if observation is None and not has_ended:
                continue
            reward = to_number(rewards.get(agent, 0.0))
            shaped[agent] = self._episodes[agent].shape(observation, reward, is_terminal, info)
            if has_ended:  # with or without a last observation
                infos[agent] = self._episodes.pop(agent).end_info(info)
        return observations, shaped, terminations, truncations, infos
