"""`enjoy`: plays one env, shows or films it, and collects the results of the episodes."""

import contextlib
import dataclasses
import time
from collections.abc import Sequence

import torch

from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER, ConfigError
from sample_factory.config.monitoring_flags import EvaluationFlags
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.episode_runner import EpisodeRunner
from sample_factory.evaluation.played_env import explains_other_env, make_env, with_eval_frameskip
from sample_factory.evaluation.policy import TrainedPolicy, load_trained_policy
from sample_factory.evaluation.policy_choice import PolicyChoice, choices_of_agents
from sample_factory.evaluation.results import (
    EpisodeCount,
    EpisodeResult,
    Evaluation,
    Progress,
    episode_line,
    write_results,
)
from sample_factory.evaluation.screen import EPISODES_UNSEEN, Screen, drawn_agents, find_drawing
from sample_factory.exchange.topology import episode_shares
from sample_factory.launch.checks import log_flags_without_effect
from sample_factory.runtime.log import log
from sample_factory.runtime.supervisor import StopRequested, StopSignals

MIN_VIDEO_SECONDS = 10.0  # a single episode may be too short to see anything


def play(config: Config, family: EnvFamily) -> Evaluation:
    """Plays until a limit, a closed window or a signal; prints each episode and a summary.

    Raises ConfigError, CheckpointError, VideoError, and what the env raises.
    """
    flags = config.evaluation
    if flags.render_action_repeat is not None:
        # As the frameskip of the env, so that its time limits stay right.
        env_flags = dataclasses.replace(config.env, env_frameskip=flags.render_action_repeat)
        config = dataclasses.replace(config, env=env_flags)
    config, family = with_eval_frameskip(config, family)
    if not flags.video_name.endswith(".mp4"):
        raise ConfigError(f"--video_name={flags.video_name} should end with .mp4")
    if flags.no_render and not (flags.has_limit or flags.save_video):
        log.info("Playing without pictures and without a limit: Ctrl+C ends it, or --max_num_episodes=N")
    draws = find_drawing(config)
    if config.run.seed is not None:
        torch.manual_seed(config.run.seed)
    with StopSignals() as signals, contextlib.ExitStack() as closed_at_end:
        with explains_other_env(config):
            env = closed_at_end.enter_context(contextlib.closing(make_env(config, family, draws)))
            choices = choices_of_agents(config, env.kinds)
            log_flags_without_effect(config, env.kinds)
            frameskip = (config.env.env_frameskip or 1) * family.action_repeat
            runner = EpisodeRunner(env, _load_policies(config, choices, env), frameskip)
        screen = Screen(config, family, runner, choices)
        session = _Session(flags, runner, screen, signals)
        began = time.monotonic()
        try:
            with signals.interrupting():  # a match may wait for humans
                runner.start(config.run.seed)
            screen.show(is_start=True)
            episodes = session.play()
        except StopRequested:
            episodes = []
        finally:
            video = screen.close()
    seconds = time.monotonic() - began
    result = Evaluation(
        tuple(choices), tuple(episodes), runner.env_frames, seconds, video, session.num_wanted
    )
    print(result.summary())
    write_results(config, [result])
    return result


def _load_policies(
    config: Config, choices: Sequence[PolicyChoice], env: MultiAgentEnv
) -> list[TrainedPolicy]:
    """Returns a policy for each agent; agents with the same choice share one object."""
    kinds = dict(zip(choices, env.kinds.of_agent))
    loaded = {
        choice: load_trained_policy(config, choice, *env.kinds.spaces[kind]) for choice, kind in kinds.items()
    }
    return [loaded[choice] for choice in choices]


class _Session:
    """Plays, shows and prints episodes, and decides when that ends.

    `num_wanted`: number of episodes that are to be played; None: another limit ends it.
    """

    def __init__(self, flags: EvaluationFlags, runner: EpisodeRunner, screen: Screen, signals: StopSignals):
        self._runner = runner
        self._screen = screen
        self._signals = signals
        self._num_frames = flags.max_num_frames
        self._ends_with_video = flags.save_video and not flags.has_limit
        # A video without any limit has whole episodes, for at least MIN_VIDEO_SECONDS.
        self._has_whole_episodes = self._ends_with_video and flags.video_frames < 0
        self._last_episode_has_ended = False
        num_episodes = flags.max_num_episodes
        has_number = num_episodes < NEVER
        self.num_wanted = num_episodes if has_number and flags.max_num_frames == NEVER else None
        if not flags.has_limit and not flags.no_render and not screen.has_pictures:
            num_episodes = EPISODES_UNSEEN
        wanted = episode_shares(num_episodes, runner.num_agents)
        if self._has_whole_episodes:
            wanted[len(drawn_agents(runner.env)) :] = 0
        self._count = EpisodeCount(wanted[None])
        self._progress = Progress(num_episodes if has_number and not screen.has_pictures else None)

    def play(self) -> list[EpisodeResult]:
        """Plays until `is_over`; returns the episodes that count, in the order in which they ended."""
        episodes: list[EpisodeResult] = []
        for finished in self._runner.play(self.is_over):
            self._screen.show(finished)
            for episode in filter(self._count.add, finished):
                episodes.append(episode)
                self._progress.close()  # the line takes the place of the bar
                print(episode_line(episodes, self._runner.num_agents), flush=True)
                if self._has_whole_episodes:
                    self._last_episode_has_ended = self._screen.video_seconds >= MIN_VIDEO_SECONDS
            self._progress.update(len(episodes))
        self._progress.close()
        return episodes

    def is_over(self) -> bool:
        """Returns whether a signal, a limit, the end of the video or a closed window ends it."""
        return (
            self._signals.requested is not None
            or self._runner.env_frames >= self._num_frames
            or self._count.is_complete
            or self._last_episode_has_ended
            or self._screen.is_closed
            or (self._ends_with_video and self._screen.video_is_complete)
        )
