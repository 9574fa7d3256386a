"""Measures checkpoints over many episodes, in many envs at once.

This is `eval`, `sample_factory.evaluate` and the child of an evaluation during training.
"""

import collections
import functools
import logging
import shlex
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import with_flags
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo, make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.env_choice import explains_other_env, with_eval_frameskip, with_other_envs
from sample_factory.evaluation.policy_choice import (
    LATEST,
    PolicyChoice,
    find_checkpoint,
    measured_policies,
    refuse_file_for_all_kinds,
)
from sample_factory.evaluation.result_statistics import MeanAndStd
from sample_factory.evaluation.results import EpisodeResult, Evaluation, Progress, without_repeats
from sample_factory.evaluation.session import Events, Session
from sample_factory.evaluation.session_plan import Cast, SavedPolicy, plan_session, prepared, size_for
from sample_factory.exchange.messages import Snapshot
from sample_factory.exchange.run_plan import AroundEnv, RunPlan, SamplingPlan
from sample_factory.launch.checks import check_machine, check_normalized_keys, probe_env
from sample_factory.launch.plan import with_defaults_for
from sample_factory.launch.shared_imports import shared_imports
from sample_factory.models.network_registry import check_names
from sample_factory.monitoring.console import number_text
from sample_factory.runtime import cpu
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.log import log
from sample_factory.runtime.supervisor import StopSignals
from sample_factory.spaces.observations import without_entries


class MeasurementPlan(NamedTuple):
    """Describes the evaluation of one checkpoint, or of one checkpoint for each kind of agents.

    session: how the episodes are played. cast: which checkpoint plays which agent.
    choices: the policy of each agent.
    copy_of_agent: for each agent, the index of the copy of the game in which it plays, in a vector env; else
        0.
    repeats: whether episodes may repeat exactly: the policy is deterministic, and each env always begins in
        the same states.
    """

    session: SamplingPlan
    cast: Cast
    choices: tuple[PolicyChoice, ...]
    copy_of_agent: tuple[int, ...]
    repeats: bool = False


def measure_checkpoints(
    config: Config, family: EnvFamily, keeps_process: bool = False
) -> Iterator[Evaluation]:
    """Evaluates each policy in --policy_index with each checkpoint in --checkpoint, over --eval_episodes
    episodes in each level.

    Checkpoints are played one after another, each in all envs, with the same seeds. One policy plays all
    agents of an env, unless they are of several kinds. Each agent of each env plays a number of episodes that
    is fixed in advance. A worker process that dies is replaced, and its episodes are played again.

    Yields each result when it is complete, in the order of `measured_policies`. Policies of several kinds
    that play in the same envs have one result together, identified by the first of them. A signal ends the
    evaluation early; the last result then `is_partial`.

    keeps_process: whether a second Ctrl+C raises KeyboardInterrupt instead of ending the process.
    Raises ConfigError if a checkpoint does not exist or the env cannot be played, CheckpointError for an
    unusable checkpoint, and Failure when an env or a process fails for good.
    """
    cpu.raise_open_files_limit()
    chosen = measured_policies(config)
    for choice in chosen:
        find_checkpoint(config, choice)  # raises
    config, family = with_eval_frameskip(prepared(config), with_other_envs(config, family))
    with StopSignals(keeps_process=keeps_process) as signals, shared_imports(config):
        with explains_other_env(config, warns=False):
            check_machine(config)
            info = probe_env(config, family)
        num_kinds = len(info.kinds.spaces)
        for choice in chosen:
            refuse_file_for_all_kinds(choice.checkpoint, num_kinds)
        distinct = _without_repetitions(chosen, num_kinds)
        state_size = None
        for number, choice in enumerate(distinct, start=1):
            if signals.requested:
                break
            with explains_other_env(config, warns=number == 1):
                plan = plan_measurement(config, family, info, choice, state_size=state_size)
            state_size = plan.session.state_size
            log.info("Measuring %s (%d of %d)", choice, number, len(distinct))
            with explains_other_env(config, warns=False):
                measurement = Measurement(plan, Progress(plan.session.topology.num_episodes))
            yield measurement.play(signals)


def _without_repetitions(chosen: Sequence[PolicyChoice], num_kinds: int) -> list[PolicyChoice]:
    """Removes choices that would repeat the episodes of an earlier one, and returns the remaining choices.
    With K = num_kinds kinds of agents, policies kK to kK + K - 1 always play together, so only the first of
    them is kept for each checkpoint."""
    first: dict[tuple[int, str], PolicyChoice] = {}
    for choice in chosen:
        first.setdefault((choice.policy_index // num_kinds, choice.checkpoint), choice)
    return list(first.values())


def plan_measurement(
    config: Config,
    family: EnvFamily,
    info: EnvInfo,
    choice: PolicyChoice,
    around: Sequence[AroundEnv] = (),
    state_size: int | None = None,
) -> MeasurementPlan:
    """Plans --eval_episodes episodes in each level with a checkpoint of a policy, or with the policies of all
    kinds of agents that were trained together with it.

    In an env with levels, the number is rounded up so that each agent plays equally many episodes.
    around: functions that wrap each env after it is made.
    state_size: floats in an agent's recurrent state; None: determined from the networks.
    Raises ConfigError for flags that do not fit the env, and Failure if a user's network cannot be made.
    """
    check_names(config.model)
    config, _ = with_defaults_for(config, info.kinds, info.is_simulator)
    check_normalized_keys(config, info)
    kinds = info.kinds
    num_kinds = len(kinds.spaces)
    first = choice.policy_index - choice.policy_index % num_kinds  # plays agents of kind 0
    of_kind = [PolicyChoice(first + kind, choice.checkpoint) for kind in range(num_kinds)]
    cast = Cast([SavedPolicy(config, own) for own in of_kind], seats=kinds.of_agent)
    num_episodes = config.evaluation.eval_episodes
    if info.levels:  # all agents of an env play the same level
        num_episodes = -(-num_episodes // info.num_agents) * info.num_agents * len(info.levels)
    size = size_for(config, info, -(-num_episodes // info.num_agents))
    make_env = functools.partial(make_adapted_env, family, config.namespace())
    plan = plan_session(
        config, make_env, info, cast, size, num_episodes, state_size=state_size, around=around
    )
    choices = tuple(of_kind[kind] for kind in kinds.of_agent)
    repeats = info.repeats_first_states and config.evaluation.eval_deterministic
    return MeasurementPlan(plan, cast, choices, info.copy_of_agent, repeats)


class Measurement:
    """Evaluates one checkpoint: plays episodes in worker processes, or with --serial_mode in this process."""

    def __init__(
        self,
        plan: MeasurementPlan,
        progress: Progress,
        on_end: Callable[[EpisodeResult, int], None] = lambda episode, number: None,
        context: ChildContext | None = None,
    ):
        """Loads the checkpoint.
        on_end: called with each episode that counts, and with its number.
        context: receives heartbeats in serial mode, if given.
        Raises ConfigError for a missing checkpoint, CheckpointError for an unusable one, and Failure if a
        process fails."""
        self._plan = plan
        self._rewards: list[float] = []
        self._on_end = on_end
        events = Events(self._add, describe=self._describe)
        self.session = Session(plan.session, plan.cast, events, progress, context)

    def play(self, signals: StopSignals) -> Evaluation:
        """Plays the episodes of the plan and returns their results. May be called once. Raises Failure when
        an env or a process fails for good."""
        played = self.session.play(signals)
        episodes = without_repeats(played) if self._plan.repeats else played
        num_repeats = len(played) - len(episodes)
        env_frames = count_frames(episodes, self._plan.copy_of_agent)
        num_episodes = self._plan.session.topology.num_episodes
        seconds = self.session.seconds
        versions = tuple(self.session.versions[policy_id] for policy_id in self._plan.cast.seats)
        wanted = num_episodes and num_episodes - num_repeats
        return Evaluation(
            self._plan.choices, episodes, env_frames, seconds, None, wanted, versions, num_repeats
        )

    def _add(self, episode: EpisodeResult, number: int) -> None:
        self._rewards.append(episode.reward)
        self._on_end(episode, number)

    def _describe(self) -> str:
        return f"reward {number_text(statistics.fmean(self._rewards))}" if self._rewards else ""


def count_frames(episodes: Sequence[EpisodeResult], copy_of_agent: Sequence[int]) -> int:
    """Returns the number of env frames in which the episodes were played.

    Agents in the same copy of an env share its frames, so in each copy only the agent with the most frames
    counts. Frames in which an agent is inactive are not in the lengths of its episodes, so the number is too
    small where even the most active agent is inactive for some frames.

    copy_of_agent: for each agent, the index of the copy in which it plays: copies of the game in a vector
        env, else 0.
    """
    of_agent: collections.Counter[tuple[int, int]] = collections.Counter()  # by (env, agent)
    for episode in episodes:
        of_agent[episode.env, episode.agent] += episode.length
    of_copy: dict[tuple[int, int], int] = {}  # by (env, copy)
    for (env, agent), frames in of_agent.items():
        key = env, copy_of_agent[agent]
        of_copy[key] = max(frames, of_copy.get(key, 0))
    return sum(of_copy.values())


def plan_evaluation(plan: RunPlan) -> MeasurementPlan | None:
    """Plans the evaluations during a training, with the flags and the env that --eval_flags changes. Returns
    None without --eval_every_env_steps.
    plan: describes the training.
    Raises ConfigError for wrong --eval_flags, an env with other spaces, or agents of several kinds."""
    monitoring = plan.config.monitoring
    if not monitoring.eval_every_env_steps:
        return None
    kinds = plan.sampling.info.kinds
    if len(kinds.spaces) > 1:
        raise ConfigError(
            "--eval_every_env_steps: one policy plays all agents in an evaluation during training, but the "
            "agents of this env have different spaces; leave it out, and measure with the command eval"
        )
    config, family, info = plan.config, plan.family, plan.sampling.info
    if monitoring.eval_flags:
        try:
            config = with_flags(config, shlex.split(monitoring.eval_flags), resolve_family)
            same_env = config.env_name == plan.config.env_name
            # Without what only the critic of a training gets.
            family = replace(family, wrap=None) if same_env else resolve_family(config.env_name)
        except ValueError as error:
            raise ConfigError(f"--eval_flags={monitoring.eval_flags}: {error}") from None
        info = probe_env(config, family)
    keys = config.model.critic_only_keys
    seen, trained = (
        [(without_entries(spaces.observation, keys), spaces.action) for spaces in these.spaces]
        for these in (info.kinds, kinds)
    )
    if seen != trained:
        raise ConfigError(
            f"--eval_flags={monitoring.eval_flags}: the env of the evaluations has other spaces than the env "
            f"of the training, so that the policy cannot play it: {info.kinds}, not {kinds}"
        )
    # One process, with as many envs as one rollout worker has.
    sampling = replace(config.sampling, serial_mode=True, num_workers=1, inline_samplers=0)
    config = replace(config, sampling=sampling, run=replace(config.run, device="cpu"))
    state_size = None if keys else plan.sampling.state_size  # which includes the critic's
    config, family = with_eval_frameskip(config, family)
    return plan_measurement(config, family, info, PolicyChoice(0, LATEST), state_size=state_size)


class SnapshotMeasurement:
    """In the child of an evaluation during training: plays episodes with a snapshot of a policy. The episodes
    are played in one thread, in as many envs as a rollout worker has. The constructor makes and resets the
    envs. Heartbeats are sent as by a worker, so that the main process notices an env that hangs."""

    def __init__(self, plan: MeasurementPlan, snapshot: Snapshot, context: ChildContext):
        """Loads the snapshot and resets the envs. plan: result of `plan_evaluation`; the snapshot replaces
        its checkpoint."""
        log.setLevel(logging.WARNING)  # otherwise evaluations would fill most of the run's log
        context.beat()  # loading the libraries does not count as the start of the envs
        assert snapshot.path is not None, "without a file there is no evaluation"
        choice = PolicyChoice(snapshot.policy_id, snapshot.path)
        saved = [policy._replace(choice=choice) for policy in plan.cast.policies.values()]
        own_plan = plan._replace(cast=plan.cast._replace(players=saved))
        self._measurement = Measurement(own_plan, Progress(None), context=context)
        self._measurement.session.make_envs()

    def run(self) -> dict[str, MeanAndStd]:
        """Plays the episodes. Returns statistics by name, e.g. "reward", and for each level as
        "levels/LEVEL/NAME". Raises InterruptedError if a signal ends the evaluation early, since the mean
        would be biased."""
        with StopSignals() as signals:
            evaluation = self._measurement.play(signals)
        if evaluation.is_partial:
            raise InterruptedError("a signal ended it; the mean of the episodes that end first is biased")
        of_levels = {
            f"levels/{level}/{name}": found
            for level, own in evaluation.by_level.items()
            for name, found in own.statistics.items()
        }
        return {**evaluation.statistics, **of_levels}
