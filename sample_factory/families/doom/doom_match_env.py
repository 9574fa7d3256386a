"""A Doom match with several agents as a multi-agent env."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from sample_factory.envs.abilities import (
    LimitsEpisodes,
    NamesActions,
    OwnsProcess,
    RewardShaping,
    SplitsScreen,
)
from sample_factory.families.doom.doom_env import DoomAgent
from sample_factory.families.doom.doom_family import DoomSpec
from sample_factory.families.doom.engine import DoomEngine
from sample_factory.families.doom.film import (
    EVERY_TIC,
    Film,
    render_metadata,
    split_grid,
    split_screen,
    split_width,
)
from sample_factory.families.doom.lockstep import Lockstep
from sample_factory.families.doom.observation import Observation

Observations = list[Observation]
Infos = Sequence[Mapping[str, Any]]


class DoomMatchEnv(
    gymnasium.Env[Any, Any], RewardShaping, OwnsProcess, NamesActions, SplitsScreen, LimitsEpisodes
):
    """A multi-agent env with one agent for each engine: lists where a Gymnasium env has single values.

    Spaces of each agent: see DoomAgent.

    The engines' processes start at the first reset. Exceptions of an engine, and MatchBroken, are not caught;
    after one, close the env and make another one.

    A match ends for all agents at once. If the time is over, the agents are truncated; if the level is left,
    they are terminated. An agent that dies and cannot respawn is terminated earlier, and does not act
    (`is_active` in its info) until the next match; when all agents have died, the match is over. The step
    that ends a match begins the next one.

    `process_is_gone` is always False: Lockstep watches the engines, and no call waits for a dead one.

    resolution: (width, height) of the observation.
    """

    is_multiagent = True

    @property
    def num_processes(self) -> int:
        """The number of engine processes, one for each agent."""
        return self.num_agents

    def __init__(
        self,
        spec: DoomSpec,
        engines: Sequence[DoomEngine],
        frameskip: int,
        resolution: tuple[int, int],
        render_mode: str | None = None,
    ):
        self.metadata = render_metadata(render_mode, frameskip)
        self.render_mode = render_mode
        self.num_agents = len(engines)
        self._frameskip = frameskip
        self.agents = [DoomAgent(spec, engine, resolution) for engine in engines]
        width = split_width(self.num_agents)
        self._films = [Film(engine, render_mode, width) for engine in engines] if render_mode else []
        self._lockstep = Lockstep(engines, spec.name)
        self._bot_difficulty = engines[0].bot_difficulty
        self.observation_space: gymnasium.spaces.Dict = self.agents[0].observation_space
        self.action_space = self.agents[0].action_space
        self._returns = np.zeros(self.num_agents)  # sums of the engines' rewards in this match
        self._is_out = [False] * self.num_agents
        self._observations: Observations = []

    def max_episode_steps(self) -> int | None:
        match = self.agents[0].engine.settings.match
        return None if match is None else math.ceil(match.tics / self._frameskip)

    def reset(  # type: ignore[override]
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Starts a match; if a seed is given, in new processes. Returns all agents' observations and
        infos."""
        super().reset(seed=seed)
        if self._lockstep.is_running and seed is not None:
            self._lockstep.close()
        self._new_match()
        return list(self._observations), [{} for _ in self.agents]

    def step(  # type: ignore[override]
        self, actions: Sequence[Any]
    ) -> tuple[Observations, list[float], list[bool], list[bool], Infos]:
        """Plays `frameskip` tics. Returns observations, rewards, terminated, truncated and infos, each a list
        with an entry per agent."""
        buttons = [agent.button_values(action) for agent, action in zip(self.agents, actions, strict=True)]
        after_tic = self._take_pictures if self.render_mode == EVERY_TIC else None
        is_over = self._lockstep.play(buttons, self._frameskip, after_tic)
        is_cut = is_over and self.agents[0].engine.game.is_episode_timeout_reached()
        returns = np.array([agent.engine.game.get_total_reward() for agent in self.agents])
        engine_rewards = (returns - self._returns).tolist()
        self._returns[:] = returns
        was_out, self._is_out = self._is_out, [agent.is_out() for agent in self.agents]
        ended = [(is_over or out) and not before for out, before in zip(self._is_out, was_out)]
        terminated = [end and (out or not is_cut) for end, out in zip(ended, self._is_out)]
        truncated = [end and not is_terminal for end, is_terminal in zip(ended, terminated)]
        rewards = [0.0] * self.num_agents
        infos: list[dict[str, Any]] = [{} for _ in self.agents]
        for i, agent in enumerate(self.agents):
            if ended[i]:
                rewards[i], infos[i] = agent.end(engine_rewards[i], self._frameskip)
            elif not was_out[i]:
                self._observations[i], rewards[i] = agent.step(engine_rewards[i])
                infos[i] = dict(agent.score.costs)
        if self._bot_difficulty is not None and ended[0]:
            self._bot_difficulty.update(infos[0]["episode_extra_stats"])
        if is_over or all(self._is_out):
            self._new_match()
        else:
            self._take_pictures()
        for info, out in zip(infos, self._is_out):
            if out:
                info["is_active"] = False
        return list(self._observations), rewards, terminated, truncated, infos

    def render(self) -> np.ndarray | list[np.ndarray] | None:  # type: ignore[override]
        """Returns the latest pictures of all agents in a split screen, [height, width, 3] uint8; None before
        the first picture, and without a render_mode. With render_mode "rgb_array_list": a list of the split
        screens since the last call.

        The pictures are enlarged observations, since the Viewer cannot repeat a match in other engines.
        """
        rendered: list[Any] = [film.render() for film in self._films]
        if self.render_mode == EVERY_TIC:
            return [split_screen(pictures) for pictures in zip(*rendered)]
        return None if not rendered or rendered[0] is None else split_screen(rendered)

    def close(self) -> None:
        self._lockstep.close()

    def action_text(self, action: Any) -> str:
        return self.agents[0].action_text(action)

    def screen_grid(self) -> tuple[int, int]:
        return split_grid(self.num_agents)

    def get_default_reward_shaping(self) -> dict[str, Any]:
        return self.agents[0].default_shaping()

    def set_reward_shaping(self, shaping: Mapping[str, Any], agent: int) -> None:
        self.agents[agent].score.set_scheme(shaping)

    def _new_match(self) -> None:
        seed = int(self.np_random.integers(2**32))
        if self._lockstep.is_running and self.agents[0].engine.has_lost_humans():
            self._lockstep.close()  # the next start waits for humans to join
        if not self._lockstep.is_running:
            self._lockstep.start(seed)
        self._lockstep.new_episode(seed)
        self._returns[:] = 0.0
        self._is_out = [False] * self.num_agents
        self._observations = [agent.start() for agent in self.agents]
        self._take_pictures()

    def _take_pictures(self) -> None:
        for film in self._films:
            film.add()
