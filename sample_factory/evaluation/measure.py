"""Measures checkpoints over many episodes: the rollout and policy workers of training, without a learner.

This is `eval`, `sample_factory.evaluate` and the child of an evaluation during training. The main process
loads no torch, except with --serial_mode=True.
"""

import logging
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import with_flags
from sample_factory.config.sampling_flags import POLICY_WORKER_NICENESS, ClusterFlags
from sample_factory.config.sections import RunFlags
from sample_factory.envs.env_family import EnvFamily, UnknownEnvError
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.played_env import explains_other_env, with_eval_frameskip
from sample_factory.evaluation.policy_choice import (
    PolicyChoice,
    chosen_policies,
    find_checkpoint,
    refuse_file_for_all_kinds,
)
from sample_factory.evaluation.result_statistics import MeanAndStd
from sample_factory.evaluation.results import EpisodeCount, EpisodeResult, Evaluation, Progress
from sample_factory.exchange.messages import EpisodeReport, Incident, Snapshot, reports_in
from sample_factory.exchange.policy_weights import PolicyWeights, Stamp
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.exchange.topology import episode_shares
from sample_factory.launch.arrangement import USUAL_AGENTS
from sample_factory.launch.checks import probe_env
from sample_factory.launch.plan import plan_run
from sample_factory.launch.processes import ProcessRun
from sample_factory.launch.resources import allocate
from sample_factory.launch.serial import SerialRun
from sample_factory.mainloop.main_loop import Loop, Resources
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.monitoring.component_stats import ComponentStats
from sample_factory.monitoring.console import number_text
from sample_factory.runtime import cpu
from sample_factory.runtime.child import ChildFailed, call_in_child
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.log import log
from sample_factory.runtime.supervisor import StopSignals
from sample_factory.sampling.matchmaking.matchmaking import RANDOM
from sample_factory.spaces.observations import without_entries

LOAD_TIMEOUT_SECONDS = 300.0


def measure_checkpoints(
    config: Config, family: EnvFamily, keeps_process: bool = False
) -> Iterator[Evaluation]:
    """Plays --eval_episodes episodes with every checkpoint of --checkpoint of every policy of --policy_index.

    One after another, each in all envs, with the same seeds. One policy plays all agents of an env. Each
    agent of each env plays a number of episodes that is fixed in advance. A worker process that dies is
    replaced, and plays its episodes again.

    Yields each result when it is complete, in the order of `chosen_policies`. Policies of several kinds that
    play beside each other have one result together, `Evaluation.first_of`. A signal ends this early; the last
    result then `is_partial`.

    keeps_process: see StopSignals.
    Raises ConfigError when there is no such checkpoint or the env cannot be played, CheckpointError for an
    unusable checkpoint, and ChildFailed when an env or a process fails for good.
    """
    cpu.raise_open_files_limit()
    chosen = chosen_policies(config)
    for choice in chosen:
        find_checkpoint(config, choice)  # raises
    config, family = with_eval_frameskip(config, family)
    with StopSignals(keeps_process=keeps_process) as signals:
        with explains_other_env(config):
            plan = plan_measurement(config, family, probe_env(config, family))
        num_kinds = len(plan.info.kinds.spaces)
        for choice in chosen:
            refuse_file_for_all_kinds(choice.checkpoint, num_kinds)
        distinct = _without_repetitions(chosen, num_kinds)
        for number, choice in enumerate(distinct, start=1):
            if signals.requested:
                break
            log.info("Measuring %s (%d of %d)", choice, number, len(distinct))
            progress = Progress(config.evaluation.eval_episodes)
            yield Measurement(plan, choice, progress).play(signals)


def _without_repetitions(chosen: Sequence[PolicyChoice], num_kinds: int) -> list[PolicyChoice]:
    """Returns the first of all choices that mean the same policies: p to p + num_kinds - 1 play together."""
    first: dict[tuple[int, str], PolicyChoice] = {}
    for choice in chosen:
        first.setdefault((choice.policy_index // num_kinds, choice.checkpoint), choice)
    return list(first.values())


def plan_evaluation(plan: RunPlan) -> RunPlan | None:
    """Returns the plan of the evaluations during a training; None without --eval_every_env_steps.

    plan: of the training; --eval_flags changes its flags and its env. Raises ConfigError.
    """
    monitoring = plan.config.monitoring
    if not monitoring.eval_every_env_steps:
        return None
    kinds = plan.info.kinds
    if len(kinds.spaces) > 1:
        raise ConfigError(
            "--eval_every_env_steps: one policy plays all agents in an evaluation during training, but the "
            "agents of this env have different spaces; leave it out, and measure with sample_factory.eval"
        )
    config, family, info = plan.config, plan.family, plan.info
    if monitoring.eval_flags:
        try:
            config = with_flags(config, shlex.split(monitoring.eval_flags), resolve_family)
            same_env = config.env_name == plan.config.env_name
            # Without what only the critic of a training gets.
            family = replace(family, wrap=None) if same_env else resolve_family(config.env_name)
        except (ConfigError, UnknownEnvError, ValueError) as error:
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
    state_size = None if keys else plan.state_size  # which includes the critic's
    return plan_measurement(*with_eval_frameskip(config, family), info, state_size)


def plan_measurement(
    config: Config, family: EnvFamily, info: EnvInfo, state_size: int | None = None
) -> RunPlan:
    """Returns the plan of an evaluation with the flags of a training.

    Without learning, with a policy for each kind of agents, and with no more envs than episodes.
    """
    sampling = config.sampling
    num_agents = info.num_agents
    envs_needed = -(-config.evaluation.eval_episodes // num_agents)
    num_workers = min(sampling.num_workers, envs_needed)
    num_envs = min(
        sampling.num_envs_per_worker or max(1, USUAL_AGENTS // num_agents), -(-envs_needed // num_workers)
    )
    config = replace(
        config,
        # As `enjoy`: checkpoints are trained in any precision, and measured in the best one.
        run=replace(
            config.run,
            precision=config.typed.get("precision", "fp32"),
            algo=RunFlags.algo,  # the training's may be a user's own, which is not registered here
            transfer_from=None,
            observers=(),
        ),
        sampling=replace(
            sampling,
            num_policies=len(info.kinds.spaces),
            num_workers=num_workers,
            inline_samplers=sampling.inline_samplers and min(sampling.inline_samplers, num_workers),
            num_envs_per_worker=num_envs,
            worker_num_splits=sampling.worker_num_splits if num_envs % sampling.worker_num_splits == 0 else 1,
            async_rl=True,
            decorrelate_envs_on_one_worker=False,
            decorrelate_experience_max_seconds=0.0,
            # There is no learner that policy workers should leave the cores to.
            default_niceness=sampling.default_niceness - POLICY_WORKER_NICENESS,
        ),
        learning=replace(config.learning, batch_size=config.learning.rollout, num_batches_per_iteration=1),
        monitoring=replace(config.monitoring, eval_every_env_steps=0, eval_flags=""),
        population=replace(config.population, with_pbt=False, pbt_optimize_batch_size=False),
        cluster=ClusterFlags(),
        selfplay=replace(config.selfplay, selfplay_past_share=0.0, matchmaking=RANDOM),
    )
    return plan_run(config, family, config.evaluation.eval_episodes, info, state_size)


class Measurement:
    """Plays the episodes of one checkpoint, in worker processes, or with --serial_mode in this process.

    versions: of the policies that play, one for each kind of agents.
    """

    def __init__(
        self, plan: RunPlan, choice: PolicyChoice, progress: Progress, context: ChildContext | None = None
    ):
        """Loads the checkpoint; with --serial_mode, also makes the envs and resets them.

        context: gets the heartbeats of --serial_mode. Raises as `measure_checkpoints`.
        """
        config = plan.config
        self._topology = plan.topology
        kinds = plan.info.kinds
        first = choice.policy_index - choice.policy_index % len(kinds.spaces)  # plays agents of kind 0
        self._choices = [PolicyChoice(first + kind, choice.checkpoint) for kind in kinds.of_agent]
        resources = allocate(plan)
        with explains_other_env(config, warns=False):
            _publish_checkpoints(plan, resources, self._choices)
        self.versions = [weights.newest.version for weights in resources.channels.weights]
        self.loop = MeasuringLoop(plan, resources, progress)
        self._began = time.monotonic()
        self._run: SerialRun | ProcessRun
        if config.sampling.serial_mode:
            self._run = SerialRun(plan, resources, context=context)
            self._run.make_envs()
        else:
            self._run = ProcessRun(plan, resources)

    def play(self, signals: StopSignals) -> Evaluation:
        """Plays the episodes; returns the ones that count. Called once. Raises ChildFailed."""
        failures = self._run.run(self.loop, signals)
        if failures:
            raise failures[0]
        episodes = self.loop.episodes
        env_frames = sum(episode.length for episode in episodes) // self._topology.agents_per_env
        seconds = time.monotonic() - self._began
        num_wanted = self._topology.num_episodes
        return Evaluation(tuple(self._choices), episodes, env_frames, seconds, None, num_wanted)


def _publish_checkpoints(plan: RunPlan, resources: Resources, choices: Sequence[PolicyChoice]) -> None:
    """Publishes the weights that the policy workers act with: policy k plays the agents of kind k.

    choices: the policy of each agent. Raises ConfigError, CheckpointError or ChildFailed.
    """
    kinds = plan.info.kinds.of_agent
    of_kind = [choices[kinds.index(kind)] for kind in range(plan.topology.num_policies)]
    specs = [policy._replace(device="cpu", precision="fp32") for policy in plan.policies]
    args = (plan.config, of_kind, specs, resources.channels.weights)
    if plan.config.sampling.serial_mode:
        load_and_publish(*args)
        return
    try:
        call_in_child("checkpoint", load_and_publish, args, LOAD_TIMEOUT_SECONDS)
    except ChildFailed as failure:
        for explained in (ConfigError, CheckpointError):
            if failure.is_a(explained):
                raise explained(failure.message) from None
        raise


def load_and_publish(
    config: Config,
    choices: Sequence[PolicyChoice],
    specs: Sequence[PolicySpec],
    weights: Sequence[PolicyWeights],
) -> None:
    """In a child, unless with --serial_mode: loads each checkpoint and publishes its weights.

    Raises ConfigError, CheckpointError.
    """
    from sample_factory.evaluation.policy import load_weights

    for choice, spec, published in zip(choices, specs, weights):
        model = spec.build().model
        state = load_weights(config, choice, model)
        arrays = {name: tensor.contiguous().numpy() for name, tensor in model.state_dict().items()}
        published.publish(arrays, Stamp(state.get("train_step", 0)))


class MeasuringLoop(Loop):
    """In the main process: collects the episodes that count, and shows how many there are.

    on_episode: called with each of them, once it has ended.
    """

    def __init__(self, plan: RunPlan, resources: Resources, progress: Progress):
        topology = plan.topology
        assert topology.num_episodes is not None
        self._topology = topology
        self._reports = resources.channels.reports
        shares = episode_shares(topology.num_episodes, topology.num_agents)
        self._count = EpisodeCount(shares.reshape(-1, topology.agents_per_env))
        self._rewards = 0.0
        self._incidents = ComponentStats(time.monotonic)
        self._progress = progress
        self.on_episode: Callable[[EpisodeResult], None] = lambda episode: None

    @property
    def episodes(self) -> tuple[EpisodeResult, ...]:
        """The episodes that count, in the same order in each run."""
        return self._count.episodes

    @property
    def is_done(self) -> bool:
        return self._count.is_complete

    def receive(self, timeout: float) -> None:
        """Counts the episodes that are reported within `timeout` seconds."""
        for report in reports_in(self._reports.get_many(timeout)):
            match report:
                case EpisodeReport():
                    env, agent = divmod(report.agent_id, self._topology.agents_per_env)
                    episode = EpisodeResult(
                        agent, report.reward, report.length, report.true_objective, report.extra_stats, env
                    )
                    if self._count.add(episode):
                        self._rewards += report.reward
                        self.on_episode(episode)
                case Incident():
                    self._incidents.add_incident(report)

    def turn(self, timeout: float) -> None:
        """Receives reports and shows the progress."""
        self.receive(timeout)
        self._progress.update(len(self._count), self._describe)

    def process_replaced(self, inbox: int, rollout_workers: Sequence[int], incident: Incident) -> None:
        """Expects the episodes of its envs once more: the successor plays them with the same seeds."""
        self._incidents.add_incident(incident)
        num_envs = self._topology.agents_per_worker // self._topology.agents_per_env  # in a worker
        for index in rollout_workers:
            self._count.repeat(slice(index * num_envs, (index + 1) * num_envs))

    def close(self, may_wait: Callable[[], bool]) -> None:
        """Counts the episodes that ended last, and ends the progress."""
        self.receive(0.0)
        self._progress.close()

    def _describe(self) -> str:
        return f"reward {number_text(self._rewards / len(self._count))}" if len(self._count) else ""


class SnapshotMeasurement:
    """In the child of an evaluation during training: plays episodes with a snapshot of a policy.

    In one thread, in as many envs as a rollout worker has. It sends the heartbeats of a worker, so that an
    env that hangs is noticed. When it is constructed, the envs have been reset.
    """

    def __init__(self, plan: RunPlan, snapshot: Snapshot, context: ChildContext):
        """plan: from `plan_evaluation`."""
        log.setLevel(logging.WARNING)  # otherwise evaluations would fill most of the run's log
        context.beat()  # loading the libraries does not count as the start of the envs
        assert snapshot.path is not None, "without a file there is no evaluation"
        choice = PolicyChoice(snapshot.policy_id, snapshot.path)
        self._measurement = Measurement(plan, choice, Progress(None), context)

    def run(self) -> dict[str, MeanAndStd]:
        """Returns the statistics of the episodes by name. Raises InterruptedError if a signal ends it."""
        with StopSignals() as signals:
            evaluation = self._measurement.play(signals)
        if evaluation.is_partial:
            raise InterruptedError("a signal ended it; the mean of the episodes that end first is biased")
        return evaluation.statistics
