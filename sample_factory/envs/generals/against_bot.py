"""Generals as a single-agent env, against a bot of the package."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import pettingzoo

from sample_factory.envs.abilities import LimitsEpisodes, NamesActions, ScriptedPlayers
from sample_factory.envs.generals.generals_env import GeneralsEnv
from sample_factory.envs.protocol import Picture


class AgainstBot(gym.Env[Any, int], ScriptedPlayers, NamesActions, LimitsEpisodes):
    """One side of a duel; a bot plays the other. The sides are drawn for each game."""

    metadata = GeneralsEnv.metadata

    def __init__(self, duel: pettingzoo.ParallelEnv, bot: str):
        """duel: a GeneralsEnv, possibly in wrappers. bot: a name in BOTS."""
        self._duel = duel
        self._game: GeneralsEnv = duel.unwrapped
        self._bot = bot
        self._side = 0
        self.render_mode = self._game.render_mode
        self.observation_space = self._game.observation_space("red")
        self.action_space = self._game.action_space("red")

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self._side = int(self.np_random.integers(2))
        observations, infos = self._duel.reset(seed=seed)
        name = self._game.possible_agents[self._side]
        return observations[name], infos[name]

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        own, other = self._game.possible_agents[:: 1 - 2 * self._side]
        reply = self._game.scripted_action(self._bot, 1 - self._side)
        results = self._duel.step({own: action, other: reply})
        observation, reward, terminated, truncated, info = (result[own] for result in results)
        return observation, reward, terminated, truncated, info

    def scripted_players(self) -> tuple[str, ...]:
        return self._game.scripted_players()

    def scripted_action(self, player: str, agent: int) -> int:
        return self._game.scripted_action(player, self._side)

    def action_text(self, action: Any) -> str:
        return self._game.action_text(action)

    def max_episode_steps(self) -> int:
        return self._game.max_episode_steps()

    def render(self) -> Picture | None:
        return self._game.render()

    def close(self) -> None:
        self._duel.close()
