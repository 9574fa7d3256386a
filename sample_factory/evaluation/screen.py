"""Where the pictures of an evaluation go: a window, a video, both or nowhere."""

import logging
from pathlib import Path

import gymnasium as gym
import numpy as np

from sample_factory.config.config import Config
from sample_factory.config.monitoring_flags import EvaluationFlags
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.headless import has_display, prepare_mujoco
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.evaluation.overlay import Overlay
from sample_factory.evaluation.video import VideoWriter
from sample_factory.evaluation.window import Window, WindowError
from sample_factory.runtime.failures import one_line

log = logging.getLogger("sample_factory")

DEFAULT_FPS = 30.0
STILL_SECONDS = 0.5  # how long the last picture of an episode stays
EVERY_FRAME = "rgb_array_list"  # Gymnasium's name for a render() that returns all pictures since the last one
NOT_DRAWN = "Nothing is drawn: %s (--no_render turns drawing off; --save_video writes a video)"
EPISODES_UNSEEN = 10  # that are played without a limit where nothing can be drawn
NOT_DRAWN_WITHOUT_LIMIT = (
    f"%s: playing {EPISODES_UNSEEN} episodes without pictures; --max_num_episodes=N for more, --save_video "
    "writes a video"
)


class Screen:
    """Shows what an env renders: a picture for each env step, or for each env frame where the env has them.

    video_pictures: number of pictures after which the video ends; None: no limit.
    num_still: number of times that the last picture of an episode is repeated.
    overlay: text for all pictures, or None.
    `is_closed`: the user has closed the window. `video_is_complete`: nothing more will be added to it.
    """

    def __init__(
        self,
        window: Window | None,
        video: VideoWriter | None,
        video_pictures: int | None,
        num_still: int,
        overlay: Overlay | None,
    ):
        self._window = window
        self._video = video
        self._video_pictures = video_pictures
        self._num_still = num_still
        self._overlay = overlay
        self._first_of_next: list[np.ndarray] = []  # episode: shown when it has had a step
        self._last: np.ndarray | None = None
        self.video_is_complete = False

    @property
    def is_closed(self) -> bool:
        return self._window is not None and self._window.is_closed

    @property
    def has_pictures(self) -> bool:
        """Whether there is a window or a video."""
        return self._window is not None or self._video is not None

    @property
    def video_seconds(self) -> float:
        """Length of the video so far; 0 without one."""
        return 0.0 if self._video is None else self._video.seconds

    def show(self, env: MultiAgentEnv, has_ended: bool = False) -> None:
        """Draws the env as it is now. Raises VideoError.

        has_ended: an episode has ended in the env's last step, so its picture is of the next episode.
        """
        wants_video = self._video is not None and not self.video_is_complete
        if self._window is None and not wants_video:
            return
        pictures = _render(env)
        if pictures is None:
            self._close_window()
            self.video_is_complete = True
            return
        pictures = self._first_of_next + pictures
        self._first_of_next = []
        if has_ended:
            self._first_of_next = pictures[-1:]
            pictures = pictures[:-1]
        for picture in pictures:
            self._add(picture)
        if has_ended and self._last is not None:
            for _ in range(self._num_still):
                self._add(self._last)

    def close(self) -> Path | None:
        """Closes the window and finishes the video; returns its path, or None. Raises VideoError."""
        self._close_window()
        return self._video.close() if self._video is not None else None

    def _add(self, picture: np.ndarray) -> None:
        self._last = picture
        if self._overlay is not None:
            picture = self._overlay.draw(picture)
        if self._window is not None and not self._window.is_closed:
            self._window.show(picture)
        if self._video is not None and not self.video_is_complete:
            self._video.write(picture)
            limit = self._video_pictures
            self.video_is_complete = limit is not None and self._video.num_pictures >= limit

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
    except Exception as error:  # no standard says what an env raises where it cannot draw
        reason = one_line(error)
    log.warning("The env cannot be drawn, and is played without pictures: %s", reason)
    return None


def find_drawing(config: Config) -> bool:
    """Returns whether the env has to draw: for a window, which needs a display, or for a video.

    Without a display, it prepares for drawing without one.
    """
    evaluation = config.evaluation
    if has_display():
        return evaluation.save_video or not evaluation.no_render
    if evaluation.save_video:
        prepare_mujoco()
    elif not evaluation.no_render:
        _warn_that_nothing_is_drawn(evaluation, "no display")
    return evaluation.save_video


def _warn_that_nothing_is_drawn(evaluation: EvaluationFlags, reason: str | WindowError) -> None:
    has_end = evaluation.has_limit or evaluation.save_video
    log.warning(NOT_DRAWN if has_end else NOT_DRAWN_WITHOUT_LIMIT, reason)


def open_screen(config: Config, env_fps: float, frames_per_picture: int, overlay: Overlay | None) -> Screen:
    """Opens the window and the video that the flags ask for. env_fps: env frames per second."""
    evaluation = config.evaluation
    pictures_per_second = env_fps / frames_per_picture
    window = None
    video = None
    if not evaluation.no_render and has_display():
        try:
            window = Window(f"{config.env_name} - {config.run.experiment}", pictures_per_second)
        except WindowError as error:
            _warn_that_nothing_is_drawn(evaluation, error)
    if evaluation.save_video:
        video = VideoWriter(config.experiment_dir / evaluation.video_name, pictures_per_second)
    limit = evaluation.video_frames if evaluation.video_frames >= 0 else None
    return Screen(window, video, limit, round(STILL_SECONDS * pictures_per_second), overlay)


def drawn_agents(env: MultiAgentEnv) -> range:
    """Returns the agents that the pictures show: all of them, or the first copy of a vector env."""
    return range(1 if isinstance(env.env, gym.vector.VectorEnv) else env.num_agents)


def frames_per_second(config: Config, family: EnvFamily, env: MultiAgentEnv) -> float:
    """Returns env frames per second: --fps, or the default of the family or of the env."""
    fps = config.evaluation.fps or family.defaults.get("fps")
    if not fps and isinstance(env.env, gym.Env):
        fps = env.env.metadata.get("render_fps")
    return float(fps or DEFAULT_FPS)


def draws_every_frame(env: MultiAgentEnv) -> bool:
    """Returns whether the env can draw each of the frames that it skips."""
    return isinstance(env.env, gym.Env) and EVERY_FRAME in env.env.metadata.get("render_modes", ())


def _num_copies(trained: int, flags: EvaluationFlags, draws: bool) -> int:
    """Returns how many copies of an env to play that was trained in many: pictures show one of them."""
    if draws:
        return 1
    return min(trained, flags.max_num_episodes) if flags.has_limit else trained


def make_env(config: Config, family: EnvFamily, draws: bool) -> MultiAgentEnv:
    """Makes the env; if it draws, in the render mode that gives most pictures."""
    cfg = config.namespace()
    if "vector_env_copies" in cfg and "vector_env_copies" not in config.typed:
        cfg.vector_env_copies = _num_copies(cfg.vector_env_copies, config.evaluation, draws)
    env_config = EnvConfig(0, 0, 0)
    if not draws:
        return make_adapted_env(family, cfg, env_config)
    try:
        env = make_adapted_env(family, cfg, env_config, "rgb_array")
        if not draws_every_frame(env):
            return env
        env.close()
        return make_adapted_env(family, cfg, env_config, EVERY_FRAME)
    except Exception as error:  # no standard says what an env raises for an unknown render_mode
        env = make_adapted_env(family, cfg, env_config)  # raises again if the render mode was not the reason
        log.warning("%s cannot be drawn: %s", config.env_name, one_line(error))
        return env
