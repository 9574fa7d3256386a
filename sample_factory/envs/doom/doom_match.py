"""A Doom match with several learning players as a multi-agent env."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from sample_factory.envs.abilities import RewardShaping
from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.lockstep import Lockstep
from sample_factory.envs.doom.player import EVERY_TIC, DoomPlayer, render_metadata
from sample_factory.envs.protocol import EMPTY_INFO

Observations = list[dict[str, np.ndarray]]


class DoomMatch(gymnasium.Env, RewardShaping):
    """A multi-agent env: one agent for each engine. Observations are those of DoomPlayer.

    The engines' processes start with the first reset. Their exceptions and MatchBroken pass through; close
    the env then and make another one. A match ends for all players at once, by the clock: a truncation. A new
    one begins in the same step.
    """

    is_multiagent = True

    def __init__(
        self,
        spec: DoomSpec,
        engines: Sequence[DoomEngine],
        frameskip: int,
        resolution: tuple[int, int],
        render_mode: str | None = None,
    ):
        self.metadata, self.render_mode = render_metadata(render_mode, frameskip), render_mode
        self.num_agents, self._frameskip = len(engines), frameskip
        self._players = [DoomPlayer(spec, engine, resolution, render_mode) for engine in engines]
        self._lockstep = Lockstep(engines, spec.name)
        self._bot_difficulty = engines[0].bot_difficulty
        self.observation_space = self._players[0].observation_space
        self.action_space = self._players[0].action_space
        self._returns = np.zeros(self.num_agents)  # what the engines have given in this match

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Starts a match, on fresh engines if there is a seed: observations and infos of all agents."""
        super().reset(seed=seed)
        if self._lockstep.is_running and seed is not None:
            self._lockstep.close()
        return self._new_match(), [{}] * self.num_agents

    def step(self, actions: Sequence[Any]):
        """Plays `frameskip` tics: observations, rewards, terminated, truncated, infos, an entry per agent."""
        buttons = [player.buttons(action) for player, action in zip(self._players, actions, strict=True)]
        after_tic = self._film_tic if self.render_mode == EVERY_TIC else None
        is_over = self._lockstep.play(buttons, self._frameskip, after_tic)
        returns = np.array([player.engine.game.get_total_reward() for player in self._players])
        gained, self._returns = returns - self._returns, returns
        never = [False] * self.num_agents
        if is_over:
            rewards, infos = self._results(gained)
            return self._new_match(), rewards, never, [True] * self.num_agents, infos
        observations = self._empty()
        rewards = [
            player.step(float(reward), into)
            for player, reward, into in zip(self._players, gained, observations)
        ]
        return observations, rewards, never, never, [EMPTY_INFO] * self.num_agents

    def render(self) -> np.ndarray | list[np.ndarray] | None:
        """The players' pictures side by side; see DoomPlayer.render."""
        pictures = [player.render() for player in self._players]
        if self.render_mode == EVERY_TIC:
            return [np.hstack(of_tic) for of_tic in zip(*pictures)]
        return None if pictures[0] is None else np.hstack(pictures)

    def close(self) -> None:
        self._lockstep.close()

    def get_default_reward_shaping(self) -> dict[str, Any]:
        return self._players[0].default_shaping()

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        self._players[agent].set_shaping(shaping)

    def _new_match(self) -> Observations:
        seed = int(self.np_random.integers(2**32))
        if self._lockstep.is_running and self._players[0].engine.has_lost_players():
            self._lockstep.close()  # the next start waits for people
        if not self._lockstep.is_running:
            self._lockstep.start(seed)
        self._lockstep.new_episode(seed)
        self._returns[:] = 0.0
        observations = self._empty()
        for player, into in zip(self._players, observations):
            player.start(into)
        return observations

    def _results(self, gained: np.ndarray) -> tuple[list[float], list[dict[str, Any]]]:
        """Last rewards and infos of all players."""
        rewards, infos = zip(*[player.end(float(r)) for player, r in zip(self._players, gained)])
        if self._bot_difficulty is not None:
            self._bot_difficulty.update(infos[0]["episode_extra_stats"])
        return list(rewards), list(infos)

    def _film_tic(self) -> None:
        for player in self._players:
            player.film_tic()

    def _empty(self) -> Observations:
        spaces = self.observation_space.spaces.items()
        return [
            {key: np.empty(space.shape, space.dtype) for key, space in spaces} for _ in range(self.num_agents)
        ]
