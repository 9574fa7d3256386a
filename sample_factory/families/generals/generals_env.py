"""A duel in Generals as a PettingZoo parallel env of two agents, or as a single-agent env against a bot."""

import math
from collections.abc import Mapping
from typing import Any

import cv2
import gymnasium as gym
import numpy as np
import pettingzoo
from generals.agents import Agent, ExpanderAgent, RandomAgent
from generals.core.game import Game
from generals.core.grid import GridFactory

from sample_factory.envs.abilities import HoldsEnv, LimitsEpisodes, NamesActions, ScriptedPlayers
from sample_factory.envs.protocol import Info, Picture
from sample_factory.families.generals.map_observer import (
    PASS,
    MapObserver,
    Move,
    num_actions,
    to_action,
    to_move,
)

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
    """Plays a game without making the observations of the package `generals`, which are slow and which only
    bots need."""

    def agent_observation(self, agent: str) -> None:
        """Does nothing: `step` calls it for both players, but GeneralsEnv makes the observations."""


class GeneralsEnv(pettingzoo.ParallelEnv, ScriptedPlayers, NamesActions, LimitsEpisodes):  # type: ignore[misc]
    """A game of two players, as a ParallelEnv: each observes a dict of `obs`, planes [C, side, side] float32,
    and `action_mask`.

    The reward is 1 for a win and -1 for a loss; the true objective is 1, 0, or 0.5 for a draw. Infos have
    `assets`: for land, army and castles (cities and the general), the counts of the player and of its enemy.
    """

    metadata = {"name": "generals", "render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(
        self, side: int, factory: GridFactory, time_limit: int, with_memory: bool, render_mode: str | None
    ):
        """Makes a game of two players. side: height and width of the observation; smaller maps are padded
        with mountains.

        factory: generates the maps. time_limit: number of turns after which a game is drawn.
        with_memory: adds planes of what a player has seen before.
        """
        self.render_mode = render_mode
        self.possible_agents = ["red", "blue"]
        self.agents: list[str] = []
        self._side = side
        self._factory = factory
        self._time_limit = time_limit
        self._rng = np.random.default_rng()
        self._observers = {name: MapObserver(side, with_memory, time_limit) for name in self.possible_agents}
        shape = self._observers["red"].num_planes, side, side
        self._observation_space = gym.spaces.Dict(
            {
                "obs": gym.spaces.Box(-np.inf, np.inf, shape, np.float32),
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
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            np.random.seed(seed % 2**32)  # the bots of the package use the global generator
        self._factory.set_rng(self._rng)
        self.agents = list(self.possible_agents)
        self._game = LeanGame(self._factory.generate(), self.possible_agents)
        self._last_moves = dict.fromkeys(self.agents, PASS)
        for observer in self._observers.values():
            observer.reset()
        return self._observe(self._game), _assets(self._game, self._game.get_infos())

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        game = self._game
        assert game is not None, "reset comes first"
        self._last_moves = {name: to_move(int(actions[name]), self._side) for name in self.possible_agents}
        _, stats = game.step(dict(self._last_moves))
        is_won = game.is_done()
        is_cut = not is_won and game.time >= self._time_limit
        rewards = dict.fromkeys(self.possible_agents, -1.0 if is_won else 0.0)
        if is_won:
            rewards[game.winner] = 1.0
        infos = _assets(game, stats)
        if is_won or is_cut:
            self.agents = []
            for name, info in infos.items():
                info["true_objective"] = (1 + rewards[name]) / 2
                info["episode_extra_stats"] = {
                    "won": float(rewards[name] > 0),
                    "drawn": float(is_cut),
                    "turns": float(game.time),
                    "land": float(info["assets"][0][0]),
                }
        ended, cut = (dict.fromkeys(rewards, flag) for flag in (is_won, is_cut))
        return self._observe(game), rewards, ended, cut, infos

    def _observe(self, game: LeanGame) -> dict[str, Any]:
        observations = {}
        for name, enemy in zip(self.possible_agents, reversed(self.possible_agents)):
            seen = self._observers[name].observe(game, name, enemy, self._last_moves[name])
            observations[name] = {"obs": seen[0], "action_mask": seen[1]}
        return observations

    def scripted_players(self) -> tuple[str, ...]:
        return tuple(BOTS)

    def scripted_action(self, player: str, agent: int) -> int:
        assert self._game is not None, "reset comes first"
        seen = Game.agent_observation(self._game, self.possible_agents[agent])
        return to_action(self._bots[player].act(seen), self._side)

    def action_text(self, action: Any) -> str:
        move: Move = to_move(int(action), self._side)
        if move.is_pass:
            return "pass"
        armies = "half" if move.is_split else "all"
        return f"{armies} {DIRECTION_NAMES[move.direction]} from row {move.row}, column {move.column}"

    def render(self) -> Picture | None:
        return None if self.render_mode is None or self._game is None else draw_game(self._game)

    def close(self) -> None:
        """Does nothing: a game in Python holds no resources. PettingZoo's API needs the method."""


def _assets(game: Game, stats: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the info of each player, with `assets`: land, army and castles, each as (player's, enemy's),
    whether or not the player can see them."""
    channels = game.channels
    castles = channels.cities | channels.generals
    red, blue = (
        (int(own["land"]), int(own["army"]), int(np.count_nonzero(castles & channels.ownership[name])))
        for name, own in stats.items()
    )
    return {"red": {"assets": tuple(zip(red, blue))}, "blue": {"assets": tuple(zip(blue, red))}}


def assets_potential(observation: Any, info: Info) -> float:
    """Returns the potential of a player for reward shaping: how far ahead it is, -1 to 1, by the ratios of
    land, army and castles.

    Logarithms of ratios as of Straka and Schmid 2025 (arXiv:2507.06825), with a lower limit, since games on
    small maps are decided by smaller ratios.
    """
    potential = 0.0
    for weight, (own, enemy) in zip(POTENTIAL_WEIGHTS, info["assets"], strict=True):
        log_ratio = math.log(max(own, 1) / max(enemy, 1), MAX_RATIO)
        potential += weight * min(max(log_ratio, -1.0), 1.0)
    return potential


class AgainstBot(gym.Env[Any, int], HoldsEnv, ScriptedPlayers):
    """Turns a GeneralsEnv into a single-agent env, in which a bot plays the second side. Which side the agent
    plays is drawn for each game."""

    metadata = GeneralsEnv.metadata

    def __init__(self, duel: pettingzoo.ParallelEnv, bot: str):
        """Wraps a game of two players. duel: a GeneralsEnv, possibly in wrappers. bot: a name in BOTS."""
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
    """Draws the whole map without fog; returns [height, width, 3] uint8.

    A gold ring marks a general, a white square a city; below are the turn, and each player's land and army.
    """
    channels = game.channels
    colors: Picture = np.full((*game.grid_dims, 3), FREE, np.uint8)
    colors[channels.mountains] = MOUNTAIN
    colors[channels.cities] = CITY
    for player, color in zip(game.agents, PLAYER_COLORS):
        colors[channels.ownership[player]] = color
    fields = colors.repeat(FIELD, 0).repeat(FIELD, 1)
    fields[FIELD - 1 :: FIELD] = GRID_LINE
    fields[:, FIELD - 1 :: FIELD] = GRID_LINE
    height, width = fields.shape[:2]
    picture: Picture = np.pad(fields, ((0, STATUS_HEIGHT), (0, max(0, 8 * FIELD - width)), (0, 0)))
    for y, x in np.argwhere(channels.armies) * FIELD + FIELD // 2:
        army = str(channels.armies[y // FIELD, x // FIELD])
        cv2.putText(picture, army, (x - 4 * len(army), y + 4), FONT, 0.4, TEXT, 1, cv2.LINE_AA)
    for y, x in np.argwhere(channels.generals) * FIELD + FIELD // 2:
        cv2.circle(picture, (x, y), FIELD // 2 - 2, GENERAL_RING, 2)
    for y, x in np.argwhere(channels.cities) * FIELD:
        cv2.rectangle(picture, (x + 3, y + 3), (x + FIELD - 4, y + FIELD - 4), TEXT, 1)
    cv2.putText(picture, str(game.time), (4, height + 16), FONT, 0.4, TEXT, 1, cv2.LINE_AA)
    stats = game.get_infos()
    for i, (player, color) in enumerate(zip(game.agents, PLAYER_COLORS)):
        text = f"{stats[player]['land']} / {stats[player]['army']}"
        left = 4 + (2 + 3 * i) * FIELD
        cv2.putText(picture, text, (left, height + 16), FONT, 0.4, color, 1, cv2.LINE_AA)
    return picture
