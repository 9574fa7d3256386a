"""Evaluates policies: plays an env, shows or films it, and collects the results of the episodes."""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER, ConfigError
from sample_factory.config.monitoring_flags import EvaluationFlags
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.episode_runner import EpisodeRunner
from sample_factory.evaluation.eval_frameskip import with_eval_frameskip
from sample_factory.evaluation.overlay import Overlay
from sample_factory.evaluation.policy import TrainedPolicy, load_trained_policy
from sample_factory.evaluation.policy_choice import PolicyChoice, choices_of_agents
from sample_factory.evaluation.progress import Progress
from sample_factory.evaluation.results import (
    EpisodeResult,
    Evaluation,
    ResultFiles,
    episode_line,
    result_figures,
)
from sample_factory.evaluation.screen import (
    EPISODES_UNSEEN,
    Screen,
    drawn_agents,
    draws_every_frame,
    find_drawing,
    frames_per_second,
    make_env,
    open_screen,
)
from sample_factory.evaluation.trained_env import explains_other_env
from sample_factory.runtime.supervisor import StopSignals

log = logging.getLogger("sample_factory")

MIN_VIDEO_SECONDS = 10.0  # a single episode may be too short to see anything


def evaluate(config: Config, family: EnvFamily) -> Evaluation:
    """Plays until a limit, a closed window or a signal, and prints each episode.

    Raises ConfigError, CheckpointError, VideoError, and what the env raises.
    """
    files = ResultFiles(config.extra["results"].json if "results" in config.extra else None)
    files.check()
    config, family = with_eval_frameskip(_with_action_repeat(config), family)
    if not config.evaluation.video_name.endswith(".mp4"):
        raise ConfigError(f"--video_name={config.evaluation.video_name} should end with .mp4")
    frameskip = (config.env.env_frameskip or 1) * family.action_repeat
    if config.evaluation.no_render and not (config.evaluation.has_limit or config.evaluation.save_video):
        log.info("Playing without pictures and without a limit: Ctrl+C ends it, or --max_num_episodes=N")
    draws = find_drawing(config)
    if config.run.seed is not None:
        torch.manual_seed(config.run.seed)
    with StopSignals() as signals, contextlib.ExitStack() as closed_at_end:
        with explains_other_env(config):
            env = closed_at_end.enter_context(contextlib.closing(make_env(config, family, draws)))
            choices = choices_of_agents(config, env.kinds)
            runner = EpisodeRunner(env, _load_policies(config, choices, env), frameskip)
        frames_per_picture = 1 if draws_every_frame(env) else frameskip
        overlay = None
        if config.evaluation.overlay:
            overlay = Overlay(config.run.experiment, env, choices, drawn_agents(env))
        screen = open_screen(config, frames_per_second(config, family, env), frames_per_picture, overlay)
        limits = _Limits(config.evaluation, env, screen)
        progress = _make_progress(config.evaluation, screen)
        begin = time.monotonic()
        try:
            runner.start(config.run.seed)
            screen.show(env)
            episodes = _play(
                runner,
                limits,
                progress,
                lambda finished: _show(screen, overlay, env, runner, finished),
                lambda: signals.requested is not None or limits.are_reached(runner.env_frames),
            )
        finally:
            video = screen.close()
    seconds = time.monotonic() - begin
    result = Evaluation(tuple(choices), tuple(episodes), runner.env_frames, seconds, video, limits.num_wanted)
    print(result.summary())
    files.write(result_figures(config, [result]))
    return result


def _make_progress(flags: EvaluationFlags, screen: Screen) -> Progress | None:
    """Returns the progress towards --max_num_episodes, where there are no pictures to look at."""
    has_end = flags.max_num_episodes < NEVER and not screen.has_pictures
    return Progress(flags.max_num_episodes) if has_end else None


def _load_policies(
    config: Config, choices: Sequence[PolicyChoice], env: MultiAgentEnv
) -> list[TrainedPolicy]:
    """Returns a policy for each agent; agents with the same choice share one object."""
    kinds = dict(zip(choices, env.kinds.of_agent))
    loaded = {
        choice: load_trained_policy(config, choice, *env.kinds.spaces[kind]) for choice, kind in kinds.items()
    }
    return [loaded[choice] for choice in choices]


def _with_action_repeat(config: Config) -> Config:
    """Makes --render_action_repeat the frameskip of the env, so that its time limits stay right."""
    if config.evaluation.render_action_repeat is None:
        return config
    env_flags = dataclasses.replace(config.env, env_frameskip=config.evaluation.render_action_repeat)
    return dataclasses.replace(config, env=env_flags)


def _show(
    screen: Screen,
    overlay: Overlay | None,
    env: MultiAgentEnv,
    runner: EpisodeRunner,
    finished: Sequence[EpisodeResult],
) -> None:
    """Draws a step, at whose end the episodes `finished` ended."""
    if overlay is not None:
        overlay.update(runner, finished)
    screen.show(env, {episode.agent for episode in finished}.issuperset(drawn_agents(env)))


class _Limits:
    """Decides which episodes count, and when an evaluation ends unless a signal ends it.

    Each agent plays a number of episodes that is fixed in advance. Counting those that end first would favour
    short ones.
    """

    def __init__(self, flags: EvaluationFlags, env: MultiAgentEnv, screen: Screen):
        self._screen = screen
        self._num_frames = flags.max_num_frames
        self._ends_with_video = flags.save_video and not flags.has_limit
        # A video without any limit has whole episodes.
        self._has_whole_episodes = self._ends_with_video and flags.video_frames < 0
        self._last_episode_has_ended = False
        num_episodes = flags.max_num_episodes
        self.num_wanted = num_episodes if num_episodes < NEVER and flags.max_num_frames == NEVER else None
        if not flags.has_limit and not flags.no_render and not screen.has_pictures:
            num_episodes = EPISODES_UNSEEN
        agents = np.arange(env.num_agents)
        # [num_agents]: number of episodes that each agent has yet to play.
        self._missing = num_episodes // env.num_agents + (agents < num_episodes % env.num_agents)
        if self._has_whole_episodes:
            self._missing[len(drawn_agents(env)) :] = 0

    def counts(self, episode: EpisodeResult) -> bool:
        """Returns whether an episode that has just ended, and is drawn, is one of those to play."""
        self._missing[episode.agent] -= 1
        is_counted = bool(self._missing[episode.agent] >= 0)
        if is_counted and self._has_whole_episodes:
            self._last_episode_has_ended = self._screen.video_seconds >= MIN_VIDEO_SECONDS
        return is_counted

    def are_reached(self, env_frames: int) -> bool:
        if env_frames >= self._num_frames or not (self._missing > 0).any() or self._last_episode_has_ended:
            return True
        return self._screen.is_closed or (self._ends_with_video and self._screen.video_is_complete)


def _play(
    runner: EpisodeRunner,
    limits: _Limits,
    progress: Progress | None,
    show: Callable[[Sequence[EpisodeResult]], None],
    is_over: Callable[[], bool],
) -> list[EpisodeResult]:
    """Steps and draws the env until `is_over`; returns the episodes that count."""
    episodes: list[EpisodeResult] = []
    while not is_over():
        try:
            finished = runner.step()
        except Exception:
            if not is_over():
                raise
            break  # the signal to stop reached the simulator first
        show(finished)
        for episode in filter(limits.counts, finished):
            episodes.append(episode)
            if progress is not None:
                progress.close()  # the line takes the place of the bar
            print(episode_line(episodes, runner.num_agents), flush=True)
        if progress is not None:
            progress.update(len(episodes))
    if progress is not None:
        progress.close()
    return episodes
