"""What one player of a game sees, does and scores."""

import copy
from collections.abc import Mapping
from typing import Any

import cv2
import gymnasium
import numpy as np

from sample_factory.envs.doom.action_spaces import ActionDecoder, action_space, num_buttons
from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.measurements import NUM_MEASUREMENTS, MeasurementReader
from sample_factory.envs.doom.player_score import PlayerScore
from sample_factory.envs.doom.shrink import make_shrink

TICS_PER_SECOND = 35
RENDER_WIDTH = 640
NO_VALUES: list[float] = []
EVERY_TIC = "rgb_array_list"
RENDER_MODES = ["rgb_array", EVERY_TIC]


def render_metadata(render_mode: str | None, frameskip: int) -> dict[str, Any]:
    """The `metadata` of an env: a picture of every step, or of every tic."""
    fps = TICS_PER_SECOND if render_mode == EVERY_TIC else max(1, TICS_PER_SECOND // frameskip)
    return {"render_modes": RENDER_MODES, "render_fps": fps}


class DoomPlayer:
    """One player and its engine. Observation: {"obs": uint8 [3, height, width]}, and "measurements":
    float32 [23] if the spec has them.

    resolution: (width, height) of the observation. Raises ValueError for a scenario that does not fit the
    spec.
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
        self.engine, self._spec, self._render_mode = engine, spec, render_mode
        self._decoder = ActionDecoder(spec.actions)
        self._score = PlayerScore(spec, engine.variable_places())
        self._measurements = MeasurementReader(engine.variable_places()) if spec.measurements else None
        self._needs_variables = spec.measurements or self._score.needs_variables
        self._screen: np.ndarray | None = None
        self._film: list[np.ndarray] = []  # since the last render()

        width, height = resolution
        self._shrink = make_shrink(engine.screen_shape(), (height, width))
        spaces = {"obs": gymnasium.spaces.Box(0, 255, (3, height, width), np.uint8)}
        if spec.measurements:
            spaces["measurements"] = gymnasium.spaces.Box(-np.inf, np.inf, (NUM_MEASUREMENTS,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(spaces)
        self.action_space = action_space(spec.actions)

    def buttons(self, action: Any) -> list[float]:
        """The values of the engine's buttons."""
        return self._decoder.decode(action)

    def start(self, into: Mapping[str, np.ndarray]) -> None:
        """An episode has begun: writes its first observation."""
        self._score.start(self._observe(into))

    def step(self, engine_reward: float, into: Mapping[str, np.ndarray]) -> float:
        """Writes the observation after a step that did not end the episode; returns the training reward."""
        return self._score.step(engine_reward, self._observe(into))

    def end(self, engine_reward: float) -> tuple[float, dict[str, Any]]:
        """Training reward and info of the step that ended the episode."""
        values = self.engine.variable_values() if self._spec.match is not None else NO_VALUES
        return self._score.end(engine_reward, values)

    def film_tic(self) -> None:
        """Keeps the picture of a tic that is not the last of a step."""
        self._film.append(self.engine.game.get_state().screen_buffer)

    def render(self) -> np.ndarray | list[np.ndarray] | None:
        """What the player saw last, [height, 640, 3] uint8: enlarged, not drawn anew.

        With render_mode "rgb_array_list": a list of them, one for each tic since the last call.
        """
        if self._render_mode == EVERY_TIC:
            film, self._film = self._film, []
            return [_enlarged(screen) for screen in film]
        return None if self._screen is None else _enlarged(self._screen)

    def default_shaping(self) -> dict[str, Any]:
        """The scheme of `reward_shaping.py`, {} for a scenario that is not shaped."""
        return copy.deepcopy(dict(self._spec.shaping or {}))

    def set_shaping(self, shaping: Mapping[str, Any]) -> None:
        """As RewardShaping.set_reward_shaping."""
        self._score.set_scheme(shaping)

    def _observe(self, into: Mapping[str, np.ndarray]) -> list[float]:
        """Writes the observation and returns the variables, none where nobody needs them."""
        state = self.engine.game.get_state()
        screen = state.screen_buffer
        if self._render_mode is not None:  # else its memory, still in the cache, is free for the next one
            self._screen = screen
            if self._render_mode == EVERY_TIC:
                self._film.append(screen)
        self._shrink(screen, into["obs"])
        if not self._needs_variables:
            return NO_VALUES
        values = state.game_variables.tolist()
        if self._measurements is not None:
            self._measurements.write(values, into["measurements"])
        return values


def _enlarged(screen: np.ndarray) -> np.ndarray:
    """Planes [3, height, width] to a picture [height', 640, 3]."""
    picture = np.ascontiguousarray(screen.transpose(1, 2, 0))
    height = RENDER_WIDTH * picture.shape[0] // picture.shape[1]
    return cv2.resize(picture, (RENDER_WIDTH, height), interpolation=cv2.INTER_LINEAR)
