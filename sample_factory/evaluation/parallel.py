"""Plays many episodes with checkpoints: the rollout and policy workers of training, without a learner.

The main process loads no torch, except with --serial_mode=True.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.config.cluster_flags import ClusterFlags
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.sampling_flags import POLICY_WORKER_NICENESS
from sample_factory.config.sections import RunFlags
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.evaluation.eval_frameskip import with_eval_frameskip
from sample_factory.evaluation.policy_choice import PolicyChoice, choices_of_agents, find_checkpoint
from sample_factory.evaluation.progress import Progress
from sample_factory.evaluation.results import EpisodeResult, Evaluation
from sample_factory.evaluation.trained_env import explains_other_env
from sample_factory.exchange.messages import EpisodeReport, Incident, Report, reports_in
from sample_factory.exchange.policy_weights import PolicyWeights, Stamp
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.launch.arrangement import USUAL_AGENTS
from sample_factory.launch.checks import probe_env
from sample_factory.launch.plan import plan_run
from sample_factory.launch.processes import ProcessRun
from sample_factory.launch.resources import allocate
from sample_factory.launch.serial import SerialRun
from sample_factory.mainloop.main_loop import DeadProcess, Loop, Resources
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.monitoring.component_stats import ComponentStats
from sample_factory.monitoring.console import number_text
from sample_factory.runtime import cpu
from sample_factory.runtime.call_in_child import call_in_child
from sample_factory.runtime.child import ChildFailed
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.supervisor import StopSignals
from sample_factory.sampling.matchmaking.registry import RANDOM

log = logging.getLogger("sample_factory")

LOAD_TIMEOUT_SECONDS = 300.0


def evaluate_in_parallel(
    config: Config, family: EnvFamily, keeps_process: bool = False
) -> Iterator[Evaluation]:
    """Plays --eval_episodes episodes with every checkpoint of --checkpoint of every policy of --policy_index.

    One after another, each in all envs, with the same seeds. One policy plays all agents of an env. Each
    agent of each env plays a number of episodes that is fixed in advance, so that short episodes, which end
    first, are not counted more often than they happen. A worker process that dies is replaced, and plays its
    episodes again.

    Yields each result when it is complete, in the order of `chosen_policies`; a signal ends this early, and
    the last one `is_partial`.

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
            info = probe_env(config, family)
            plan = plan_run(sampling_only(config, info), family, config.evaluation.eval_episodes, info)
        for number, choice in enumerate(chosen, start=1):
            if signals.requested:
                break
            log.info("Evaluating %s (%d of %d)", choice, number, len(chosen))
            progress = Progress(config.evaluation.eval_episodes)
            yield evaluate_checkpoint(plan, choice, signals, progress)


def chosen_policies(config: Config) -> list[PolicyChoice]:
    """Returns every checkpoint of --checkpoint of every policy of --policy_index."""
    pairs = itertools.product(config.evaluation.policy_index, config.evaluation.checkpoint or (None,))
    kind = config.monitoring.load_checkpoint_kind
    return [PolicyChoice(policy, checkpoint or kind) for policy, checkpoint in pairs]


def sampling_only(config: Config, info: EnvInfo) -> Config:
    """Returns the flags of the training without learning, with a policy for each kind of agents, and with no
    more envs than there are episodes."""
    sampling = config.sampling
    num_agents = info.num_agents
    envs_needed = -(-config.evaluation.eval_episodes // num_agents)
    num_workers = min(sampling.num_workers, envs_needed)
    num_envs = min(
        sampling.num_envs_per_worker or max(1, USUAL_AGENTS // num_agents), -(-envs_needed // num_workers)
    )
    return replace(
        config,
        # As `enjoy`: checkpoints are trained in any precision, and measured in the best one.
        run=replace(
            config.run,
            precision=config.typed.get("precision", "fp32"),
            algo=RunFlags.algo,  # that of the training may be a user's own, and is not known here
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


def evaluate_checkpoint(
    plan: RunPlan, choice: PolicyChoice, signals: StopSignals, progress: Progress | None = None
) -> Evaluation:
    """Plays the episodes of one checkpoint. plan: of the evaluation. Raises as evaluate_in_parallel."""
    if plan.config.sampling.serial_mode:
        return SerialEvaluation(plan, choice, progress=progress).play(signals)
    resources, choices = _prepare(plan, choice)
    loop = EvaluationLoop(plan, resources, progress)
    began = time.monotonic()
    _raise_first(ProcessRun(plan, resources).run(loop, signals))
    return loop.result(choices, time.monotonic() - began)


class SerialEvaluation:
    """The evaluation of one checkpoint in this process."""

    def __init__(
        self,
        plan: RunPlan,
        choice: PolicyChoice,
        context: ChildContext | None = None,
        progress: Progress | None = None,
    ):
        """Loads the checkpoint, makes the envs and resets them. context: gets the heartbeats of all of this.

        Raises as evaluate_in_parallel.
        """
        resources, self._choices = _prepare(plan, choice)
        self._loop = EvaluationLoop(plan, resources, progress)
        self._began = time.monotonic()
        self._run = SerialRun(plan, resources, context=context)
        self._run.make_envs()

    def play(self, signals: StopSignals) -> Evaluation:
        """Plays the episodes. Called once."""
        _raise_first(self._run.run(self._loop, signals))
        return self._loop.result(self._choices, time.monotonic() - self._began)


def _raise_first(failures: Sequence[ChildFailed]) -> None:
    if failures:
        raise failures[0]


def _prepare(plan: RunPlan, choice: PolicyChoice) -> tuple[Resources, list[PolicyChoice]]:
    """Returns the shared memory of an evaluation, with the weights of its policies, and the choice of each
    agent."""
    config = plan.config
    flags = replace(config.evaluation, policy_index=(choice.policy_index,), checkpoint=(choice.checkpoint,))
    choices = choices_of_agents(replace(config, evaluation=flags), plan.info.kinds)
    resources = allocate(plan)
    with explains_other_env(config, warns=False):
        _publish_checkpoints(plan, resources, choices)
    return resources, choices


def _publish_checkpoints(plan: RunPlan, resources: Resources, choices: Sequence[PolicyChoice]) -> None:
    """Publishes the weights that the policy workers act with: policy k plays the agents of kind k.

    Raises ConfigError, CheckpointError or ChildFailed.
    """
    kinds = plan.info.kinds.of_agent
    of_kind = [choices[kinds.index(kind)] for kind in range(plan.topology.num_policies)]
    specs = [policy._replace(device="cpu", precision="fp32") for policy in plan.policies]
    loads = [_Load(*load) for load in zip(of_kind, specs, resources.channels.weights)]
    if plan.config.sampling.serial_mode:
        publish_checkpoints(plan.config, loads)
        return
    args = (plan.config, loads)
    try:
        call_in_child("checkpoint", publish_checkpoints, args, LOAD_TIMEOUT_SECONDS)
    except ChildFailed as failure:
        for explained in (ConfigError, CheckpointError):
            if failure.is_a(explained):
                raise explained(failure.message) from None
        raise


class _Load(NamedTuple):
    """A checkpoint to be loaded, its network, and where its weights are published."""

    choice: PolicyChoice
    spec: PolicySpec
    weights: PolicyWeights


def publish_checkpoints(config: Config, loads: Sequence[_Load]) -> None:
    """Loads each checkpoint and publishes its weights. Raises ConfigError, CheckpointError."""
    from sample_factory.evaluation.policy import load_weights

    for choice, spec, weights in loads:
        model = spec.build().model
        state = load_weights(config, choice, model)
        arrays = {name: tensor.contiguous().numpy() for name, tensor in model.state_dict().items()}
        weights.publish(arrays, Stamp(state.get("train_step", 0)))


class EvaluationLoop(Loop):
    """In the main process: collects the episodes that count, and shows how many there are.

    An agent's episodes are numbered. A replaced worker plays those of its agents again from the first one,
    with the same seeds; of two episodes with the same number, the one that ended first counts.
    """

    def __init__(self, plan: RunPlan, resources: Resources, progress: Progress | None):
        topology = plan.topology
        assert topology.num_episodes is not None
        self._topology = topology
        self._reports = resources.channels.reports
        self._num_wanted = topology.num_episodes
        self._of_each = topology.episodes_of(np.arange(topology.num_agents))
        self._num_ended = np.zeros(topology.num_agents, np.int64)  # since the start of the agent's worker
        self._found: dict[tuple[int, int], EpisodeResult] = {}  # by (number, agent id)
        self._rewards = 0.0
        self._incidents = ComponentStats(time.monotonic)
        self._progress = progress

    @property
    def episodes(self) -> tuple[EpisodeResult, ...]:
        """The first episodes of all agents, then the second ones, and so on: in the same order each time."""
        return tuple(result for _, result in sorted(self._found.items(), key=lambda item: item[0]))

    @property
    def is_done(self) -> bool:
        return len(self._found) == self._num_wanted

    def receive(self, timeout: float) -> None:
        """Counts the episodes that are reported within `timeout` seconds."""
        for report in reports_in(self._reports.get_many(timeout)):
            self._handle(report)

    def turn(self, timeout: float) -> None:
        """Receives reports and shows the progress."""
        self.receive(timeout)
        if self._progress is not None:
            self._progress.update(len(self._found), self._describe)

    def process_replaced(self, dead: DeadProcess) -> None:
        """Expects the episodes of its agents once more."""
        self._incidents.add_incident(dead.incident)
        of_worker = self._topology.agents_per_worker
        for index in dead.rollout_workers:
            self._num_ended[index * of_worker : (index + 1) * of_worker] = 0

    def close(self, may_wait: Callable[[], bool]) -> None:
        """Counts the episodes that ended last, and ends the progress."""
        self.receive(0.0)
        if self._progress is not None:
            self._progress.close()

    def result(self, choices: Sequence[PolicyChoice], seconds: float) -> Evaluation:
        """Returns the episodes that were collected. choices: one for each agent. seconds: of playing."""
        env_frames = sum(episode.length for episode in self.episodes) // self._topology.agents_per_env
        return Evaluation(tuple(choices), self.episodes, env_frames, seconds, None, self._num_wanted)

    def _handle(self, report: Report) -> None:
        match report:
            case EpisodeReport():
                self._count(report)
            case Incident():
                self._incidents.add_incident(report)

    def _count(self, report: EpisodeReport) -> None:
        number = int(self._num_ended[report.agent_id])
        self._num_ended[report.agent_id] += 1
        key = number, report.agent_id
        if number >= self._of_each[report.agent_id] or key in self._found:
            return
        env, agent = divmod(report.agent_id, self._topology.agents_per_env)
        self._found[key] = EpisodeResult(
            agent, report.reward, report.length, report.true_objective, report.extra_stats, env
        )
        self._rewards += report.reward

    def _describe(self) -> str:
        return f"reward {number_text(self._rewards / len(self._found))}" if self._found else ""
