"""A window that shows pictures at a steady rate."""

import os
import time
from typing import Any

import numpy as np

from sample_factory.envs.headless import has_display
from sample_factory.evaluation.video import resize, video_size


class WindowError(RuntimeError):
    """No window can be opened; the message says why."""


class Window:
    """Shows RGB pictures at a steady rate, in a window that may be resized.

    `is_closed`: the user has pressed Esc or closed it.
    Raises WindowError when there is no display or no pygame.
    """

    def __init__(self, title: str, pictures_per_second: float):
        if not has_display():
            raise WindowError("there is no display")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError as error:
            raise WindowError(f"drawing needs pygame ({error}): pip install pygame-ce") from None
        self._pygame: Any = pygame
        self._seconds = 1.0 / pictures_per_second
        self._surface: Any = None
        self._next = 0.0
        self.is_closed = False
        try:
            pygame.display.init()
            pygame.display.set_caption(title)
        except pygame.error as error:
            raise WindowError(f"no window can be opened: {error}") from None

    def show(self, picture: np.ndarray) -> None:
        """Draws a picture, [height, width, 3] uint8, and waits until the next one is due."""
        pygame = self._pygame
        if self._surface is None:
            size = video_size(picture.shape[0], picture.shape[1])
            self._surface = pygame.display.set_mode(size, pygame.RESIZABLE)
        picture = resize(picture, self._surface.get_size())
        image = pygame.image.frombuffer(picture.tobytes(), picture.shape[1::-1], "RGB")
        self._surface.blit(image, (0, 0))
        pygame.display.flip()
        for event in pygame.event.get():
            is_escape = event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE
            self.is_closed = self.is_closed or is_escape or event.type == pygame.QUIT
        self._surface = pygame.display.get_surface()
        self._wait()

    def close(self) -> None:
        self._pygame.display.quit()

    def _wait(self) -> None:
        """Sleeps until the next picture is due. A late one does not shorten the time of those after it."""
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + self._seconds
