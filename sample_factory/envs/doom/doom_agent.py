"""One learning agent of a game: its observations, actions and rewards."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from sample_factory.envs.doom.action_spaces import ButtonMap, action_space, num_buttons
from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.observation import MeasurementReader, make_resize, observation_space
from sample_factory.envs.doom.player_score import PlayerScore

NO_VALUES: list[float] = []


class DoomAgent:
    """Converts between the env's API and one engine: actions in; observations and rewards out.

    resolution: (width, height) of the observation; see `observation_space`.
    Raises ValueError for a scenario that does not fit the spec.
    """

    def __init__(self, spec: DoomSpec, engine: DoomEngine, resolution: tuple[int, int]):
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
        self._buttons = ButtonMap(spec.actions)
        self._score = PlayerScore(spec, engine.variable_places())
        self._measurements = MeasurementReader(engine.variable_places()) if spec.measurements else None
        self._needs_variables = spec.measurements or self._score.needs_variables
        self._resize = make_resize(engine.screen_shape(), (resolution[1], resolution[0]))

    def button_values(self, action: Any) -> list[float]:
        """Returns the values of the engine's buttons for an action of `action_space`."""
        return self._buttons.button_values(action)

    def action_text(self, action: Any) -> str:
        """Returns the names of the buttons that an action presses, of delta buttons with the value."""
        pressed = [
            f"{name.removesuffix('_DELTA')} {value:+.3g}" if name.endswith("_DELTA") else name
            for name, value in zip(self.engine.button_names(), self.button_values(action))
            if value
        ]
        return ", ".join(pressed).lower().replace("_", " ")

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

    def default_shaping(self) -> dict[str, Any]:
        """Returns the spec's scheme (see `reward_shaping.py`), {} for a scenario that is not shaped."""
        return copy.deepcopy(dict(self._spec.shaping or {}))

    def set_shaping(self, shaping: Mapping[str, Any]) -> None:
        """Replaces the scheme, as RewardShaping.set_reward_shaping."""
        self._score.set_scheme(shaping)

    def _observe(self, into: Mapping[str, np.ndarray]) -> list[float]:
        """Writes the observation; returns the values of the variables, or [] if they are not needed."""
        state = self.engine.game.get_state()
        self._resize(state.screen_buffer, into["obs"])
        if not self._needs_variables:
            return NO_VALUES
        variables = state.game_variables
        assert variables is not None  # the scenario lists some
        values: list[float] = variables.tolist()
        if self._measurements is not None:
            self._measurements.write(values, into["measurements"])
        return values
