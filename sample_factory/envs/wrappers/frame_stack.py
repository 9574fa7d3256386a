"""Stacks of the newest images of an env, for policies that have no memory, and repeated actions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import LimitsEpisodes, max_episode_steps
from sample_factory.envs.contract import COST_ENTRY, check_info, to_number
from sample_factory.envs.protocol import (
    COST,
    EMPTY_INFO,
    FRAMES_LEFT_OUT,
    EnvAround,
    Info,
    MultiAgentEnv,
    ObservationRows,
    StepResult,
)
from sample_factory.spaces.agent_kinds import AgentKinds, KindSpaces
from sample_factory.spaces.observations import image_layout, is_image

ALL = slice(None)


def stack_frames(env: MultiAgentEnv, num_frames: int) -> MultiAgentEnv:
    """Wraps an env so that each observation has the last `num_frames` images; returns the env itself if
    `num_frames` is 1."""
    return env if num_frames == 1 else FrameStack(env, num_frames)


def stacked_space(space: gym.spaces.Dict, num_frames: int) -> gym.spaces.Dict:
    """Returns the observation space with stacks in place of single images; other entries stay. For one frame,
    returns the space unchanged.

    [channels, height, width] becomes [num_frames * channels, height, width], with the oldest image first.
    Images without channels, or with the channels last, get a first axis: [num_frames, ...].
    """
    if num_frames == 1:
        return space
    boxes: dict[str, Any] = dict(space.spaces)
    for key, box in boxes.items():
        if is_image(box):
            layout = image_layout(box.shape)
            has_new_axis = layout.is_plane or (layout.is_hwc and not layout.is_stack)
            join: Any = np.stack if has_new_axis else np.concatenate
            low, high = (join([bound] * num_frames) for bound in (box.low, box.high))
            boxes[key] = gym.spaces.Box(low, high, dtype=box.dtype.type)
    return gym.spaces.Dict(boxes)


class _Kind(NamedTuple):
    agents: Any  # their indices, or a slice of all
    frames: Mapping[str, np.ndarray]  # by key, [num_agents of all kinds, num_frames, *shape], the newest last
    images: Sequence[str]  # keys that are stacked


class FrameHistory:
    """Keeps the last images of each agent of an env, to stack them.

    In each step: call `advance`; let the env write to `newest`; call `restart` for agents that began an
    episode in this step, and `write_stacks`.

    kinds: the agents' kinds, with stacks in place of images.
    newest: rows for the newest observation of each agent.
    """

    def __init__(self, kinds: AgentKinds, num_frames: int):
        """Allocates stacks of `num_frames` images. kinds: the env's kinds of agents, whose spaces have single
        images."""
        self.kinds = AgentKinds(
            tuple(
                KindSpaces(stacked_space(spaces.observation, num_frames), spaces.action)
                for spaces in kinds.spaces
            ),
            kinds.of_agent,
        )
        num_agents = len(kinds.of_agent)
        self._kinds: list[_Kind] = []
        for kind, spaces in enumerate(kinds.spaces):
            boxes = spaces.observation.spaces
            frames = {
                key: np.zeros((num_agents, num_frames, *box.shape), box.dtype) for key, box in boxes.items()
            }
            images = [key for key, box in boxes.items() if is_image(box)]
            agents = np.flatnonzero(np.array(kinds.of_agent) == kind) if len(kinds.spaces) > 1 else ALL
            self._kinds.append(_Kind(agents, frames, images))
        of_agent = [self._kinds[kind].frames for kind in kinds.of_agent] if len(kinds.spaces) > 1 else None
        self.newest = ObservationRows(self._kinds[0].frames, np.arange(num_agents), num_frames - 1, of_agent)

    def advance(self) -> ObservationRows:
        """Drops the oldest image of each stack, and returns the rows for each agent's new observation."""
        for _, by_key, images in self._kinds:
            for key in images:
                by_key[key][:, :-1] = by_key[key][:, 1:]
        return self.newest

    def restart(self, agents: np.ndarray | slice = ALL) -> None:
        """Fills the stacks of agents with their newest images. agents: a mask [num_agents], or all."""
        for _, by_key, images in self._kinds:
            for key in images:
                by_key[key][agents] = by_key[key][agents, -1:]

    def write_stacks(self, into: ObservationRows) -> None:
        """Writes each agent's observation: images as stacks, the oldest image first, and other entries as the
        newest."""
        for agents, by_key, images in self._kinds:
            buffers = into.buffers[agents]
            arrays = into.arrays if into.arrays_of_agent is None else into.arrays_of(agents[0])
            for key, frames in by_key.items():
                rows = arrays[key]
                shown = frames[agents] if key in images else frames[agents, -1]
                rows[buffers, into.step] = shown.reshape(len(buffers), *rows.shape[2:])


class FrameStack(EnvAround):
    """Wraps a MultiAgentEnv: each observation has a stack of the last images of the episode. At the start of
    an episode, and when an absent agent returns, a stack repeats the first image."""

    def __init__(self, env: MultiAgentEnv, num_frames: int):
        super().__init__(env)
        self.steps_in_background = env.steps_in_background
        self._history = FrameHistory(env.kinds, num_frames)
        self.kinds = self._history.kinds
        self._inactive: np.ndarray | None = None  # [num_agents] bool; None: no agent

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        active = self._env.reset(seed, self._history.newest)
        self._history.restart()
        self._history.write_stacks(into)
        self._inactive = None if active is None else ~active
        return active

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        return self._write(self._env.step(actions, self._history.advance()), into)

    def send(self, actions: np.ndarray) -> None:
        self._env.send(actions)

    def receive(self, into: ObservationRows) -> StepResult:
        return self._write(self._env.receive(self._history.advance()), into)

    def _write(self, result: StepResult, into: ObservationRows) -> StepResult:
        """Writes the stacks to `into`, after the env has written the newest observations to the
        FrameHistory. result: of the env's step; returned unchanged."""
        begins = np.logical_or(result.terminated, result.truncated)
        if self._inactive is not None and not self.takes_turns:
            begins |= self._inactive
        if begins.any():
            self._history.restart(begins)
        self._history.write_stacks(into)
        self._inactive = None if result.active is None else ~result.active
        return result


class FrameSkip(gym.Wrapper, LimitsEpisodes):
    """Repeats each action for `frameskip` frames, or until the episode ends, and sums the rewards and
    costs."""

    def __init__(self, env: gym.Env, frameskip: int):
        super().__init__(env)
        self._frameskip = frameskip

    def max_episode_steps(self) -> int | None:
        limit = max_episode_steps(self.env)
        return None if limit is None else math.ceil(limit / self._frameskip)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        total = 0.0
        costs = []
        for left in reversed(range(self._frameskip)):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += to_number(reward)
            check_info(info, "step")
            if COST in info:
                costs.append(to_number(info[COST], COST_ENTRY))
            if terminated or truncated:
                info = {**info, FRAMES_LEFT_OUT: left}
                break
        if costs:
            info = {**info, COST: sum(costs)}
        return observation, total, terminated, truncated, info


class ActionRepeat(EnvAround):
    """Wraps a MultiAgentEnv: a step repeats each action for several steps of the env inside.

    When a new episode begins, the repeats stop, because the policy has not chosen an action for it yet. While
    an agent whose episode has ended is inactive, the repeats continue for the other agents.

    Rewards and costs of the steps are added up, except for those between two episodes of an agent. The
    observations are those after the last step.

    `step` raises ConfigError if one agent begins a new episode while other agents still repeat their
    actions: these agents would act more often than in training.
    """

    def __init__(self, env: MultiAgentEnv, times: int, frameskip: int = 1):
        """Repeats each action `times` times. frameskip: number of env frames in a step of `env`."""
        super().__init__(env)
        self._times = times
        self._frameskip = frameskip
        self._is_between = np.zeros(env.num_agents, bool)  # which agents wait for their next episode

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        active = self._env.reset(seed, into)
        self._is_between = np.zeros(self.num_agents, bool) if active is None else ~active
        return active

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        rewards = np.zeros(self.num_agents)
        costs: np.ndarray | None = None
        terminated = np.zeros(self.num_agents, bool)
        truncated = np.zeros(self.num_agents, bool)
        end_infos: dict[int, Info] = {}
        for left in reversed(range(self._times)):
            result = self._env.step(actions, into)
            # An env may report an end again while the agent stays inactive: the first one counts.
            goes_on = ~(terminated | truncated)
            rewards += np.where(goes_on, result.rewards, 0.0)
            if result.costs is not None:
                costs = np.where(goes_on, result.costs, 0.0) + (0.0 if costs is None else costs)
            terminated |= goes_on & np.asarray(result.terminated)
            truncated |= goes_on & np.asarray(result.truncated)
            for agent in np.flatnonzero(goes_on & (terminated | truncated)).tolist():
                info = result.end_infos.get(agent, EMPTY_INFO)
                left_out = left * self._frameskip + info.get(FRAMES_LEFT_OUT, 0)
                end_infos[agent] = {**info, FRAMES_LEFT_OUT: left_out}
            self._is_between |= terminated | truncated
            active = np.ones(self.num_agents, bool) if result.active is None else result.active
            begins = self._is_between & active
            if begins.any():
                self._is_between &= ~active
                if left and (active & ~begins).any():
                    raise ConfigError(
                        "--eval_env_frameskip repeats actions, but the agents of this env, or the copies of "
                        "a vector env, begin their episodes at different times, so that some would act more "
                        "often than in training; leave it out, or play one copy (--vector_env_copies=1)"
                    )
                break
        return StepResult(rewards, terminated, truncated, end_infos, result.active, costs)
