"""A Doom scenario with one agent as a Gymnasium env."""

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
from sample_factory.envs.doom.doom_agent import DoomAgent
from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.film import render_metadata
from sample_factory.envs.doom.observation import Observation, zero_observation
from sample_factory.envs.doom.viewer import Viewer
from sample_factory.envs.protocol import EMPTY_INFO


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
    """

    def __init__(
        self,
        spec: DoomSpec,
        engine: DoomEngine,
        frameskip: int,
        resolution: tuple[int, int],
        render_mode: str | None = None,
    ):
        self.metadata = render_metadata(render_mode, frameskip)
        self.render_mode = render_mode
        self._spec = spec
        self._engine = engine
        self._frameskip = frameskip
        self._agent = DoomAgent(spec, engine, resolution)
        self._viewer = None if render_mode is None else Viewer(engine, frameskip, render_mode)
        self._frame_limit = spec.time_limit_frames or float("inf")
        self.observation_space = self._agent.observation_space
        self.action_space = self._agent.action_space
        self._observation = zero_observation(self._agent.observation_space)

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
        self._agent.start(into)
        return {}

    def step_into(
        self, action: Any, into: Mapping[str, np.ndarray]
    ) -> tuple[float, bool, bool, Mapping[str, Any]]:
        """Returns reward, terminated, truncated, info. Writes nothing at the end of an episode."""
        buttons = self._agent.button_values(action)
        reward = self._engine.game.make_action(buttons, self._frameskip)
        if self._viewer is not None:
            self._viewer.step(buttons)
        self._num_frames += self._frameskip
        if self._num_frames >= self._frame_limit or self._engine.game.is_episode_finished():
            return self._end_episode(reward)
        return self._agent.step(reward, into), False, False, EMPTY_INFO

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode as Gymnasium defines it: returns a new observation dict and the info."""
        info = self.reset_into(self._observation, seed=seed)
        return self._copy_of_observation(), info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Steps as Gymnasium defines it: new observation dict, reward, terminated, truncated, info."""
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
        return self._agent.action_text(action)

    def get_default_reward_shaping(self) -> dict[str, Any]:
        return self._agent.default_shaping()

    def process_is_gone(self) -> bool:
        return self._engine.is_gone()

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        self._agent.set_shaping(shaping)

    def _end_episode(self, engine_reward: float) -> tuple[float, bool, bool, dict[str, Any]]:
        terminated = self._is_terminal()
        reward, info = self._agent.end(engine_reward)
        if self._engine.bot_difficulty is not None:
            self._engine.bot_difficulty.update(info["episode_extra_stats"])
        return reward, terminated, not terminated, info

    def _is_terminal(self) -> bool:
        """Whether the game itself has ended, and not only its time."""
        game = self._engine.game
        if self._spec.match is not None or not game.is_episode_finished():
            return False
        return game.is_player_dead() or not game.is_episode_timeout_reached()

    def _copy_of_observation(self) -> Observation:
        return {key: array.copy() for key, array in self._observation.items()}
