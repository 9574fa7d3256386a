"""A learning agent of a Doom game, and a scenario with one agent as a Gymnasium env."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from sample_factory.envs.abilities import (
    ChangesLevel,
    LimitsEpisodes,
    NamesActions,
    OwnsProcess,
    RewardShaping,
)
from sample_factory.envs.protocol import FRAMES_LEFT_OUT
from sample_factory.families.doom.action_spaces import action_space, button_decoder, num_buttons
from sample_factory.families.doom.doom_family import GAME_FIELDS, DoomSpec
from sample_factory.families.doom.engine import DoomEngine
from sample_factory.families.doom.film import Viewer, render_metadata
from sample_factory.families.doom.observation import Observation, ObservationReader
from sample_factory.families.doom.player_score import PlayerScore


class DoomAgent:
    """Converts actions of an env to one engine's buttons, and the engine's state to observations and rewards.

    button_values: converts an action of `action_space` to the values of the engine's buttons.
    score: computes the training rewards and the results of the current episode.
    resolution: (width, height) of the observation.
    Raises ValueError if the scenario does not have as many buttons as the spec's actions.
    """

    def __init__(self, spec: DoomSpec, engine: DoomEngine, resolution: tuple[int, int]):
        names = engine.button_names()
        if len(names) != num_buttons(spec.actions):
            raise ValueError(
                f"{spec.name}: the actions are for {num_buttons(spec.actions)} buttons, but {spec.scenario} "
                f"has {len(names)}: {', '.join(names)}"
            )
        self.engine = engine
        self.action_space = action_space(spec.actions)
        self.spec = spec
        self.button_values = button_decoder(spec.actions)
        places = engine.variable_places()
        self.score = PlayerScore(spec, places)
        self._reader = ObservationReader(spec, resolution, engine.screen_shape(), places)
        self.observation_space = self._reader.space
        self._can_respawn = spec.match is not None and spec.match.can_respawn("USE" in names)

    def action_text(self, action: Any) -> str:
        """Returns the buttons that an action presses, e.g. "attack, turn left right +5" (a delta button)."""
        pressed = [
            f"{name.removesuffix('_DELTA')} {value:+.3g}" if name.endswith("_DELTA") else name
            for name, value in zip(self.engine.button_names(), self.button_values(action))
            if value
        ]
        return ", ".join(pressed).lower().replace("_", " ")

    def is_out(self) -> bool:
        """Returns whether the player is dead and cannot respawn."""
        return not self._can_respawn and self.engine.game.is_player_dead()

    def start(self) -> Observation:
        """Starts to score an episode that the engine has just begun; returns its first observation."""
        observation, values = self._observe()
        self.score.start(values)
        return observation

    def step(self, engine_reward: float) -> tuple[Observation, float]:
        """Scores a step that did not end the episode; returns the observation after the step, and the
        training reward. engine_reward: sum of the engine's rewards in the step."""
        observation, values = self._observe()
        return observation, self.score.step(engine_reward, values)

    def end(self, engine_reward: float, frameskip: int) -> tuple[float, dict[str, Any]]:
        """Scores the step that ended the episode; returns the training reward and the info of this step.
        engine_reward: sum of the engine's rewards in the step. frameskip: tics of a step that no end cuts
        short."""
        reward, info = self.score.end(engine_reward, self.engine.variable_values())
        num_tics = self.engine.game.get_episode_time() - self._last_tic
        # Not known where the map itself has ended the episode, since the time is 0 then (vizdoom 1.3.2).
        if 0 < num_tics < frameskip:
            info[FRAMES_LEFT_OUT] = frameskip - num_tics
        return reward, info

    def default_shaping(self) -> dict[str, Any]:
        """Returns a copy of the spec's scheme of reward shaping; {} if the spec has none."""
        return copy.deepcopy(dict(self.spec.shaping or {}))

    def _observe(self) -> tuple[Observation, list[float]]:
        """Returns the observation and the engine's variables; [] if the scenario lists no variables."""
        state = self.engine.game.get_state()
        self._last_tic: int = state.tic
        values = [] if state.game_variables is None else state.game_variables.tolist()
        return self._reader.read(state, values), values


class DoomEnv(
    gymnasium.Env[Any, Any], RewardShaping, OwnsProcess, NamesActions, LimitsEpisodes, ChangesLevel
):
    """Plays one agent in a scenario, or in a match against bots. Spaces: see DoomAgent.

    The engine's process starts at the first reset. Exceptions of the engine are not caught; after one, close
    the env and make another one. The agent's death (in a match: unless it can respawn) and the end of the
    level are terminations; a time limit (the engine's or the spec's) is a truncation. There is no new picture
    at the end of an episode: `step` returns the previous one again.

    resolution: (width, height) of the observation.
    render_mode: any mode makes a second engine draw the same game at 640x480; see Viewer.
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
        self._observation: Observation = {}

    def max_episode_steps(self) -> int | None:
        match = self._engine.settings.match
        limits = [self._spec.time_limit_frames, None if match is None else match.tics]
        known = [frames for frames in limits if frames is not None]
        return math.ceil(min(known) / self._frameskip) if known else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode. A seed determines this episode and, until the next seed, all later ones."""
        super().reset(seed=seed)
        episode_seed = int(self.np_random.integers(2**32))
        self._engine.new_episode(episode_seed)
        if self._viewer is not None:
            self._viewer.new_episode(episode_seed)
        self._num_frames = 0
        self._observation = self.agent.start()
        return self._observation, {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        buttons = self.agent.button_values(action)
        reward = self._engine.game.make_action(buttons, self._frameskip)
        if self._viewer is not None:
            self._viewer.step(buttons)
        self._num_frames += self._frameskip
        is_over = self._num_frames >= self._frame_limit or self._engine.game.is_episode_finished()
        if is_over or self.agent.is_out():
            return self._observation, *self._end_episode(reward)
        self._observation, reward = self.agent.step(reward)
        return self._observation, reward, False, False, self.agent.score.costs

    def change_level(self, values: Mapping[str, Any]) -> bool:
        """Changes the skill, and the map within the same .wad, of the running game from the next episode on.
        Returns False, and changes nothing, in a match or for other changes."""
        settings = self._engine.settings.in_level(self._spec, values)
        if not values.keys() <= GAME_FIELDS.keys() or not self._engine.change_level(settings):
            return False
        if self._viewer is not None:
            self._viewer.follow_level()
        return True

    def render(self) -> np.ndarray | list[np.ndarray] | None:  # type: ignore[override]
        """Returns the latest picture, [480, 640, 3] uint8 (wide: [360, 640, 3]); None before the first reset,
        and without a render_mode.

        With render_mode "rgb_array_list": a list of the pictures of all tics since the last call.
        """
        return None if self._viewer is None else self._viewer.film.render()

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
        self.agent.score.set_scheme(shaping)

    def _end_episode(self, engine_reward: float) -> tuple[float, bool, bool, dict[str, Any]]:
        game = self._engine.game
        # By the game itself, or only by its time.
        is_left = game.is_episode_finished() and not game.is_episode_timeout_reached()
        terminated = is_left or self.agent.is_out()
        reward, info = self.agent.end(engine_reward, self._frameskip)
        if self._engine.bot_difficulty is not None:
            self._engine.bot_difficulty.update(info["episode_extra_stats"])
        return reward, terminated, not terminated, info
