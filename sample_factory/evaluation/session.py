"""Playing: the rollout and policy workers of training, without a learner, in processes or in this process.

`eval`, `match`, `record`, `enjoy`, `imitate` and `export` differ in who plays (Cast), in what they put
around the envs, and in what they do when an episode ends. The main process loads no torch, except in serial
mode.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.config.flags import ConfigError
from sample_factory.evaluation.results import EpisodeCount, EpisodeResult, Progress
from sample_factory.evaluation.session_plan import Cast, SavedPolicy
from sample_factory.exchange.messages import EpisodeReport, Incident, MatchEnded, reports_in
from sample_factory.exchange.policy_weights import PolicyWeights, Stamp
from sample_factory.exchange.run_plan import SamplingPlan
from sample_factory.exchange.topology import episode_shares
from sample_factory.launch.processes import ProcessRun
from sample_factory.launch.resources import allocate, log_start
from sample_factory.launch.serial import SerialRun
from sample_factory.mainloop.main_loop import Loop, Resources
from sample_factory.models.policy_spec import PolicySpec
from sample_factory.monitoring.component_stats import ComponentStats
from sample_factory.runtime.child import call_in_child
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.failures import Failure
from sample_factory.runtime.supervisor import StopSignals

LOAD_TIMEOUT_SECONDS = 300.0
Ended = EpisodeResult | MatchEnded


class Events(NamedTuple):
    """Callbacks of a session, called in the main process.

    on_end: called with each episode, or match, that counts, and with its number among the episodes of its
        agent, or the matches of its env.
    is_over: returns whether to stop before all episodes have ended.
    on_step: called in serial mode, after the first reset and after each step of the envs.
    describe: returns a text about the results so far, for the progress bar.
    """

    on_end: Callable[[Any, int], None] = lambda ended, number: None
    is_over: Callable[[], bool] = lambda: False
    on_step: Callable[[], None] = lambda: None
    describe: Callable[[], str] = str


NOTHING = Events()


class Session:
    """Plays the episodes of a plan, in worker processes or, in serial mode, in one thread of this process.
    versions: policy id -> number of SGD steps of the loaded weights."""

    def __init__(
        self,
        plan: SamplingPlan,
        cast: Cast,
        events: Events = NOTHING,
        progress: Progress | None = None,
        context: ChildContext | None = None,
    ):
        """Allocates memory and loads the checkpoints of the players.
        plan: result of `plan_session` for the cast. context: receives heartbeats in serial mode, if given.
        Raises ConfigError for a missing checkpoint, CheckpointError for an unusable one, and Failure if the
        child that loads them fails."""
        self._is_single = plan.envs.is_single
        self._restore_torch = _restorer_of_torch() if plan.flags.serial_mode else lambda: None
        resources = allocate(plan)
        if not self._is_single:
            log_start(plan, resources.buffers.nbytes)
        weights = resources.channels.weights
        _publish(plan, cast, weights)
        self.versions = {policy_id: weights[policy_id].newest.version for policy_id in cast.policies}
        self._loop = SessionLoop(plan, resources, events, progress or Progress(None))
        self._began = time.monotonic()
        self._run: SerialRun | ProcessRun
        if plan.flags.serial_mode:
            self._run = SerialRun(plan, resources, context=context)
        else:
            self._run = ProcessRun(plan, resources)

    def make_envs(self) -> None:
        """In serial mode: makes and resets the envs, which `play` does only if they are not made yet."""
        assert isinstance(self._run, SerialRun)
        self._run.make_envs()

    def play(self, signals: StopSignals) -> tuple[Any, ...]:
        """Plays until all episodes have ended, a signal arrives, or `Events.is_over` returns True. May be
        called once. Returns the episodes, or matches, that count, in the same order in each run. Raises
        Failure when a process fails for good, a ConfigError that `on_end` has raised, and in serial mode any
        exception of an env or a network."""
        try:
            failures = self._run.run(self._loop, signals)
        except Exception:
            if not self._is_single or signals.requested is None:
                raise
            failures = []  # the signal to stop reached the simulator first
        finally:
            self._restore_torch()
        if self._loop.error is not None:
            raise self._loop.error
        if failures:
            raise failures[0]
        return self._loop.ended

    @property
    def seconds(self) -> float:
        """Seconds since the checkpoints were loaded."""
        return time.monotonic() - self._began


def _restorer_of_torch() -> Callable[[], None]:
    """Returns a function that restores torch's current number of threads and random state. Policy workers in
    this process change both, and the user's program may go on after the session."""
    import torch

    num_threads, state = torch.get_num_threads(), torch.get_rng_state()

    def restore() -> None:
        torch.set_num_threads(num_threads)
        torch.set_rng_state(state)

    return restore


def _publish(plan: SamplingPlan, cast: Cast, weights: Sequence[PolicyWeights]) -> None:
    """Loads the checkpoints of the cast and publishes their weights to the policy workers; except in serial
    mode, a child loads them, so that this process does not import torch."""
    policies = cast.policies
    specs = [spec._replace(device="cpu", precision="fp32") for spec in plan.acting.policies.values()]
    args = (list(policies.values()), specs, [weights[policy_id] for policy_id in policies])
    if plan.flags.serial_mode:
        load_and_publish(*args)
    elif specs:
        try:
            call_in_child("checkpoint", load_and_publish, args, LOAD_TIMEOUT_SECONDS, from_template=True)
        except Failure as failure:
            if failure.is_a(CheckpointError):
                raise CheckpointError(failure.text) from None
            raise


def load_and_publish(
    policies: Sequence[SavedPolicy], specs: Sequence[PolicySpec], weights: Sequence[PolicyWeights]
) -> None:
    """Loads each checkpoint and publishes its weights. Runs in a child, except in serial mode. Raises
    ConfigError for a missing checkpoint, CheckpointError for an unusable one."""
    from sample_factory.evaluation.policy import load_weights

    for (config, choice), spec, published in zip(policies, specs, weights):
        model = spec.build().model
        state = load_weights(config, choice, model)
        arrays = {name: tensor.contiguous().numpy() for name, tensor in model.state_dict().items()}
        published.publish(arrays, Stamp(state.get("train_step", 0)))


class SessionLoop(Loop):
    """In the main process: collects the session's results and shows the progress. Only the first episodes of
    each agent count, or the first matches of each env, up to a number that is fixed in advance.
    error: exception that `Events.on_end` has raised; it ends the session."""

    def __init__(self, plan: SamplingPlan, resources: Resources, events: Events, progress: Progress):
        topology = plan.topology
        assert topology.num_episodes is not None
        self._topology = topology
        self._reports = resources.channels.reports
        self._counts_matches = plan.envs.reports_matches
        shares = episode_shares(topology.num_episodes, topology.num_agents)
        shares = shares.reshape(-1, topology.agents_per_env)
        self._count = EpisodeCount(shares[:, :1] if self._counts_matches else shares)
        self._incidents = ComponentStats(time.monotonic)
        self._events = events
        self._progress = progress
        self.error: ConfigError | None = None

    @property
    def ended(self) -> tuple[Any, ...]:
        """The episodes or matches that count, in the same order in each run."""
        return self._count.ended

    @property
    def is_done(self) -> bool:
        return self._count.is_complete or self.error is not None or self._events.is_over()

    def started(self) -> None:
        self._events.on_step()

    def stepped(self) -> None:
        self.receive(0.0)
        self._events.on_step()

    def receive(self, timeout: float) -> None:
        """Receives reports for at most `timeout` seconds, and counts the episodes or matches in them."""
        for report in reports_in(self._reports.get_many(timeout)):
            match report:
                case MatchEnded() if self._counts_matches:
                    self._add(report, report.env, 0)
                case EpisodeReport() if not self._counts_matches:
                    env, agent = divmod(report.agent_id, self._topology.agents_per_env)
                    episode = EpisodeResult(
                        agent,
                        report.reward,
                        report.length,
                        report.true_objective,
                        report.extra_stats,
                        env,
                        report.level,
                    )
                    self._add(episode, env, agent)
                case Incident():
                    self._incidents.add_incident(report)
                    if self._counts_matches and report.kind == "broken_numbers" and report.text:
                        self.error = ConfigError(f"{report.text}; so no winner can be determined")

    def _add(self, ended: Ended, env: int, agent: int) -> None:
        number = self._count.add(ended, env, agent)
        if number is not None and self.error is None:
            try:
                self._events.on_end(ended, number)
            except ConfigError as error:  # raised by `play`, after the workers have stopped
                self.error = error

    def turn(self, timeout: float) -> None:
        """Receives reports for at most `timeout` seconds, and shows the progress."""
        self.receive(timeout)
        self._progress.update(len(self._count), self._events.describe)

    def process_replaced(self, inbox: int, rollout_workers: Sequence[int], incident: Incident) -> None:
        """Prepares to count the episodes of the dead workers' envs again: the replacements play them with the
        same seeds.
        rollout_workers: indices of the workers that were replaced."""
        self._incidents.add_incident(incident)
        num_envs = self._topology.agents_per_worker // self._topology.agents_per_env  # in a worker
        for index in rollout_workers:
            self._count.repeat(slice(index * num_envs, (index + 1) * num_envs))

    def close(self, may_wait: Callable[[], bool]) -> None:
        """Counts the episodes that were reported last, and removes the progress bar; never waits, whatever
        `may_wait` returns."""
        self.receive(0.0)
        self._progress.close()
