"""A duel in Generals as a PettingZoo parallel env of two agents."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pettingzoo
from generals.agents import Agent, ExpanderAgent, RandomAgent
from generals.core.action import Action
from generals.core.game import Game
from generals.core.grid import GridFactory
from generals.core.observation import Observation

from sample_factory.envs.abilities import LimitsEpisodes, NamesActions, ScriptedPlayers
from sample_factory.envs.generals.map_observer import (
    PASS,
    MapObserver,
    Move,
    num_actions,
    to_action,
    to_move,
)
from sample_factory.envs.generals.picture import draw_game
from sample_factory.envs.protocol import Info, Picture

DIRECTION_NAMES = ("up", "down", "left", "right")
BOTS: Mapping[str, type[Agent]] = {"random": RandomAgent, "expander": ExpanderAgent}
POTENTIAL_WEIGHTS = (0.3, 0.3, 0.4)  # of land, army and castles
MAX_RATIO = 4.0  # at which the potential is largest: such a game is nearly won


class GameSettings(NamedTuple):
    """The rules of an env's games. side: of the observation; min_side: None for the maps of the site."""

    side: int
    min_side: int | None
    mountains: float
    cities: float
    time_limit: int
    with_memory: bool


class LeanGame(Game):  # type: ignore[misc]
    """A game that makes observations of the package only where a bot needs them: they take long."""

    def agent_observation(self, agent: str) -> None:
        """Returns nothing: `step` calls it for both players, and the env observes by itself."""

    def observe_for_bot(self, agent: str) -> Observation:
        """Returns an observation of the package."""
        return super().agent_observation(agent)


class GeneralsEnv(
    pettingzoo.ParallelEnv,  # type: ignore[misc]
    ScriptedPlayers,
    NamesActions,
    LimitsEpisodes,
):
    """Two players, each with a dict of `obs`, planes [C, side, side] float32, and `action_mask`.

    The reward is 1 for a win and -1 for a loss; the true objective is 1, 0, or 0.5 for a draw. Infos have
    `assets`: for land, army and castles (cities and the general), the counts of the player and of its enemy.
    """

    metadata = {"name": "generals", "render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, settings: GameSettings, render_mode: str | None = None):
        self.render_mode = render_mode
        self.possible_agents = ["red", "blue"]
        self.agents: list[str] = []
        self._settings = settings
        self._rng = np.random.default_rng()
        side = settings.side
        self._observers = {
            name: MapObserver(side, settings.with_memory, settings.time_limit)
            for name in self.possible_agents
        }
        num_planes = self._observers["red"].num_planes
        self._observation_space = gym.spaces.Dict(
            {
                "obs": gym.spaces.Box(-np.inf, np.inf, (num_planes, side, side), np.float32),
                "action_mask": gym.spaces.Box(0, 1, (num_actions(side),), np.int8),
            }
        )
        self._action_space = gym.spaces.Discrete(num_actions(side))
        self._bots = {name: bot() for name, bot in BOTS.items()}
        self._game: LeanGame | None = None
        self._last_moves = dict.fromkeys(self.possible_agents, PASS)

    def observation_space(self, agent: str) -> gym.spaces.Dict:
        return self._observation_space

    def action_space(self, agent: str) -> gym.spaces.Discrete:
        return self._action_space

    def max_episode_steps(self) -> int:
        return self._settings.time_limit

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Info]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            np.random.seed(seed % 2**32)  # the bots of the package use the global generator
        grids = self._grid_factory()
        grids.set_rng(self._rng)
        self.agents = list(self.possible_agents)
        self._game = LeanGame(grids.generate(), self.possible_agents)
        self._last_moves = dict.fromkeys(self.agents, PASS)
        for observer in self._observers.values():
            observer.reset()
        stats = self._game.get_infos()
        return self._observe(), {name: {"assets": self._assets(name, stats)} for name in self.agents}

    def _grid_factory(self) -> GridFactory:
        settings = self._settings
        if settings.min_side is None:
            return GridFactory("generalsio")
        sizes = (settings.min_side,) * 2, (settings.side,) * 2
        return GridFactory("uniform", *sizes, settings.mountains, settings.cities)

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        assert self._game is not None, "reset comes first"
        self._last_moves = {
            name: to_move(int(actions[name]), self._settings.side) for name in self.possible_agents
        }
        _, stats = self._game.step(dict(self._last_moves))
        is_won = self._game.is_done()
        is_cut = not is_won and self._game.time >= self._settings.time_limit
        results = {name: 2 * int(stats[name]["is_winner"]) - 1 if is_won else 0 for name in stats}
        infos: dict[str, dict[str, Any]] = {name: {"assets": self._assets(name, stats)} for name in stats}
        if is_won or is_cut:
            for name, info in infos.items():
                info.update(self._end_info(results[name], stats[name]["land"]))
            self.agents = []
        return (
            self._observe(),
            {name: float(result) for name, result in results.items()},
            dict.fromkeys(results, is_won),
            dict.fromkeys(results, is_cut),
            infos,
        )

    def _observe(self) -> dict[str, Any]:
        assert self._game is not None
        observations = {}
        for name, enemy in zip(self.possible_agents, reversed(self.possible_agents)):
            seen = self._observers[name].observe(self._game, name, enemy, self._last_moves[name])
            observations[name] = {"obs": seen[0], "action_mask": seen[1]}
        return observations

    def _assets(self, name: str, stats: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
        """Returns (own, enemy's) land, army and castles, also those that the player does not see."""
        assert self._game is not None
        (enemy,) = set(self.possible_agents) - {name}
        channels = self._game.channels
        castles = channels.cities | channels.generals
        own_castles, enemy_castles = (
            int(np.count_nonzero(castles & channels.ownership[player])) for player in (name, enemy)
        )
        return (
            (int(stats[name]["land"]), int(stats[enemy]["land"])),
            (int(stats[name]["army"]), int(stats[enemy]["army"])),
            (own_castles, enemy_castles),
        )

    def _end_info(self, result: int, land: int) -> dict[str, Any]:
        """result: 1 for a win, -1 for a loss, 0 for a draw."""
        assert self._game is not None
        return {
            "true_objective": (1 + result) / 2,
            "episode_extra_stats": {
                "won": float(result > 0),
                "drawn": float(result == 0),
                "turns": float(self._game.time),
                "land": float(land),
            },
        }

    def scripted_players(self) -> tuple[str, ...]:
        return tuple(BOTS)

    def scripted_action(self, player: str, agent: int) -> int:
        assert self._game is not None, "reset comes first"
        seen = self._game.observe_for_bot(self.possible_agents[agent])
        move: Action = self._bots[player].act(seen)
        return to_action(move, self._settings.side)

    def action_text(self, action: Any) -> str:
        move: Move = to_move(int(action), self._settings.side)
        if move.is_pass:
            return "pass"
        armies = "half" if move.is_split else "all"
        return f"{armies} {DIRECTION_NAMES[move.direction]} from row {move.row}, column {move.column}"

    def render(self) -> Picture | None:
        return None if self.render_mode is None or self._game is None else draw_game(self._game)

    def close(self) -> None:
        """Does nothing: there is nothing to free."""


def assets_potential(observation: Any, info: Info) -> float:
    """Returns how far ahead a player is, -1 to 1, by the ratios of land, army and castles.

    Logarithms of ratios as of Straka and Schmid 2025 (arXiv:2507.06825), with a lower limit, since games on
    small maps are decided by smaller ratios.
    """
    potential = 0.0
    for weight, (own, enemy) in zip(POTENTIAL_WEIGHTS, info["assets"], strict=True):
        log_ratio = math.log(max(own, 1) / max(enemy, 1), MAX_RATIO)
        potential += weight * min(max(log_ratio, -1.0), 1.0)
    return potential
