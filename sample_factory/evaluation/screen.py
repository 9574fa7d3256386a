"""Where the pictures of an evaluation go: a window, a video, both or nowhere."""

import logging
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config.config import Config
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.evaluation.video import VideoWriter
from sample_factory.evaluation.window import Window, WindowError

log = logging.getLogger("sample_factory")

DEFAULT_FPS = 30.0
EVERY_FRAME = "rgb_array_list"  # Gymnasium's name for a render() that returns all pictures since the last one


class Screen:
    """Shows what an env renders: a picture for each env step, or for each env frame where the env has them.

    video_pictures: the video ends after so many; None: it does not.
    `is_closed`: the user has closed the window. `video_is_complete`: nothing more will be added to it.
    """

    def __init__(self, window: Window | None, video: VideoWriter | None, video_pictures: int | None):
        self._window, self._video, self._video_pictures = window, video, video_pictures
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
            if wants_video and not self.video_is_complete:
                self._video.write(picture)
                limit = self._video_pictures
                self.video_is_complete = limit is not None and self._video.num_pictures >= limit

    def close(self) -> Any:
        """Closes the window and finishes the video; returns its path, or None. Raises VideoError."""
        self._close_window()
        return self._video.close() if self._video is not None else None

    def _close_window(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None


def _render(env: MultiAgentEnv) -> list[np.ndarray] | None:
    """The pictures since the last time; None, with a line in the log, when the env cannot."""
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
    """Whether anybody is going to look."""
    return config.evaluation.save_video or not config.evaluation.no_render


def open_screen(config: Config, env_fps: float, frames_per_picture: int) -> Screen:
    """What the flags ask for. env_fps: env frames per second."""
    evaluation, rate = config.evaluation, env_fps / frames_per_picture
    window = video = None
    if not evaluation.no_render:
        try:
            window = Window(f"{config.run.env} - {config.run.experiment}", rate)
        except WindowError as error:
            log.warning("Nothing is drawn: %s (--no_render: none wanted; --save_video writes a video)", error)
    if evaluation.save_video:
        video = VideoWriter(config.experiment_dir / evaluation.video_name, rate)
    return Screen(window, video, evaluation.video_frames if evaluation.video_frames >= 0 else None)


def frames_per_second(config: Config, family: EnvFamily, env: MultiAgentEnv) -> float:
    """Env frames per second: --fps, or as the family or the env says."""
    fps = config.evaluation.fps or family.defaults.get("fps")
    if not fps and isinstance(env.env, gym.Env):
        fps = env.env.metadata.get("render_fps")
    return float(fps or DEFAULT_FPS)


def draws_every_frame(env: MultiAgentEnv) -> bool:
    """Whether the env can draw each of the frames that it skips."""
    return isinstance(env.env, gym.Env) and EVERY_FRAME in env.env.metadata.get("render_modes", ())


def make_env(config: Config, family: EnvFamily) -> MultiAgentEnv:
    """The env, which draws itself if it can and if that is wanted."""
    cfg, env_config = config.namespace(), EnvConfig(0, 0, 0)
    if not wants_pictures(config):
        return make_adapted_env(family, cfg, env_config)
    try:
        env = make_adapted_env(family, cfg, env_config, "rgb_array")
        if not draws_every_frame(env):
            return env
        env.close()
        return make_adapted_env(family, cfg, env_config, EVERY_FRAME)
    except Exception as error:  # there is no standard for what an env raises at an unknown render_mode
        env = make_adapted_env(family, cfg, env_config)  # raises again if that was not the reason
        log.warning("%s cannot be drawn: %s", config.run.env, error)
        return env
