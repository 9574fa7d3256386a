"""A learning agent of a Doom game, and a scenario with one agent as a Gymnasium env."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from sample_factory.envs.abilities import (
    LimitsEpisodes,
    NamesActions,
    OwnsProcess,
    RewardShaping,
    WritesObservations,
)
from sample_factory.envs.doom.action_spaces import ButtonMap, action_space, num_buttons
from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.film import Viewer, render_metadata
from sample_factory.envs.doom.observation import (
    MeasurementReader,
    Observation,
    make_resize,
    observation_space,
    zero_observation,
)
from sample_factory.envs.doom.player_score import PlayerScore
from sample_factory.envs.protocol import EMPTY_INFO

NO_VALUES: list[float] = []


class DoomAgent:
    """Converts between the env's API and one engine: actions in; observations and rewards out.

    `spec`, `engine`: of the game. resolution: (width, height) of the observation.
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
        self.spec = spec
        self._buttons = ButtonMap(spec.actions)
        self._score = PlayerScore(spec, engine.variable_places())
        self._measurements = MeasurementReader(engine.variable_places()) if spec.measurements else None
        self._needs_variables = spec.measurements or self._score.needs_variables
        if self._needs_variables and not engine.variable_places():
            raise ValueError(
                f"{spec.name}: measurements and shaping read variables of the engine, but {spec.scenario} "
                "lists none as available_game_variables"
            )
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
        values = self.engine.variable_values() if self.spec.match is not None else NO_VALUES
        return self._score.end(engine_reward, values)

    def default_shaping(self) -> dict[str, Any]:
        """Returns the spec's scheme, {} for a scenario that is not shaped."""
        return copy.deepcopy(dict(self.spec.shaping or {}))

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


class DoomEnv(
    gymnasium.Env[Any, Any], WritesObservations, RewardShaping, OwnsProcess, NamesActions, LimitsEpisodes
):
    """One agent in a scenario, or in a match against bots. Spaces: see DoomAgent.

    The engine's process starts at the first reset. Its exceptions are not caught; after one, close the env
    and make another one. The agent's death is a termination (in a match it respawns instead), a time limit
    (the engine's or the spec's) a truncation. There is no new picture at the end of an episode: `step`
    returns the previous one again.

    resolution: (width, height) of the observation.
    render_mode: any makes a second engine draw the same game at 640x480; see Viewer.
    Raises ValueError for a match of several engines, each of which would wait for the others.
    """

    def __init__(
        self,
        spec: DoomSpec,
        engine: DoomEngine,
        frameskip: int,
        resolution: tuple[int, int],
        render_mode: str | None = None,
    ):
        match = engine.settings.match
        if match is not None and match.has_several_engines:
            raise ValueError(
                f"{spec.name} has {match.num_engines} players with an engine each, and a DoomEnv is for one; "
                "use make_doom_env, or --num_agents=1 --num_humans=0"
            )
        self.metadata = render_metadata(render_mode, frameskip)
        self.render_mode = render_mode
        self._spec = spec
        self._engine = engine
        self._frameskip = frameskip
        self.agent = DoomAgent(spec, engine, resolution)
        self._viewer = None if render_mode is None else Viewer(engine, frameskip, render_mode)
        self._frame_limit = spec.time_limit_frames or float("inf")
        self.observation_space = self.agent.observation_space
        self.action_space = self.agent.action_space
        self._observation = zero_observation(self.agent.observation_space)

    def max_episode_steps(self) -> int | None:
        match = self._engine.settings.match
        limits = [self._spec.time_limit_frames, None if match is None else match.tics]
        known = [frames for frames in limits if frames is not None]
        return math.ceil(min(known) / self._frameskip) if known else None

    def reset_into(self, into: Mapping[str, np.ndarray], *, seed: int | None = None) -> dict[str, Any]:
        """Starts an episode: a given seed determines this one and those after it."""
        super().reset(seed=seed)
        episode_seed = int(self.np_random.integers(2**32))
        self._engine.new_episode(episode_seed)
        if self._viewer is not None:
            self._viewer.new_episode(episode_seed)
        self._num_frames = 0
        self.agent.start(into)
        return {}

    def step_into(
        self, action: Any, into: Mapping[str, np.ndarray]
    ) -> tuple[float, bool, bool, Mapping[str, Any]]:
        """Returns reward, terminated, truncated, info. Writes nothing at the end of an episode."""
        buttons = self.agent.button_values(action)
        reward = self._engine.game.make_action(buttons, self._frameskip)
        if self._viewer is not None:
            self._viewer.step(buttons)
        self._num_frames += self._frameskip
        if self._num_frames >= self._frame_limit or self._engine.game.is_episode_finished():
            return self._end_episode(reward)
        return self.agent.step(reward, into), False, False, EMPTY_INFO

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; returns a new observation dict and the info."""
        info = self.reset_into(self._observation, seed=seed)
        return self._copy_of_observation(), info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Returns a new observation dict, reward, terminated, truncated, info."""
        reward, terminated, truncated, info = self.step_into(action, self._observation)
        return self._copy_of_observation(), reward, terminated, truncated, dict(info)

    def render(self) -> np.ndarray | list[np.ndarray] | None:  # type: ignore[override]
        """Returns the latest picture, [480, 640, 3] uint8 (wide: [360, 640, 3]); None before the first reset.

        With render_mode "rgb_array_list": a list of the pictures of all tics since the last call.
        """
        if self._viewer is None:
            return None
        film = self._viewer.film
        return film.take_all() if film.is_of_every_tic else film.latest()

    def close(self) -> None:
        self._engine.close()
        if self._viewer is not None:
            self._viewer.close()

    def action_text(self, action: Any) -> str:
        return self.agent.action_text(action)

    def get_default_reward_shaping(self) -> dict[str, Any]:
        return self.agent.default_shaping()

    def process_is_gone(self) -> bool:
        return self._engine.is_gone()

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        self.agent.set_shaping(shaping)

    def _end_episode(self, engine_reward: float) -> tuple[float, bool, bool, dict[str, Any]]:
        game = self._engine.game
        terminated = self._spec.match is None and game.is_episode_finished()
        if terminated:  # by the game itself, or only by its time
            terminated = game.is_player_dead() or not game.is_episode_timeout_reached()
        reward, info = self.agent.end(engine_reward)
        if self._engine.bot_difficulty is not None:
            self._engine.bot_difficulty.update(info["episode_extra_stats"])
        return reward, terminated, not terminated, info

    def _copy_of_observation(self) -> Observation:
        return {key: array.copy() for key, array in self._observation.items()}
