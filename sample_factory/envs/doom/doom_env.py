"""A Doom scenario with one learning player as a Gymnasium env."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from sample_factory.envs.abilities import OwnsProcess, RewardShaping, WritesObservations
from sample_factory.envs.doom.doom_family import DoomSpec
from sample_factory.envs.doom.engine import DoomEngine
from sample_factory.envs.doom.player import EVERY_TIC, DoomPlayer, render_metadata
from sample_factory.envs.protocol import EMPTY_INFO


class DoomEnv(gymnasium.Env, WritesObservations, RewardShaping, OwnsProcess):
    """Observations are those of DoomPlayer.

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
        self.metadata, self.render_mode = render_metadata(render_mode, frameskip), render_mode
        self._spec, self._engine, self._frameskip = spec, engine, frameskip
        self._player = DoomPlayer(spec, engine, resolution, render_mode)
        self._frame_limit = spec.time_limit_frames or float("inf")
        self.observation_space, self.action_space = self._player.observation_space, self._player.action_space
        spaces = self.observation_space.spaces.items()
        self._observation = {key: np.zeros(space.shape, space.dtype) for key, space in spaces}

    def reset_into(self, into: Mapping[str, np.ndarray], *, seed: int | None = None) -> dict[str, Any]:
        """Starts an episode: a given seed determines this one and those after it."""
        super().reset(seed=seed)
        self._engine.new_episode(int(self.np_random.integers(2**32)))
        self._num_frames = 0
        self._player.start(into)
        return {}

    def step_into(
        self, action: Any, into: Mapping[str, np.ndarray]
    ) -> tuple[float, bool, bool, Mapping[str, Any]]:
        """At an episode's end nothing is written."""
        buttons = self._player.buttons(action)
        is_filmed = self.render_mode == EVERY_TIC
        reward = self._film(buttons) if is_filmed else self._engine.game.make_action(buttons, self._frameskip)
        self._num_frames += self._frameskip
        if self._num_frames >= self._frame_limit or self._engine.game.is_episode_finished():
            return self._end_episode(reward)
        return self._player.step(reward, into), False, False, EMPTY_INFO

    def _film(self, buttons: list[float]) -> float:
        """Plays `frameskip` tics and keeps a picture of each. Returns the engine's reward.

        The game is the same as in one go; but asked to stop after every tic, the engine draws a moving sprite
        here and there a pixel off (up to 2 % of an observation's numbers, mostly none).
        """
        game = self._engine.game
        reward = 0.0
        for tic in range(self._frameskip):
            reward += game.make_action(buttons, 1)
            if game.is_episode_finished():
                break
            if tic < self._frameskip - 1:  # the last one is the observation's
                self._player.film_tic()
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
        """As DoomPlayer.render."""
        return self._player.render()

    def close(self) -> None:
        self._engine.close()

    def get_default_reward_shaping(self) -> dict[str, Any]:
        return self._player.default_shaping()

    def process_is_gone(self) -> bool:
        return self._engine.is_gone()

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        self._player.set_shaping(shaping)

    def _end_episode(self, engine_reward: float) -> tuple[float, bool, bool, dict[str, Any]]:
        terminated = self._is_terminal()
        reward, info = self._player.end(engine_reward)
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
