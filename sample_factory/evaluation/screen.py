"""The pictures of `enjoy`: in a window, in a video, in both or nowhere; and the text on them."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config.config import Config
from sample_factory.config.monitoring_flags import EvaluationFlags
from sample_factory.envs.abilities import NamesActions, SplitsScreen, find_ability
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.headless import has_display, prepare_mujoco
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.env_choice import draws_every_frame
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.results import EpisodeResult
from sample_factory.evaluation.video import VideoWriter, resize, to_rgb, video_size
from sample_factory.evaluation.watched_env import Watch
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.log import log
from sample_factory.spaces.actions import action_decoder, action_layout

DEFAULT_FPS = 30.0
STILL_SECONDS = 0.5  # how long the last picture of an episode stays
EPISODES_UNSEEN = 10  # that are played without a limit where nothing can be drawn
MAX_AGENTS = 4  # with text in one picture
# The size of the text in pixels, for a picture of this many rows; it grows with the picture.
ROWS = 480
LINE_ROWS = 22
MARGIN = 8
FONT_SCALE = 0.55
MIN_SCALE = 0.75  # legible in small parts of a split screen too
WHITE = (255, 255, 255)
# A long line of text; the box behind the text has room for it from the start.
EXAMPLE = "move forward, turn right +12.5, attack"
SHADE = 3  # the picture behind the text is this many times darker


def find_drawing(config: Config) -> bool:
    """Returns whether the env has to draw: for a video, or for a window if there is a display. Without a
    display, this also sets up MuJoCo to draw without one, or warns that nothing is drawn."""
    evaluation = config.evaluation
    if has_display():
        return evaluation.save_video or not evaluation.no_render
    if evaluation.save_video:
        prepare_mujoco()
    elif not evaluation.no_render:
        _warn_that_nothing_is_drawn(evaluation, "no display")
    return evaluation.save_video


def _warn_that_nothing_is_drawn(evaluation: EvaluationFlags, reason: object) -> None:
    text = "Nothing is drawn: %s (--no_render turns drawing off; --save_video writes a video)"
    if not (evaluation.has_limit or evaluation.save_video):
        text = (
            f"%s: playing {EPISODES_UNSEEN} episodes without pictures; --max_num_episodes=N for more, "
            "--save_video writes a video"
        )
    log.warning(text, reason)


def drawn_agents(env: MultiAgentEnv) -> range:
    """Returns the indices of the agents that the pictures show: only agent 0 for a Gymnasium VectorEnv, else
    all."""
    return range(1 if isinstance(env.env, gym.vector.VectorEnv) else env.num_agents)


class Screen:
    """Shows the pictures that an env draws in a window, writes them to a video, or both: a picture for each
    env step, or for each env frame if the env can draw every frame.

    The last picture of an episode stays for half a second.
    `has_pictures`: whether there is a window or a video.
    `video_is_complete`: whether nothing more will be added to the video.
    """

    def __init__(
        self,
        config: Config,
        family: EnvFamily,
        watch: Watch,
        info: EnvInfo,
        choices: Sequence[PolicyChoice],
    ):
        """Opens the window and the video that the flags request.
        watch: follows the env that is shown. choices: the policy of each agent."""
        self._watch = watch
        self._drawn = drawn_agents(watch.env)
        flags = config.evaluation
        fps = flags.fps or family.defaults.get("fps") or info.render_fps  # env frames
        rate = float(fps or DEFAULT_FPS)  # pictures per second
        if not draws_every_frame(watch.env):
            rate /= info.frameskip
        self._window: Window | None = None
        if has_display() and not flags.no_render:
            try:
                self._window = Window(f"{config.env_name} - {config.run.experiment}", rate)
            except WindowError as error:
                _warn_that_nothing_is_drawn(flags, error)
        self._video: VideoWriter | None = None
        if flags.save_video:
            self._video = VideoWriter(config.experiment_dir / flags.video_name, rate)
        self._video_pictures = flags.video_frames  # after which the video ends; negative: no limit
        self._num_still = round(STILL_SECONDS * rate)
        self._overlay = None
        if flags.overlay:
            self._overlay = Overlay(config.run.experiment, watch, choices, self._drawn)
        self._at_end: list[np.ndarray] = []  # of an episode: drawn before the env was reset in the last step
        self._first_of_next: list[np.ndarray] = []  # episode: shown when it has had a step
        self._last: np.ndarray | None = None
        self.has_pictures = self._window is not None or self._video is not None
        self.video_is_complete = False
        watch.env.at_end.append(lambda: self._at_end.extend(self._render() if self._is_drawing else ()))

    @property
    def _is_drawing(self) -> bool:
        return self._window is not None or (self._video is not None and not self.video_is_complete)

    @property
    def is_closed(self) -> bool:
        """Whether the user has closed the window."""
        return self._window is not None and self._window.is_closed

    @property
    def video_seconds(self) -> float:
        """Length of the video so far in seconds; 0 without a video."""
        return 0.0 if self._video is None else self._video.seconds

    def show(self, finished: Sequence[EpisodeResult] = (), is_start: bool = False) -> None:
        """Draws the current state of the env; called after the reset and after each step. Raises VideoError
        if the video cannot be written.
        finished: the episodes that ended in the last step. is_start: whether the env has not been stepped
            yet."""
        if self._overlay is not None and not is_start:
            self._overlay.update(finished)
        if not self._is_drawing:
            return
        new = self._render()
        pictures = self._first_of_next + self._at_end + new
        self._first_of_next = []
        self._at_end = []
        if finished and self._last is None and not pictures:
            self._give_up("its render() returned nothing")
        has_ended = {episode.agent for episode in finished}.issuperset(self._drawn)
        if has_ended and new:  # the last picture is of the next episode
            self._first_of_next = [pictures.pop()]
        for picture in pictures:
            self._add(picture)
        if has_ended and self._last is not None:
            for _ in range(self._num_still):
                self._add(self._last)

    def close(self) -> Path | None:
        """Closes the window and finishes the video. Returns the path of the video; None without one. Raises
        VideoError if the video cannot be written."""
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
            self.video_is_complete = 0 <= self._video_pictures <= self._video.num_pictures

    def _render(self) -> list[np.ndarray]:
        """Returns the pictures that the env has drawn since the last call, each [height, width, 3] uint8; may
        be empty."""
        try:
            picture = self._watch.env.render()
            pictures = picture if isinstance(picture, list) else [picture]
            return [] if picture is None else [to_rgb(each) for each in pictures]
        except Exception as error:  # no standard says what an env raises where it cannot draw
            self._give_up(one_line(error))
            return []

    def _give_up(self, reason: str) -> None:
        log.warning("The env cannot be drawn, and is played without pictures: %s", reason)
        self._close_window()
        self.video_is_complete = True

    def _close_window(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None


class Overlay:
    """Draws text at the top left of pictures: the policy, the episode's number, its reward so far and the
    action. Small pictures are enlarged. In a split screen, each agent's text is drawn in its part of the
    picture."""

    def __init__(self, experiment: str, watch: Watch, choices: Sequence[PolicyChoice], agents: Sequence[int]):
        """Prepares texts for an env. choices: the policy of each agent. agents: indices of the agents that
        are drawn."""
        env = watch.env
        self._watch = watch
        self._grid = find_ability(env.env, SplitsScreen).screen_grid()
        self._is_split = self._grid != (1, 1)
        self._agents = agents if self._is_split else agents[:MAX_AGENTS]
        self._namer = find_ability(env.env, NamesActions)
        spaces = [env.kinds.spaces[env.kinds.of_agent[agent]].action for agent in self._agents]
        self._decoders = [(action_decoder(space), action_layout(space).num_action_values) for space in spaces]
        self._titles = [f"{experiment}: {choices[agent]}" for agent in self._agents]
        self._box_width = 0  # of the widest line so far
        self._num_ended = dict.fromkeys(range(env.num_agents), 0)
        # Of pictures before the first step.
        self._texts = [[title, "episode 1  reward 0.00", ""] for title in self._titles]

    def update(self, finished: Sequence[EpisodeResult]) -> None:
        """Updates the text after a step of the env. finished: the episodes that ended in the step."""
        self._texts = []
        for agent, title, (decode, size) in zip(self._agents, self._titles, self._decoders):
            reward = self._watch.returns[agent]
            result = f"episode {self._num_ended[agent] + 1}  reward {reward:.2f}"
            action = decode(self._watch.actions[agent, :size])  # the row is as wide as the widest action
            self._texts.append([title, result, self._namer.action_text(action)])
        for episode in finished:
            self._num_ended[episode.agent] += 1

    def draw(self, picture: np.ndarray) -> np.ndarray:
        """Returns a copy of the picture with the text, scaled to at least 480 rows."""
        picture = resize(picture, video_size(*picture.shape[:2])).copy()
        columns, rows = self._grid
        height = picture.shape[0] // rows
        width = picture.shape[1] // columns
        texts = self._texts if self._is_split else [[line for text in self._texts for line in text]]
        for index, text in enumerate(texts):
            top = index // columns * height
            left = index % columns * width
            self._write(picture[top : top + height, left : left + width], text)
        return picture

    def _write(self, picture: np.ndarray, lines: Sequence[str]) -> None:
        """Writes lines at the top left of `picture`, in place, on a darkened box. The box never gets
        narrower, since it would flicker."""
        import cv2

        scale = max(MIN_SCALE, picture.shape[0] / ROWS)
        row = round(LINE_ROWS * scale)
        margin = round(MARGIN * scale)
        font = (cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE * scale)
        thickness = max(1, round(scale))
        for line in (EXAMPLE, *lines):
            self._box_width = max(self._box_width, cv2.getTextSize(line, *font, thickness)[0][0])
        shaded = picture[: row * len(lines) + margin, : self._box_width + 2 * margin]
        shaded //= SHADE
        text = np.ascontiguousarray(shaded)  # OpenCV draws on whole arrays only
        for number, line in enumerate(lines, start=1):
            cv2.putText(text, line, (margin, row * number), *font, WHITE, thickness, cv2.LINE_AA)
        shaded[:] = text


class WindowError(RuntimeError):
    """Raised if no window can be opened; the message gives the reason."""


class Window:
    """Shows RGB pictures at a steady rate in a resizable window. The constructor raises WindowError if no
    window can be opened.
    `is_closed`: whether the user has pressed Esc or closed the window."""

    def __init__(self, title: str, pictures_per_second: float):
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
        """Draws a picture, [height, width, 3] uint8, then sleeps until the next picture is due at the rate
        given to the constructor."""
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
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + self._seconds  # a late one does not shorten the time of the next

    def close(self) -> None:
        self._pygame.display.quit()
