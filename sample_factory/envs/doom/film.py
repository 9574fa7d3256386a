"""Pictures of a game: of every step, or of every tic."""

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.protocol import Picture

TICS_PER_SECOND = 35
EVERY_TIC = "rgb_array_list"
RENDER_MODES = ["rgb_array", EVERY_TIC]
WIDTH = 640
SPLIT_WIDTH = 960  # of more than two pictures in one, without the dividers
DIVIDER = 4  # pixels between them


def render_metadata(render_mode: str | None, frameskip: int) -> dict[str, Any]:
    """Returns the `metadata` of an env that renders a picture of every step, or of every tic."""
    fps = TICS_PER_SECOND if render_mode == EVERY_TIC else max(1, TICS_PER_SECOND // frameskip)
    return {"render_modes": RENDER_MODES, "render_fps": fps}


class Film:
    """Takes pictures of an engine's game.

    render_mode: "rgb_array" keeps the latest picture only, "rgb_array_list" all since the last `take_all`.
    """

    def __init__(self, engine: DoomEngine, render_mode: str, width: int = WIDTH):
        self.is_of_every_tic = render_mode == EVERY_TIC
        self._engine = engine
        self._width = width
        self._screens: list[np.ndarray] = []

    def add(self) -> None:
        """Takes a picture of the game as it is now, if its episode has not ended."""
        state = self._engine.game.get_state()
        if state is None:
            return
        if not self.is_of_every_tic:
            self._screens.clear()
        self._screens.append(state.screen_buffer)

    def latest(self) -> Picture | None:
        """Returns the latest picture, [height, width, 3]; None before the first one."""
        return self._picture(self._screens[-1]) if self._screens else None

    def take_all(self) -> list[Picture]:
        """Returns the pictures since the last call."""
        screens = self._screens
        self._screens = []
        return [self._picture(screen) for screen in screens]

    def _picture(self, screen: np.ndarray) -> Picture:
        """Converts planes [3, height, width] into a picture of the film's width."""
        picture = cv2.merge(list(screen))  # a copy of the transposed array takes four times as long
        height = self._width * picture.shape[0] // picture.shape[1]
        enlarged: Picture = cv2.resize(picture, (self._width, height), interpolation=cv2.INTER_LINEAR)
        return enlarged


def split_grid(num_pictures: int) -> tuple[int, int]:
    """Returns the numbers of columns and rows of a split screen."""
    num_columns = num_pictures if num_pictures <= 2 else math.ceil(math.sqrt(num_pictures))
    return num_columns, math.ceil(num_pictures / num_columns)


def split_width(num_pictures: int) -> int:
    """Returns the width of each picture of a split screen."""
    return WIDTH if num_pictures <= 2 else SPLIT_WIDTH // split_grid(num_pictures)[0]


def split_screen(pictures: Sequence[Picture]) -> Picture:
    """Returns pictures of equal size side by side, more than two in several rows, with black dividers."""
    height, width = pictures[0].shape[:2]
    num_columns, num_rows = split_grid(len(pictures))
    shape = (num_rows * (height + DIVIDER) - DIVIDER, num_columns * (width + DIVIDER) - DIVIDER, 3)
    screen = np.zeros(shape, np.uint8)
    for index, picture in enumerate(pictures):
        top = index // num_columns * (height + DIVIDER)
        left = index % num_columns * (width + DIVIDER)
        screen[top : top + height, left : left + width] = picture
    return screen
