"""One learning agent of a game: its observations, actions, rewards and pictures."""

import copy
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from sample_factory.envs.doom.action_spaces import ButtonMap, action_space, num_buttons
from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.observation import MeasurementReader, make_resize, observation_space
from sample_factory.envs.doom.player_score import PlayerScore

TICS_PER_SECOND = 35
RENDER_WIDTH = 640
NO_VALUES: list[float] = []
EVERY_TIC = "rgb_array_list"
RENDER_MODES = ["rgb_array", EVERY_TIC]


def render_metadata(render_mode: str | None, frameskip: int) -> dict[str, Any]:
    """Returns the `metadata` of an env that renders a picture of every step, or of every tic."""
    fps = TICS_PER_SECOND if render_mode == EVERY_TIC else max(1, TICS_PER_SECOND // frameskip)
    return {"render_modes": RENDER_MODES, "render_fps": fps}


class DoomAgent:
    """Converts between the env's API and one engine: actions in; observations, rewards and pictures out.

    resolution: (width, height) of the observation; see `observation_space`.
    Raises ValueError for a scenario that does not fit the spec.
    """

    def __init__(
        self, spec: DoomSpec, engine: DoomEngine, resolution: tuple[int, int], render_mode: str | None
    ):
        names = engine.button_names()
        if len(names) != num_buttons(spec.actions):
            raise ValueError(
                f"{spec.name}: the actions are for {num_buttons(spec.actions)} buttons, but {spec.scenario} "
                f"has {len(names)}: {', '.join(names)}"
            )
        self.engine = engine
        self.observation_space = observation_space(spec, resolution)
        self.action_space = action_space(spec.actions)
        self._spec = spec
        self._render_mode = render_mode
        self._buttons = ButtonMap(spec.actions)
        self._score = PlayerScore(spec, engine.variable_places())
        self._measurements = MeasurementReader(engine.variable_places()) if spec.measurements else None
        self._needs_variables = spec.measurements or self._score.needs_variables
        self._resize = make_resize(engine.screen_shape(), (resolution[1], resolution[0]))
        self._screen: np.ndarray | None = None
        self._film: list[np.ndarray] = []  # since the last render()

    def button_values(self, action: Any) -> list[float]:
        """Returns the values of the engine's buttons for an action of `action_space`."""
        return self._buttons.button_values(action)

    def start(self, into: Mapping[str, np.ndarray]) -> None:
        """Writes the first observation of an episode that the engine has begun."""
        self._score.start(self._observe(into))

    def step(self, engine_reward: float, into: Mapping[str, np.ndarray]) -> float:
        """Writes the observation after a step that did not end the episode; returns the training reward."""
        return self._score.step(engine_reward, self._observe(into))

    def end(self, engine_reward: float) -> tuple[float, dict[str, Any]]:
        """Returns the training reward and the info of the step that ended the episode."""
        values = self.engine.variable_values() if self._spec.match is not None else NO_VALUES
        return self._score.end(engine_reward, values)

    def film_tic(self) -> None:
        """Keeps the picture of a tic that is not the last one of a step."""
        self._film.append(self.engine.game.get_state().screen_buffer)

    def render(self) -> np.ndarray | None:
        """Returns the latest screen, enlarged to [height, 640, 3] uint8; None before the first reset."""
        return None if self._screen is None else _enlarged(self._screen)

    def render_film(self) -> list[np.ndarray]:
        """Returns the screens of all tics since the last call, as `render`; for the mode "rgb_array_list"."""
        film = self._film
        self._film = []
        return [_enlarged(screen) for screen in film]

    def default_shaping(self) -> dict[str, Any]:
        """Returns the spec's scheme (see `reward_shaping.py`), {} for a scenario that is not shaped."""
        return copy.deepcopy(dict(self._spec.shaping or {}))

    def set_shaping(self, shaping: Mapping[str, Any]) -> None:
        """Replaces the scheme, as RewardShaping.set_reward_shaping."""
        self._score.set_scheme(shaping)

    def _observe(self, into: Mapping[str, np.ndarray]) -> list[float]:
        """Writes the observation; returns the values of the variables, or [] if they are not needed."""
        state = self.engine.game.get_state()
        screen = state.screen_buffer
        if self._render_mode is not None:  # otherwise the next state reuses the memory, still in the cache
            self._screen = screen
            if self._render_mode == EVERY_TIC:
                self._film.append(screen)
        self._resize(screen, into["obs"])
        if not self._needs_variables:
            return NO_VALUES
        variables = state.game_variables
        assert variables is not None  # the scenario lists some
        values: list[float] = variables.tolist()
        if self._measurements is not None:
            self._measurements.write(values, into["measurements"])
        return values


def _enlarged(screen: np.ndarray) -> np.ndarray:
    """Converts planes [3, height, width] into a picture [height', 640, 3]."""
    picture = np.ascontiguousarray(screen.transpose(1, 2, 0))
    height = RENDER_WIDTH * picture.shape[0] // picture.shape[1]
    return cv2.resize(picture, (RENDER_WIDTH, height), interpolation=cv2.INTER_LINEAR)
