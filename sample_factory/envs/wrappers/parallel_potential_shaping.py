"""Potential-based reward shaping for each agent of a PettingZoo parallel env."""

from collections.abc import Mapping
from typing import Any

from pettingzoo.utils import BaseParallelWrapper

from sample_factory.envs.wrappers.potential_shaping import Potential, ShapedEpisode


class ParallelPotentialShaping(BaseParallelWrapper):  # type: ignore[misc]
    """Adds gamma * phi(s') - phi(s) to the reward of each agent, where phi is a function of its observation
    and info; see PotentialShaping.

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
        self._episodes = {}
        for agent in self.env.agents:
            self._begin(agent, observations[agent], infos.get(agent, {}))
        return observations, infos

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, dict[Any, float], Any, Any, dict[Any, Any]]:
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        shaped = dict(rewards)
        infos = dict(infos)
        for agent, observation in observations.items():
            info = infos.get(agent, {})
            if agent not in self._episodes:  # has just joined
                self._begin(agent, observation, info)
                continue
            episode = self._episodes[agent]
            is_terminal = terminations.get(agent, False)
            shaped[agent] = episode.shape(observation, float(rewards.get(agent, 0.0)), is_terminal, info)
            if is_terminal or truncations.get(agent, False):
                infos[agent] = self._episodes.pop(agent).end_info(info)
        return observations, shaped, terminations, truncations, infos

    def _begin(self, agent: Any, observation: Any, info: Mapping[str, Any]) -> None:
        episode = ShapedEpisode(*self._shaping)
        episode.reset(observation, info)
        self._episodes[agent] = episode
