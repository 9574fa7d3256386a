"""A Doom scenario with one learning player as a Gymnasium env."""

import copy
from typing import Any, Mapping

import cv2
import gymnasium
import numpy as np

from sample_factory.envs.doom.action_spaces import ActionDecoder, action_space, num_buttons
from sample_factory.envs.doom.doom_specs import DoomSpec
from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.measurements import NUM_MEASUREMENTS, MeasurementReader
from sample_factory.envs.doom.player_score import PlayerScore
from sample_factory.envs.doom.shrink import make_shrink
from sample_factory.envs.interfaces import BeginsSteps, OwnsProcess, RewardShaping, WritesObservations
from sample_factory.envs.protocol import EMPTY_INFO

TICS_PER_SECOND = 35
RENDER_WIDTH = 640
NO_VALUES: list[float] = []


class DoomEnv(gymnasium.Env, WritesObservations, BeginsSteps, RewardShaping, OwnsProcess):
    """Observation: {"obs": uint8 [3, height, width]}, and "measurements": float32 [23] if the spec has them.

    The engine's process starts with the first reset. Its exceptions pass through; close the env then and make
    another one. The death of the player is a termination, a time limit (the engine's or the spec's) a
    truncation. At an episode's end there is no new picture; `step` then returns the last one again.
    resolution: (width, height) of the observation.
    """

    def __init__(
        self,
        spec: DoomSpec,
        engine: DoomEngine,
        frameskip: int,
        resolution: tuple[int, int],
        render_mode: str | None = None,
    ):
        names = engine.button_names()
        if len(names) != num_buttons(spec.actions):
            raise ValueError(
                f"{spec.name}: the actions are for {num_buttons(spec.actions)} buttons, but {spec.scenario} "
                f"has {len(names)}: {', '.join(names)}"
            )
        draws_all = render_mode == "rgb_array_list"
        fps = TICS_PER_SECOND if draws_all else max(1, TICS_PER_SECOND // frameskip)
        self.metadata = {"render_modes": ["rgb_array", "rgb_array_list"], "render_fps": fps}
        self.render_mode = render_mode
        self._spec, self._engine, self._frameskip = spec, engine, frameskip
        self._decoder = ActionDecoder(spec.actions)
        self._score = PlayerScore(spec, engine.variable_places())
        self._measurements = MeasurementReader(engine.variable_places()) if spec.measurements else None
        self._needs_variables = spec.measurements or self._score.needs_variables
        self._frame_limit = spec.time_limit_frames or float("inf")
        self._engine_reward: float | None = None  # of a step that has begun
        self._screen: np.ndarray | None = None
        self._film: list[np.ndarray] = []  # since the last render()

        width, height = resolution
        self._shrink = make_shrink(engine.screen_shape(), (height, width))
        spaces = {"obs": gymnasium.spaces.Box(0, 255, (3, height, width), np.uint8)}
        if spec.measurements:
            spaces["measurements"] = gymnasium.spaces.Box(-np.inf, np.inf, (NUM_MEASUREMENTS,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(spaces)
        self.action_space = action_space(spec.actions)
        self._observation = {key: np.zeros(space.shape, space.dtype) for key, space in spaces.items()}

    def reset_into(self, into: Mapping[str, np.ndarray], *, seed: int | None = None) -> dict[str, Any]:
        """Starts an episode: a given seed determines this one and those after it."""
        super().reset(seed=seed)
        self._engine_reward = None
        self._engine.new_episode(int(self.np_random.integers(2**32)))
        self._num_frames = 0
        self._score.start(self._observe(into))
        return {}

    def begin_step(self, action: Any) -> None:
        """Plays `frameskip` tics."""
        self._engine_reward = self._play(self._decoder.decode(action))

    def step_into(
        self, action: Any, into: Mapping[str, np.ndarray]
    ) -> tuple[float, bool, bool, Mapping[str, Any]]:
        """At an episode's end nothing is written."""
        game = self._engine.game
        if self._engine_reward is None:
            self.begin_step(action)
        engine_reward, self._engine_reward = self._engine_reward, None
        self._num_frames += self._frameskip
        if self._num_frames >= self._frame_limit or game.is_episode_finished():
            return self._end_episode(engine_reward)
        values = self._observe(into)
        return self._score.step(engine_reward, values), False, False, EMPTY_INFO

    def _play(self, buttons: list[float]) -> float:
        """Plays `frameskip` tics, with a picture of each if a film is wanted. Returns the engine's reward.

        The game is the same either way; but asked to stop after every tic, the engine draws a moving sprite
        here and there a pixel off (up to 2 % of an observation's numbers, mostly none).
        """
        game = self._engine.game
        if self.render_mode != "rgb_array_list":
            return game.make_action(buttons, self._frameskip)
        reward = 0.0
        for tic in range(self._frameskip):
            reward += game.make_action(buttons, 1)
            if game.is_episode_finished():
                break
            if tic < self._frameskip - 1:  # the last one is the observation's
                self._film.append(game.get_state().screen_buffer)
        return reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """The Gymnasium way: returns a new observation dict and the info."""
        info = self.reset_into(self._observation, seed=seed)
        return self._copy_of_observation(), info

    def step(self, action: Any):
        """The Gymnasium way: returns a new observation dict, reward, terminated, truncated, info."""
        result = self.step_into(action, self._observation)
        return self._copy_of_observation(), *result

    def render(self) -> np.ndarray | list[np.ndarray] | None:
        """What the policy saw last, [height, 640, 3] uint8: enlarged, not drawn anew.

        With render_mode "rgb_array_list": a list of them, one for each tic since the last call.
        """
        if self.render_mode == "rgb_array_list":
            film, self._film = self._film, []
            return [_enlarged(screen) for screen in film]
        return None if self._screen is None else _enlarged(self._screen)

    def close(self) -> None:
        self._engine.close()

    def get_default_reward_shaping(self) -> dict[str, Any]:
        """The scheme of `reward_shaping.py`, {} for a scenario that is not shaped."""
        return copy.deepcopy(dict(self._spec.shaping or {}))

    def process_is_gone(self) -> bool:
        return self._engine.is_gone()

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        self._score.set_scheme(shaping)

    def _observe(self, into: Mapping[str, np.ndarray]) -> list[float]:
        """Writes the observation and returns the variables, none where nobody needs them."""
        state = self._engine.game.get_state()
        screen = state.screen_buffer
        if self.render_mode is not None:  # else its memory, still in the cache, is free for the next one
            self._screen = screen
            if self.render_mode == "rgb_array_list":
                self._film.append(screen)
        self._shrink(screen, into["obs"])
        if not self._needs_variables:
            return NO_VALUES
        values = state.game_variables.tolist()
        if self._measurements is not None:
            self._measurements.write(values, into["measurements"])
        return values

    def _end_episode(self, engine_reward: float) -> tuple[float, bool, bool, dict[str, Any]]:
        terminated = self._is_terminal()
        values = self._engine.variable_values() if self._spec.match is not None else NO_VALUES
        reward, info = self._score.end(engine_reward, values)
        if self._engine.bot_difficulty is not None:
            self._engine.bot_difficulty.update(info["episode_extra_stats"])
        return reward, terminated, not terminated, info

    def _is_terminal(self) -> bool:
        """Whether the game came to its end, rather than that time was up."""
        game = self._engine.game
        if self._spec.match is not None or not game.is_episode_finished():
            return False
        return game.is_player_dead() or not game.is_episode_timeout_reached()

    def _copy_of_observation(self) -> dict[str, np.ndarray]:
        return {key: array.copy() for key, array in self._observation.items()}


def _enlarged(screen: np.ndarray) -> np.ndarray:
    """Planes [3, height, width] to a picture [height', 640, 3]."""
    picture = np.ascontiguousarray(screen.transpose(1, 2, 0))
    height = RENDER_WIDTH * picture.shape[0] // picture.shape[1]
    return cv2.resize(picture, (RENDER_WIDTH, height), interpolation=cv2.INTER_LINEAR)
