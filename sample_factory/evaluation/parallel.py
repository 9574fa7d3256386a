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
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.evaluation.eval_frameskip import with_eval_frameskip
from sample_factory.evaluation.policy_choice import PolicyChoice, choices_of_agents, find_checkpoint
from sample_factory.evaluation.progress import Progress
from sample_factory.evaluation.results import EpisodeResult, Evaluation
from sample_factory.evaluation.trained_env import explains_other_env
from sample_factory.exchange.messages import EpisodeReport, Incident, Report, reports_in
from sample_factory.exchange.policy_weights import PolicyWeights, Stamp
from sample_factory.exchange.topology import make_topology
from sample_factory.launch.arrangement import USUAL_AGENTS
from sample_factory.launch.checks import Probed, check_and_probe
from sample_factory.mainloop.main_loop import DeadProcess
from sample_factory.launch.parts import Parts, allocate, chosen_seed
from sample_factory.launch.processes import run_in_processes
from sample_factory.launch.serial import SerialRun
from sample_factory.launch.wiring import policy_spec
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
    config = replace(config, run=replace(config.run, seed=chosen_seed(config)))  # one for all checkpoints
    with StopSignals(keeps_process=keeps_process) as signals:
        with explains_other_env(config):
            _, probed = check_and_probe(sampling_only(config, 1), family)
        info = probed.info
        config = sampling_only(config, len(info.kinds.spaces), info.num_agents)
        for number, choice in enumerate(chosen, start=1):
            if signals.requested:
                break
            log.info("Evaluating %s (%d of %d)", choice, number, len(chosen))
            progress = Progress(config.evaluation.eval_episodes)
            yield evaluate_checkpoint(config, family, probed, choice, signals, progress)


def chosen_policies(config: Config) -> list[PolicyChoice]:
    """Returns every checkpoint of --checkpoint of every policy of --policy_index."""
    pairs = itertools.product(config.evaluation.policy_index, config.evaluation.checkpoint or (None,))
    kind = config.monitoring.load_checkpoint_kind
    return [PolicyChoice(policy, checkpoint or kind) for policy, checkpoint in pairs]


def sampling_only(config: Config, num_policies: int, num_agents: int = 1) -> Config:
    """Returns the flags of the training without learning, and with no more envs than there are episodes.

    num_policies: one for each kind of agents. num_agents: in an env.
    """
    sampling = config.sampling
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
            num_policies=num_policies,
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
    config: Config,
    family: EnvFamily,
    probed: Probed,
    choice: PolicyChoice,
    signals: StopSignals,
    progress: Progress | None = None,
) -> Evaluation:
    """Plays the episodes of one checkpoint. config: from `sampling_only`. Raises as evaluate_in_parallel."""
    if config.sampling.serial_mode:
        context = ChildContext("serial")
        return SerialEvaluation(config, family, probed, choice, context, progress).play(signals)
    prepared = _prepare(config, family, probed, choice)
    loop = EvaluationLoop(prepared.parts, progress)
    began = time.monotonic()
    run_in_processes(prepared.parts, signals, lambda *_: loop).raise_failure()
    return prepared.result(loop, time.monotonic() - began)


class SerialEvaluation:
    """The evaluation of one checkpoint in this process."""

    def __init__(
        self,
        config: Config,
        family: EnvFamily,
        probed: Probed,
        choice: PolicyChoice,
        context: ChildContext,
        progress: Progress | None = None,
    ):
        """Loads the checkpoint, makes the envs and resets them. context: gets the heartbeats of all of this.

        config: from `sampling_only`. Raises as evaluate_in_parallel.
        """
        self._prepared = _prepare(config, family, probed, choice)
        self._loop = EvaluationLoop(self._prepared.parts, progress)
        self._began = time.monotonic()
        self._run = SerialRun(self._prepared.parts, lambda *_: self._loop, context)

    def play(self, signals: StopSignals) -> Evaluation:
        """Plays the episodes. Called once."""
        self._run.run(signals).raise_failure()
        return self._prepared.result(self._loop, time.monotonic() - self._began)


class _Prepared(NamedTuple):
    """An evaluation whose policies are published: choices has one for each agent."""

    parts: Parts
    choices: list[PolicyChoice]

    def result(self, loop: "EvaluationLoop", seconds: float) -> Evaluation:
        """Returns the episodes that the loop has collected. seconds: duration of the evaluation."""
        episodes = loop.episodes
        env_frames = sum(episode.length for episode in episodes) // self.parts.info.num_agents
        num_wanted = self.parts.buffers.topology.num_episodes
        return Evaluation(tuple(self.choices), episodes, env_frames, seconds, None, num_wanted)


def _prepare(config: Config, family: EnvFamily, probed: Probed, choice: PolicyChoice) -> _Prepared:
    flags = replace(config.evaluation, policy_index=(choice.policy_index,), checkpoint=(choice.checkpoint,))
    choices = choices_of_agents(replace(config, evaluation=flags), probed.info.kinds)
    topology = make_topology(config, probed.info, config.evaluation.eval_episodes)
    parts = allocate(config, family, probed, topology, has_learner=False)
    with explains_other_env(config, warns=False):
        _publish_checkpoints(parts, choices)
    return _Prepared(parts, choices)


def _publish_checkpoints(parts: Parts, choices: Sequence[PolicyChoice]) -> None:
    """Publishes the weights that the policy workers act with: policy k plays the agents of kind k.

    Raises ConfigError, CheckpointError or ChildFailed.
    """
    kinds = parts.info.kinds.of_agent
    of_kind = [choices[kinds.index(kind)] for kind in range(parts.buffers.topology.num_policies)]
    specs = [
        policy_spec(parts, kind)._replace(device="cpu", precision="fp32") for kind in range(len(of_kind))
    ]
    loads = [_Load(*load) for load in zip(of_kind, specs, parts.channels.weights)]
    if parts.config.sampling.serial_mode:
        publish_checkpoints(parts.config, loads)
        return
    args = (parts.config, loads)
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


class EvaluationLoop:
    """In the main process: collects the episodes that count, and shows how many there are.

    An agent's episodes are numbered. A replaced worker plays those of its agents again from the first one,
    with the same seeds; of two episodes with the same number, the one that ended first counts.
    """

    def __init__(self, parts: Parts, progress: Progress | None):
        topology = parts.buffers.topology
        assert topology.num_episodes is not None
        self._topology = topology
        self._reports = parts.channels.reports
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

    @property
    def has_begun(self) -> bool:
        """False: episodes count also while workers start."""
        return False

    @property
    def is_evaluating(self) -> bool:
        """False: no training has to wait."""
        return False

    def receive(self, timeout: float) -> None:
        """Counts the episodes that are reported within `timeout` seconds."""
        for report in reports_in(self._reports.get_many(timeout)):
            self._handle(report)

    def started(self) -> None:
        """Does nothing."""

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

    def stopping(self) -> None:
        """Does nothing: the workers have nothing to save."""

    def close(self, may_wait: Callable[[], bool]) -> None:
        """Counts the episodes that ended last, and ends the progress."""
        self.receive(0.0)
        if self._progress is not None:
            self._progress.close()

    def log_summary(self, has_failed: bool = False) -> None:
        """Does nothing: the caller prints the results."""

    def summary(self) -> None:
        """Returns nothing: `episodes` are the results."""

    @property
    def stop_reason(self) -> str:
        """Empty: only signals end an evaluation early."""
        return ""

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
