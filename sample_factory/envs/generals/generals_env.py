"""A duel in Generals as a PettingZoo parallel env of two agents, or as a single-agent env against a bot."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import cv2
import gymnasium as gym
import numpy as np
import pettingzoo
from generals.agents import Agent, ExpanderAgent, RandomAgent
from generals.core.action import Action
from generals.core.game import Game
from generals.core.grid import GridFactory
from generals.core.observation import Observation

from sample_factory.envs.abilities import HoldsEnv, LimitsEpisodes, NamesActions, ScriptedPlayers
from sample_factory.envs.generals.map_observer import (
    PASS,
    MapObserver,
    Move,
    num_actions,
    to_action,
    to_move,
)
from sample_factory.envs.protocol import Info, Picture

if TYPE_CHECKING:
    from sample_factory.envs.generals.generals_family import MapSpec

DIRECTION_NAMES = ("up", "down", "left", "right")
BOTS: Mapping[str, type[Agent]] = {"random": RandomAgent, "expander": ExpanderAgent}
POTENTIAL_WEIGHTS = (0.3, 0.3, 0.4)  # of land, army and castles
MAX_RATIO = 4.0  # at which the potential is largest: such a game is nearly won

# Pictures are drawn with OpenCV: the window of the package needs the only display of pygame.
FIELD = 32  # pixels
STATUS_HEIGHT = 24  # pixels
PLAYER_COLORS = ((200, 70, 70), (60, 110, 220))
FREE = (210, 210, 210)
MOUNTAIN = (70, 70, 70)
CITY = (130, 130, 130)
GRID_LINE = (40, 40, 40)
TEXT = (255, 255, 255)
GENERAL_RING = (255, 215, 0)
FONT = cv2.FONT_HERSHEY_SIMPLEX


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

    def __init__(self, spec: "MapSpec", cfg: Any, render_mode: str | None = None):
        """cfg: has the flags of GeneralsFlags."""
        self.render_mode = render_mode
        self.possible_agents = ["red", "blue"]
        self.agents: list[str] = []
        self._spec = spec
        self._cfg = cfg
        self._time_limit = cfg.generals_time_limit or spec.time_limit
        self._rng = np.random.default_rng()
        side = spec.side
        self._observers = {
            name: MapObserver(side, cfg.generals_memory, self._time_limit) for name in self.possible_agents
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
        return self._time_limit

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
        if self._spec.is_online:
            return GridFactory("generalsio")
        largest = self._spec.side
        smallest = self._cfg.generals_grid_size or largest
        shares = self._cfg.generals_mountains, self._cfg.generals_cities
        return GridFactory("uniform", (smallest, smallest), (largest, largest), *shares)

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        assert self._game is not None, "reset comes first"
        side = self._spec.side
        self._last_moves = {name: to_move(int(actions[name]), side) for name in self.possible_agents}
        _, stats = self._game.step(dict(self._last_moves))
        is_won = self._game.is_done()
        is_cut = not is_won and self._game.time >= self._time_limit
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
        counts = [
            (
                int(stats[player]["land"]),
                int(stats[player]["army"]),
                int(np.count_nonzero(castles & channels.ownership[player])),
            )
            for player in (name, enemy)
        ]
        return tuple(zip(*counts))

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
        return to_action(move, self._spec.side)

    def action_text(self, action: Any) -> str:
        move: Move = to_move(int(action), self._spec.side)
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


class AgainstBot(gym.Env[Any, int], HoldsEnv, ScriptedPlayers):
    """One side of a duel; a bot plays the other. The sides are drawn for each game."""

    metadata = GeneralsEnv.metadata

    def __init__(self, duel: pettingzoo.ParallelEnv, bot: str):
        """duel: a GeneralsEnv, possibly in wrappers. bot: a name in BOTS."""
        self.env = duel
        self._game: GeneralsEnv = duel.unwrapped
        self._bot = bot
        self._side = 0
        self.render_mode = self._game.render_mode
        self.observation_space = self._game.observation_space("red")
        self.action_space = self._game.action_space("red")

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self._side = int(self.np_random.integers(2))
        observations, infos = self.env.reset(seed=seed)
        name = self._game.possible_agents[self._side]
        return observations[name], infos[name]

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        own, other = self._game.possible_agents[:: 1 - 2 * self._side]
        reply = self._game.scripted_action(self._bot, 1 - self._side)
        results = self.env.step({own: action, other: reply})
        observation, reward, terminated, truncated, info = (result[own] for result in results)
        return observation, reward, terminated, truncated, info

    def scripted_players(self) -> tuple[str, ...]:
        return self._game.scripted_players()

    def scripted_action(self, player: str, agent: int) -> int:
        return self._game.scripted_action(player, self._side)

    def render(self) -> Picture | None:
        return self._game.render()

    def close(self) -> None:
        self.env.close()


def draw_game(game: Game) -> Picture:
    """Returns the whole map without fog, [height, width, 3] uint8.

    A gold ring marks a general, a white square a city; below are the turn, and each player's land and army.
    """
    rows, columns = game.grid_dims
    width = max(columns * FIELD, 8 * FIELD)
    picture = np.zeros((rows * FIELD + STATUS_HEIGHT, width, 3), np.uint8)
    channels = game.channels
    for row in range(rows):
        for column in range(columns):
            color = MOUNTAIN if channels.mountains[row, column] else FREE
            if channels.cities[row, column]:
                color = CITY
            for player, player_color in zip(game.agents, PLAYER_COLORS):
                if channels.ownership[player][row, column]:
                    color = player_color
            _draw_field(picture, row, column, color, int(channels.armies[row, column]))
            left, top = column * FIELD, row * FIELD
            if channels.generals[row, column]:
                cv2.circle(picture, (left + FIELD // 2, top + FIELD // 2), FIELD // 2 - 2, GENERAL_RING, 2)
            elif channels.cities[row, column]:
                cv2.rectangle(picture, (left + 3, top + 3), (left + FIELD - 4, top + FIELD - 4), TEXT, 1)
    _draw_status(picture, game, rows * FIELD)
    return picture


def _draw_field(picture: Picture, row: int, column: int, color: tuple[int, int, int], army: int) -> None:
    top = row * FIELD
    left = column * FIELD
    picture[top : top + FIELD, left : left + FIELD] = GRID_LINE
    picture[top : top + FIELD - 1, left : left + FIELD - 1] = color
    if army:
        text = str(army)
        place = (left + FIELD // 2 - 4 * len(text), top + FIELD // 2 + 4)
        cv2.putText(picture, text, place, FONT, 0.4, TEXT, 1, cv2.LINE_AA)


def _draw_status(picture: Picture, game: Game, top: int) -> None:
    stats = game.get_infos()
    left = 4
    cv2.putText(picture, str(game.time), (left, top + 16), FONT, 0.4, TEXT, 1, cv2.LINE_AA)
    for player, color in zip(game.agents, PLAYER_COLORS):
        left += 2 * FIELD
        text = f"{stats[player]['land']} / {stats[player]['army']}"
        cv2.putText(picture, text, (left, top + 16), FONT, 0.4, color, 1, cv2.LINE_AA)
        left += FIELD
