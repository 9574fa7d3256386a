"""Where the pictures of an evaluation go: a window, a video, both or nowhere."""

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config.config import Config
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.evaluation.video import VideoWriter, resize, video_size

log = logging.getLogger("sample_factory")

DEFAULT_FPS = 30.0
EVERY_FRAME = "rgb_array_list"  # Gymnasium's name for a render() that returns all pictures since the last one


class WindowError(RuntimeError):
    """No window can be opened; the message says why."""


class Window:
    """Shows RGB pictures at a steady rate, in a window that may be resized.

    `is_closed`: the user has pressed Esc or closed it.
    Raises WindowError when there is no display or no pygame.
    """

    def __init__(self, title: str, pictures_per_second: float):
        _check_display()
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


def _check_display() -> None:
    # Without a display SDL would draw on the text console, and take it over.
    names = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in names):
        raise WindowError("there is no display")


class Screen:
    """Shows what an env renders: a picture for each env step, or for each env frame where the env has them.

    video_pictures: number of pictures after which the video ends; None: no limit.
    `is_closed`: the user has closed the window. `video_is_complete`: nothing more will be added to it.
    """

    def __init__(self, window: Window | None, video: VideoWriter | None, video_pictures: int | None):
        self._window = window
        self._video = video
        self._video_pictures = video_pictures
        self.video_is_complete = False

    @property
    def is_closed(self) -> bool:
        return self._window is not None and self._window.is_closed

    def show(self, env: MultiAgentEnv) -> None:
        """Draws the env as it is now. Raises VideoError."""
        wants_video = self._video is not None and not self.video_is_complete
        if self._window is None and not wants_video:
            return
        pictures = _render(env)
        if pictures is None:
            self._close_window()
            self.video_is_complete = True
            return
        for picture in pictures:
            if self._window is not None:
                self._window.show(picture)
            if self._video is not None and not self.video_is_complete:
                self._video.write(picture)
                limit = self._video_pictures
                self.video_is_complete = limit is not None and self._video.num_pictures >= limit

    def close(self) -> Path | None:
        """Closes the window and finishes the video; returns its path, or None. Raises VideoError."""
        self._close_window()
        return self._video.close() if self._video is not None else None

    def _close_window(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None


def _render(env: MultiAgentEnv) -> list[np.ndarray] | None:
    """Returns the pictures since the last call; None, with a line in the log, when the env has none."""
    reason = "its render() returned nothing"
    try:
        picture = env.render()
        if picture is not None:
            return picture if isinstance(picture, list) else [picture]
    except (NotImplementedError, gym.error.Error) as error:
        reason = f"{type(error).__name__} {error}"
    log.warning("The env cannot be drawn, and is played without pictures: %s", reason)
    return None


def wants_pictures(config: Config) -> bool:
    """Returns whether the flags ask for a window or a video."""
    return config.evaluation.save_video or not config.evaluation.no_render


def open_screen(config: Config, env_fps: float, frames_per_picture: int) -> Screen:
    """Opens the window and the video that the flags ask for. env_fps: env frames per second."""
    evaluation = config.evaluation
    pictures_per_second = env_fps / frames_per_picture
    window = None
    video = None
    if not evaluation.no_render:
        try:
            window = Window(f"{config.env_name} - {config.run.experiment}", pictures_per_second)
        except WindowError as error:
            log.warning(
                "Nothing is drawn: %s (--no_render turns drawing off; --save_video writes a video)", error
            )
    if evaluation.save_video:
        video = VideoWriter(config.experiment_dir / evaluation.video_name, pictures_per_second)
    return Screen(window, video, evaluation.video_frames if evaluation.video_frames >= 0 else None)


def frames_per_second(config: Config, family: EnvFamily, env: MultiAgentEnv) -> float:
    """Returns env frames per second: --fps, or the default of the family or of the env."""
    fps = config.evaluation.fps or family.defaults.get("fps")
    if not fps and isinstance(env.env, gym.Env):
        fps = env.env.metadata.get("render_fps")
    return float(fps or DEFAULT_FPS)


def draws_every_frame(env: MultiAgentEnv) -> bool:
    """Returns whether the env can draw each of the frames that it skips."""
    return isinstance(env.env, gym.Env) and EVERY_FRAME in env.env.metadata.get("render_modes", ())


def make_env(config: Config, family: EnvFamily) -> MultiAgentEnv:
    """Makes the env, in the render mode that gives most pictures if the flags ask for any."""
    cfg = config.namespace()
    env_config = EnvConfig(0, 0, 0)
    if not wants_pictures(config):
        return make_adapted_env(family, cfg, env_config)
    try:
        env = make_adapted_env(family, cfg, env_config, "rgb_array")
        if not draws_every_frame(env):
            return env
        env.close()
        return make_adapted_env(family, cfg, env_config, EVERY_FRAME)
    except Exception as error:  # no standard says what an env raises for an unknown render_mode
        env = make_adapted_env(family, cfg, env_config)  # raises again if the render mode was not the reason
        log.warning("%s cannot be drawn: %s", config.env_name, error)
        return env
