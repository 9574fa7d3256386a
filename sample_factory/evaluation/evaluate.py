"""Evaluates policies: plays an env, shows or films it, and collects the results of the episodes."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER, ConfigError
from sample_factory.config.monitoring_flags import EvaluationFlags
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.episode_runner import EpisodeResult, EpisodeRunner
from sample_factory.evaluation.policy import TrainedPolicy, load_policy
from sample_factory.evaluation.policy_choice import PolicyChoice, choices_of_agents
from sample_factory.evaluation.result_statistics import MeanAndStd, mean_and_std
from sample_factory.evaluation.screen import (
    Screen,
    draws_every_frame,
    frames_per_second,
    make_env,
    open_screen,
)
from sample_factory.runtime.supervisor import StopSignals

MAX_AGENT_LINES = 16  # in a summary: the copies of a vector env are agents too, hundreds of them


class Evaluation(NamedTuple):
    """Result of an evaluation.

    choices: the policy of each agent. env_frames: all that were played, unfinished episodes included.
    """

    choices: tuple[PolicyChoice, ...]
    episodes: tuple[EpisodeResult, ...]
    env_frames: int
    video: Path | None

    @property
    def reward(self) -> MeanAndStd:
        return mean_and_std([episode.reward for episode in self.episodes])

    @property
    def length(self) -> MeanAndStd:
        """Lengths of the episodes in env frames."""
        return mean_and_std([episode.length for episode in self.episodes])

    @property
    def true_objective(self) -> MeanAndStd:
        return mean_and_std([episode.true_objective for episode in self.episodes])

    def for_agent(self, agent: int) -> "Evaluation":
        """Returns the same with the episodes of one agent only."""
        return self._replace(episodes=tuple(episode for episode in self.episodes if episode.agent == agent))

    def summary(self) -> str:
        """Returns a text of several lines for the console."""
        lines = [f"{len(self.episodes)} episodes, {self.env_frames} env frames"]
        if self.episodes:
            lines += [f"reward {self.reward}", f"length {self.length}"]
            lines.append(f"true objective {self.true_objective}")
        if 1 < len(self.choices) <= MAX_AGENT_LINES:
            lines += [self._agent_line(agent) for agent in range(len(self.choices))]
        return "\n".join([*lines, f"video: {self.video}"] if self.video else lines)

    def _agent_line(self, agent: int) -> str:
        own = self.for_agent(agent)
        who = f"agent {agent} ({self.choices[agent]})"
        if not own.episodes:
            return f"{who}: no episodes"
        return (
            f"{who}: {len(own.episodes)} episodes, reward {own.reward}, true objective {own.true_objective}"
        )


def evaluate(config: Config, family: EnvFamily) -> Evaluation:
    """Plays until a limit, a closed window or a signal, and prints each episode.

    Raises ConfigError, CheckpointError, VideoError, and what the env raises.
    """
    config = _with_action_repeat(config)
    if not config.evaluation.video_name.endswith(".mp4"):
        raise ConfigError(f"--video_name={config.evaluation.video_name} should end with .mp4")
    frameskip = config.env.env_frameskip or 1
    if config.run.seed is not None:
        torch.manual_seed(config.run.seed)
    with StopSignals() as signals, contextlib.closing(make_env(config, family)) as env:
        choices = choices_of_agents(config, env.kinds)
        runner = EpisodeRunner(env, _load_policies(config, choices, env), frameskip)
        frames_per_picture = 1 if draws_every_frame(env) else frameskip
        screen = open_screen(config, frames_per_second(config, family, env), frames_per_picture)
        limits = _Limits(config.evaluation)
        try:
            runner.start(config.run.seed)
            screen.show(env)
            episodes = _play(
                runner,
                lambda: screen.show(env),
                lambda episodes, frames: (
                    signals.requested is not None or limits.are_reached(episodes, frames, screen)
                ),
            )
        finally:
            video = screen.close()
    result = Evaluation(tuple(choices), tuple(episodes), runner.env_frames, video)
    print(result.summary())
    return result


def _load_policies(
    config: Config, choices: Sequence[PolicyChoice], env: MultiAgentEnv
) -> list[TrainedPolicy]:
    """Returns a policy for each agent; agents with the same choice share one object."""
    kinds = dict(zip(choices, env.kinds.of_agent))
    loaded = {choice: load_policy(config, choice, *env.kinds.spaces[kind]) for choice, kind in kinds.items()}
    return [loaded[choice] for choice in choices]


def _with_action_repeat(config: Config) -> Config:
    """Makes --render_action_repeat the frameskip of the env, so that its time limits stay right."""
    if config.evaluation.render_action_repeat is None:
        return config
    env_flags = dataclasses.replace(config.env, env_frameskip=config.evaluation.render_action_repeat)
    return dataclasses.replace(config, env=env_flags)


class _Limits:
    """Decides when an evaluation ends, unless a signal ends it."""

    def __init__(self, flags: EvaluationFlags):
        self._num_episodes = flags.max_num_episodes
        self._num_frames = flags.max_num_frames
        has_limit = min(self._num_episodes, self._num_frames) < NEVER
        # A video without another limit is one episode long.
        self._ends_with_video = flags.save_video and not has_limit
        if self._ends_with_video and flags.video_frames < 0:
            self._num_episodes = 1

    def are_reached(self, num_episodes: int, env_frames: int, screen: Screen) -> bool:
        if num_episodes >= self._num_episodes or env_frames >= self._num_frames:
            return True
        return screen.is_closed or (self._ends_with_video and screen.video_is_complete)


def _play(
    runner: EpisodeRunner, show: Callable[[], None], is_over: Callable[[int, int], bool]
) -> list[EpisodeResult]:
    """Steps and draws the env until `is_over(number of episodes, env frames)`."""
    episodes: list[EpisodeResult] = []
    while not is_over(len(episodes), runner.env_frames):
        try:
            finished = runner.step()
        except Exception:
            if not is_over(len(episodes), runner.env_frames):
                raise
            break  # the signal to stop reached the simulator first
        show()
        for episode in finished:
            episodes.append(episode)
            print(_episode_line(episodes), flush=True)
    return episodes


def _episode_line(episodes: Sequence[EpisodeResult]) -> str:
    last = episodes[-1]
    mean = np.mean([episode.reward for episode in episodes if episode.agent == last.agent])
    return (
        f"episode {len(episodes)} (agent {last.agent}): reward {last.reward:.3f}, {last.length} env frames, "
        f"true objective {last.true_objective:.3f}; mean reward {mean:.3f}"
    )
