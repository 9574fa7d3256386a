"""`enjoy`: plays one env in this process, shows or films it, and collects the results of the episodes."""

import contextlib
import dataclasses
import functools
from collections.abc import Sequence

from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER, ConfigError
from sample_factory.config.monitoring_flags import EvaluationFlags
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo, env_info
from sample_factory.evaluation.env_choice import explains_other_env, make_env, with_eval_frameskip
from sample_factory.evaluation.policy_choice import PolicyChoice, choices_of_agents, find_checkpoint
from sample_factory.evaluation.result_files import write_results
from sample_factory.evaluation.results import (
    EpisodeCount,
    EpisodeResult,
    Evaluation,
    Progress,
    episode_line,
)
from sample_factory.evaluation.screen import EPISODES_UNSEEN, Screen, drawn_agents, find_drawing
from sample_factory.evaluation.session import Events, Session
from sample_factory.evaluation.session_plan import Cast, FirstEnv, SavedPolicy, plan_single
from sample_factory.evaluation.watched_env import Watch
from sample_factory.exchange.topology import episode_shares
from sample_factory.launch.checks import check_machine, log_flags_without_effect
from sample_factory.runtime.log import log
from sample_factory.runtime.supervisor import StopRequested, StopSignals
from sample_factory.spaces.agent_kinds import AgentKinds

MIN_VIDEO_SECONDS = 10.0  # a single episode may be too short to see anything


def play(config: Config, family: EnvFamily) -> Evaluation:
    """Runs `enjoy`: plays until a limit, a closed window or a signal; prints each episode and a summary.
    Raises ConfigError for a wrong flag or a missing checkpoint, CheckpointError for an unusable checkpoint,
    VideoError if the video cannot be written, and any exception of the env."""
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
    if "device" in config.typed:
        check_machine(config)
    with StopSignals() as signals:
        with explains_other_env(config):
            first = FirstEnv(functools.partial(make_env, config, family, draws))
        with contextlib.closing(first):
            info = env_info(first.env, config.namespace())
            info = info._replace(frameskip=info.frameskip * family.action_repeat)
            choices = choices_of_agents(config, info.kinds)
            log_flags_without_effect(config, info.kinds)
            for choice in choices:
                find_checkpoint(config, choice)  # raises, before a window opens
            watch = Watch(first.env)
            screen = Screen(config, family, watch, info, choices)
            show = _Show(flags, watch, screen, info)
            try:
                cast = _cast(config, choices, info.kinds)
                session = _make_session(config, first, info, cast, watch, show)
                with signals.interrupting():  # a match may wait for humans
                    session.make_envs()
                session.play(signals)
            except StopRequested:
                pass
            finally:
                video = screen.close()
    versions = tuple(session.versions[policy_id] for policy_id in cast.seats)
    result = Evaluation(
        tuple(choices),
        tuple(show.episodes),
        show.num_frames,
        session.seconds,
        video,
        show.num_wanted,
        versions,
    )
    print(result.summary())
    write_results(config, [result])
    return result


def _make_session(
    config: Config,
    first: FirstEnv,
    info: EnvInfo,
    cast: Cast,
    watch: Watch,
    show: "_Show",
) -> Session:
    with explains_other_env(config, warns=False):
        # With the number of episodes, the session ends with an error for an agent that never plays.
        num_episodes = NEVER if show.num_wanted is None else show.num_wanted
        plan = plan_single(config, first, info, cast, [watch], num_episodes)
        return Session(plan, cast, show.events, show.progress)


def _cast(config: Config, choices: Sequence[PolicyChoice], kinds: AgentKinds) -> Cast:
    """Converts the policies that the flags name into players and seats for a session. With K kinds of agents,
    player p plays agents of kind p % K. If one kind has fewer policies than another, its last policy is
    repeated, so that each kind has the same number of players.
    choices: the policy of each agent."""
    num_kinds = len(kinds.spaces)
    of_kind: list[list[PolicyChoice]] = [[] for _ in range(num_kinds)]
    for choice, kind in zip(choices, kinds.of_agent):
        if choice not in of_kind[kind]:
            of_kind[kind].append(choice)
    rounds = max(map(len, of_kind))
    policies = [
        SavedPolicy(config, own[min(number, len(own) - 1)]) for number in range(rounds) for own in of_kind
    ]
    seats = [of_kind[kind].index(choice) * num_kinds + kind for choice, kind in zip(choices, kinds.of_agent)]
    return Cast(policies, seats=seats)


class _Show:
    """Shows and prints the episodes of `enjoy`, and decides when to stop.
    episodes: the results so far, in the order in which the episodes ended.
    num_wanted: number of episodes to play; None if only another limit ends the playing."""

    def __init__(self, flags: EvaluationFlags, watch: Watch, screen: Screen, info: EnvInfo):
        self._max_num_frames = flags.max_num_frames
        self._watch = watch
        self._screen = screen
        self._info = info
        self._ends_with_video = flags.save_video and not flags.has_limit
        # A video without any limit has whole episodes, for at least MIN_VIDEO_SECONDS.
        self._has_whole_episodes = self._ends_with_video and flags.video_frames < 0
        self._last_episode_has_ended = False
        self._num_shown = -1  # steps; -1: not even the first reset
        self._ended: list[EpisodeResult] = []  # in the last step
        self.episodes: list[EpisodeResult] = []
        num_episodes = flags.max_num_episodes
        has_number = num_episodes < NEVER
        self.num_wanted = num_episodes if has_number and flags.max_num_frames == NEVER else None
        self.progress = Progress(num_episodes if has_number and not screen.has_pictures else None)
        if not flags.has_limit and not flags.no_render and not screen.has_pictures:
            num_episodes = EPISODES_UNSEEN
        wanted = episode_shares(num_episodes, watch.env.num_agents)
        if self._has_whole_episodes:
            wanted[len(drawn_agents(watch.env)) :] = 0
        self._count = EpisodeCount(wanted[None])

    @property
    def num_frames(self) -> int:
        """Env frames played so far. In a vector env, the frames of all its copies of the game are added;
        agents in the same copy share its frames."""
        num_copies = len(set(self._info.copy_of_agent))
        left_out = int(self._watch.frames_left_out.sum()) * num_copies // self._info.num_agents
        return self._watch.num_steps * self._info.frameskip * num_copies - left_out

    @property
    def events(self) -> Events:
        """The callbacks that show and count episodes, for the session."""
        return Events(
            on_end=lambda episode, number: self._ended.append(episode),
            is_over=self._is_over,
            on_step=self._show_step,
        )

    def _show_step(self) -> None:
        if self._watch.num_steps == self._num_shown:
            return
        self._num_shown = self._watch.num_steps
        ended, self._ended = self._ended, []
        self._screen.show(ended, is_start=self._num_shown == 0)
        for episode in ended:
            if self._count.add(episode, 0, episode.agent) is None:
                continue
            self.episodes.append(episode)
            self.progress.close()  # the line takes the place of the bar
            print(episode_line(self.episodes, self._watch.env.num_agents), flush=True)
            if self._has_whole_episodes:
                self._last_episode_has_ended = self._screen.video_seconds >= MIN_VIDEO_SECONDS

    def _is_over(self) -> bool:
        """Returns whether a limit, the end of the video or a closed window ends the playing."""
        return (
            self.num_frames >= self._max_num_frames
            or self._count.is_complete
            or self._last_episode_has_ended
            or self._screen.is_closed
            or (self._ends_with_video and self._screen.video_is_complete)
        )
