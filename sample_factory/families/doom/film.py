"""Pictures of a game for `render`, of every step or every tic: large ones, or those that the policy sees."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import vizdoom

from sample_factory.envs.protocol import Picture
from sample_factory.families.doom.engine import DoomEngine
from sample_factory.runtime.log import log

TICS_PER_SECOND = 35
EVERY_TIC = "rgb_array_list"
RENDER_MODES = ["rgb_array", EVERY_TIC]
WIDTH = 640
SPLIT_WIDTH = 960  # of more than two pictures in one, without the dividers
DIVIDER = 4  # pixels between them
# Equal in two engines only if they play the same game.
WITNESSES = (
    vizdoom.GameVariable.POSITION_X,
    vizdoom.GameVariable.POSITION_Y,
    vizdoom.GameVariable.ANGLE,
    vizdoom.GameVariable.HEALTH,
)


def render_metadata(render_mode: str | None, frameskip: int) -> dict[str, Any]:
    """Returns `metadata` of a Gymnasium env: render modes, and the pictures' frames per second."""
    fps = TICS_PER_SECOND if render_mode == EVERY_TIC else max(1, TICS_PER_SECOND // frameskip)
    return {"render_modes": RENDER_MODES, "render_fps": fps}


class Film:
    """Collects pictures of an engine's game for `render`.

    render_mode: "rgb_array" keeps the latest picture only, "rgb_array_list" all since the last `render`.
    """

    def __init__(self, engine: DoomEngine, render_mode: str, width: int = WIDTH):
        self.is_of_every_tic = render_mode == EVERY_TIC
        self._engine = engine
        self._width = width
        self._screens: list[np.ndarray] = []

    def add(self) -> None:
        """Takes a picture of the game's current state; does nothing if the episode has ended."""
        state = self._engine.game.get_state()
        if state is None:
            return
        if not self.is_of_every_tic:
            self._screens.clear()
        self._screens.append(state.screen_buffer)

    def render(self) -> Picture | list[Picture] | None:
        """Returns the latest picture, [height, width, 3] uint8; None before the first one.

        With render_mode "rgb_array_list": a list of the pictures since the last call.
        """
        screens = self._screens
        if not self.is_of_every_tic:
            return self._picture(screens[-1]) if screens else None
        self._screens = []
        return [self._picture(screen) for screen in screens]

    def _picture(self, screen: np.ndarray) -> Picture:
        import cv2  # not at the top of the file: training takes no pictures

        planes = screen if screen.ndim == 3 else [screen] * 3  # grey
        picture = cv2.merge(list(planes))  # a copy of the transposed array takes four times as long
        height = self._width * picture.shape[0] // picture.shape[1]
        enlarged: Picture = cv2.resize(picture, (self._width, height), interpolation=cv2.INTER_LINEAR)
        return enlarged


class Viewer:
    """Plays the game of an engine again in a second engine, which draws large pictures.

    Seeds and actions determine a game, so both games are the same. The policy still sees the pictures of the
    first engine: reduced pictures of the second one differ in details, such as the numbers at the bottom. A
    match of several engines cannot be repeated, because the timing of messages decides who starts where.
    """

    def __init__(self, played: DoomEngine, frameskip: int, render_mode: str):
        """Makes the second engine. played: engine whose game is repeated; must not have started yet."""
        self._played = played
        self._engine = DoomEngine(played.settings._replace(is_viewer=True))
        self._engine.bot_difficulty = played.bot_difficulty
        self._frameskip = frameskip
        self._has_warned = False
        self.film = Film(self._engine, render_mode)

    def follow_level(self) -> None:
        """Applies the skill and the map of the engine whose game is repeated, from the next episode on."""
        self._engine.change_level(self._played.settings._replace(is_viewer=True))

    def new_episode(self, seed: int) -> None:
        """Begins an episode, and takes its first picture. seed: the one with which the first engine has
        begun its current episode."""
        self._engine.new_episode(seed)
        self.film.add()

    def step(self, buttons: list[float]) -> None:
        """Plays a step with the button values of the first engine; warns once if the two games differ."""
        game = self._engine.game
        num_parts = self._frameskip if self.film.is_of_every_tic else 1
        for _ in range(num_parts):
            if not game.is_episode_finished():
                game.make_action(buttons, self._frameskip // num_parts)
                self.film.add()
        own, played = (
            [engine.game.get_game_variable(variable) for variable in WITNESSES]
            for engine in (self._engine, self._played)
        )
        if not self._has_warned and own != played:
            self._has_warned = True
            log.warning(
                "%s: the pictures no longer show the game that the policy plays; its results are right",
                self._played.settings.env_name,
            )

    def close(self) -> None:
        self._engine.close()


def split_grid(num_pictures: int) -> tuple[int, int]:
    """Returns the numbers of columns and rows of a split screen for `num_pictures` pictures."""
    num_columns = num_pictures if num_pictures <= 2 else math.ceil(math.sqrt(num_pictures))
    return num_columns, math.ceil(num_pictures / num_columns)


def split_width(num_pictures: int) -> int:
    """Returns the width in pixels of each picture of a split screen."""
    return WIDTH if num_pictures <= 2 else SPLIT_WIDTH // split_grid(num_pictures)[0]


def split_screen(pictures: Sequence[Picture]) -> Picture:
    """Joins pictures of equal size side by side, more than two in several rows, with black dividers."""
    height, width = pictures[0].shape[:2]
    num_columns, num_rows = split_grid(len(pictures))
    shape = (num_rows * (height + DIVIDER) - DIVIDER, num_columns * (width + DIVIDER) - DIVIDER, 3)
    screen = np.zeros(shape, np.uint8)
    for index, picture in enumerate(pictures):
        top = index // num_columns * (height + DIVIDER)
        left = index % num_columns * (width + DIVIDER)
        screen[top : top + height, left : left + width] = picture
    return screen
