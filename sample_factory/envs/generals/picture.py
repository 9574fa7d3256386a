"""Draws a game of Generals with OpenCV: the package's own window needs pygame's only display."""

import cv2
import numpy as np
from generals.core.game import Game

from sample_factory.envs.protocol import Picture

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
            corner = (column * FIELD, row * FIELD)
            if channels.generals[row, column]:
                center = (corner[0] + FIELD // 2, corner[1] + FIELD // 2)
                cv2.circle(picture, center, FIELD // 2 - 2, GENERAL_RING, 2)
            elif channels.cities[row, column]:
                far_corner = (corner[0] + FIELD - 4, corner[1] + FIELD - 4)
                cv2.rectangle(picture, (corner[0] + 3, corner[1] + 3), far_corner, TEXT, 1)
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
