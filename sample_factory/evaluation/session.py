"""Playing: the rollout and policy workers of training, without a learner, in processes or in this process.

`eval`, `match`, `record`, `enjoy`, `imitate` and `export` differ in who plays (Cast), in what they put
around the envs, and in what they do when an episode ends. The main process loads no torch, except in serial
mode.
"""

import functools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.sampling_flags import POLICY_WORKER_NICENESS
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.results import EpisodeCount, EpisodeResult, Progress
from sample_factory.exchange.messages import EpisodeReport, Incident, MatchEnded, reports_in
from sample_factory.exchange.policy_weights import PolicyWeights, Stamp
from sample_factory.exchange.run_plan import ActingPlan, ActionChoice, AroundEnv, EnvPlan, SamplingPlan
from sample_factory.exchange.topology import episode_shares, playing_topology
from sample_factory.launch.arrangement import USUAL_AGENTS, num_inline_samplers
from sample_factory.launch.checks import probe_state
from sample_factory.launch.processes import ProcessRun
from sample_factory.launch.resources import allocate, log_start
from sample_factory.launch.serial import SerialRun
from sample_factory.mainloop.main_loop import Loop, Resources
from sample_factory.models.network_registry import users_parts
from sample_factory.models.policy_spec import PolicySpec, make_policy_spec
from sample_factory.monitoring.component_stats import ComponentStats
from sample_factory.runtime.child import ChildFailed, call_in_child
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.supervisor import StopSignals
from sample_factory.sampling.matchmaking.matchmaking import CheckedMatchmaking
from sample_factory.sampling.matchmaking.seats import Seats

LOAD_TIMEOUT_SECONDS = 300.0
MakeEnv = Callable[[EnvConfig], MultiAgentEnv]
Ended = EpisodeResult | MatchEnded


class SavedPolicy(NamedTuple):
    """A checkpoint of an experiment. config: of the experiment, which describes the network."""

    config: Config
    choice: PolicyChoice


class Cast(NamedTuple):
    """Who plays.

    players: by policy id, a checkpoint, or the name of a scripted player: of the env's own, or RANDOM_PLAYER.
    seats: the policy id of each agent. swaps: the halves of the agents swap seats after each match.
    matchmaking: in place of `seats`, see `register_matchmaking`.
    """

    players: Sequence[SavedPolicy | str]
    seats: Sequence[int] = ()
    swaps: bool = False
    matchmaking: Callable[[Any], Any] | None = None

    @property
    def policies(self) -> dict[int, SavedPolicy]:
        """The checkpoints, by policy id."""
        return {id: player for id, player in enumerate(self.players) if not isinstance(player, str)}

    @property
    def scripts(self) -> dict[int, str]:
        """The scripted players, by policy id."""
        return {id: player for id, player in enumerate(self.players) if isinstance(player, str)}


class Size(NamedTuple):
    """Number of worker processes, of envs in each, and of splits of these; of inline samplers."""

    num_workers: int
    num_envs: int
    num_splits: int = 1
    num_inline_samplers: int = 0


ONE_ENV = Size(1, 1)  # in this process


def size_for(config: Config, num_agents: int, num_needed: int) -> Size:
    """Returns as many workers and envs as the training has, but no more envs than are needed.

    num_agents: of an env.
    """
    flags = config.sampling
    num_workers = min(flags.num_workers, num_needed)
    usual = flags.num_envs_per_worker or max(1, USUAL_AGENTS // num_agents)
    num_envs = min(usual, -(-num_needed // num_workers))
    num_splits = flags.worker_num_splits if num_envs % flags.worker_num_splits == 0 else 1
    if flags.serial_mode:
        return Size(1, num_envs * num_workers, num_splits)
    inline = flags.inline_samplers and min(flags.inline_samplers, num_workers)
    own_flags = replace(flags, num_workers=num_workers, num_policies=1, inline_samplers=inline)
    return Size(num_workers, num_envs, num_splits, num_inline_samplers(own_flags, config.run.device, False))


def plan_session(
    config: Config,
    make_env: MakeEnv,
    info: EnvInfo,
    cast: Cast,
    size: Size,
    num_episodes: int,
    state_size: int | None = None,
    around: Sequence[AroundEnv] = (),
    is_single: bool = False,
    reports_matches: bool = False,
) -> SamplingPlan:
    """Returns the plan of a session.

    config: its flags say how processes are started and actions are chosen. make_env, info: the env.
    num_episodes: that all agents together play. state_size: floats in the recurrent state of an agent, if the
        caller knows it. around, is_single, reports_matches: see EnvPlan.

    Raises ConfigError or ChildFailed if a network of the user's own cannot be made.
    """
    evaluation, sampling = config.evaluation, config.sampling
    config = prepared(config)
    seed = config.run.seed
    assert seed is not None
    policies = {id: _spec(config, saved, info, is_single) for id, saved in cast.policies.items()}
    if state_size is None:
        sizes = [_state_size(cast.policies[id], spec, is_single) for id, spec in policies.items()]
        state_size = max(sizes, default=0)
    matchmaking = cast.matchmaking or functools.partial(Seats, cast.seats, cast.swaps)
    envs = EnvPlan(
        make_env,
        config.namespace(),
        functools.partial(CheckedMatchmaking, "seats", matchmaking),
        seed,
        scripts=cast.scripts,
        reward_scale=config.learning.reward_scale,
        reward_clip=config.learning.reward_clip,
        around=tuple(around),
        is_single=is_single,
        reports_matches=reports_matches,
    )
    choice = ActionChoice(evaluation.eval_deterministic, evaluation.continuous_actions_sample)
    return SamplingPlan(
        envs=envs,
        acting=ActingPlan(policies, seed, choice, config.run.cuda_graphs),
        info=info,
        topology=playing_topology(
            info,
            config,
            len(cast.players),
            size.num_workers,
            size.num_envs,
            size.num_splits,
            num_episodes,
            size.num_inline_samplers,
        ),
        state_size=state_size,
        flags=sampling,
        # There is no learner that policy workers should leave the cores to.
        niceness=sampling.default_niceness - POLICY_WORKER_NICENESS,
        silent_seconds=config.monitoring.heartbeat_reporting_interval,
    )


def _spec(config: Config, saved: SavedPolicy, info: EnvInfo, is_single: bool) -> PolicySpec:
    """Returns the specification of a network. Checkpoints are trained in any precision, and play in fp32,
    unless --precision was typed for many envs. In this process they play on the CPU, unless --device was
    typed: it is faster for small batches."""
    kind = saved.choice.policy_index % len(info.kinds.spaces)
    spec = make_policy_spec(saved.config, *info.kinds.spaces[kind]).to_act()
    device = config.run.device if "device" in config.typed or not config.sampling.serial_mode else "cpu"
    precision = "fp32" if is_single else config.typed.get("precision", "fp32")
    return spec._replace(device=device, precision=precision)


def _state_size(saved: SavedPolicy, spec: PolicySpec, is_single: bool) -> int:
    if is_single and users_parts(saved.config.model):  # this process loads torch anyway
        return spec._replace(device="cpu").build().model.state_size
    try:
        return probe_state(saved.config, [spec])
    except ChildFailed as failure:
        if failure.is_a(ConfigError):
            raise ConfigError(failure.message) from None
        raise


def prepared(config: Config) -> Config:
    """Returns the configuration with a random number in place of a --seed that was left out; and with any
    device where the training had a GPU, unless --device was typed."""
    seed = random.SystemRandom().randrange(2**31) if config.run.seed is None else config.run.seed
    device = config.run.device
    if device == "gpu" and "device" not in config.typed:
        device = "auto"
    return replace(config, run=replace(config.run, seed=seed, device=device))


def in_this_process(config: Config) -> Config:
    """Returns the configuration for a session in this process."""
    return replace(config, sampling=replace(config.sampling, serial_mode=True))


class FirstEnv:
    """Makes the envs of sessions in this process. The first one is made at once, to learn its spaces.

    env: the newest. A session closes the env that it has played.
    """

    def __init__(self, make_env: MakeEnv):
        """make_env: see EnvPlan."""
        self._make_env = make_env
        self.env = make_env(EnvConfig(0, 0, 0))
        self._is_taken = False

    def __call__(self, env_config: EnvConfig) -> MultiAgentEnv:
        if self._is_taken:
            self.env = self._make_env(env_config)
        self._is_taken = True
        return self.env

    def close(self) -> None:
        """Closes the first env, unless a session has taken it."""
        if not self._is_taken:
            self.env.close()


class Events(NamedTuple):
    """What a session calls in the main process.

    on_end: with each episode that counts, or each match, and its number among those of its agent, or env.
    is_over: returns whether to stop before all episodes have ended.
    on_step: in serial mode, after the first reset and after each step of the envs.
    describe: returns a text about the results so far, for the progress.
    """

    on_end: Callable[[Any, int], None] = lambda ended, number: None
    is_over: Callable[[], bool] = lambda: False
    on_step: Callable[[], None] = lambda: None
    describe: Callable[[], str] = str


NOTHING = Events()


class Session:
    """Plays the episodes of a plan; in serial mode in this process, with one thread.

    versions: of the weights, by policy id.
    """

    def __init__(
        self,
        plan: SamplingPlan,
        cast: Cast,
        events: Events = NOTHING,
        progress: Progress | None = None,
        context: ChildContext | None = None,
    ):
        """Loads the checkpoints. plan: from `plan_session`, for the same cast.

        context: gets the heartbeats in serial mode.
        Raises ConfigError for a missing checkpoint, CheckpointError for an unusable one, and ChildFailed.
        """
        self._is_single = plan.envs.is_single
        self._restore_torch = _restorer_of_torch() if plan.flags.serial_mode else lambda: None
        resources = allocate(plan)
        if not self._is_single:
            log_start(plan, resources.buffers.nbytes)
        weights = resources.channels.weights
        _publish(plan, cast, weights)
        self.versions = {id: weights[id].newest.version for id in cast.policies}
        self._loop = SessionLoop(plan, resources, events, progress or Progress(None))
        self._began = time.monotonic()
        self._run: SerialRun | ProcessRun
        if plan.flags.serial_mode:
            self._run = SerialRun(plan, resources, context=context)
        else:
            self._run = ProcessRun(plan, resources)

    def make_envs(self) -> None:
        """In serial mode: makes the envs and resets them; otherwise `play` does."""
        assert isinstance(self._run, SerialRun)
        self._run.make_envs()

    def play(self, signals: StopSignals) -> tuple[Any, ...]:
        """Plays until all episodes have ended, a signal arrives, or `Events.is_over`. Called once.

        Returns the episodes that count, or the matches, in the same order in each run.

        Raises ChildFailed, ConfigError from `on_end`, and in serial mode what an env or a network raises.
        """
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
    """Returns a function that gives torch the number of threads and the random state that it has now: the
    policy workers in this process change both, and a user's program may go on."""
    import torch

    num_threads, state = torch.get_num_threads(), torch.get_rng_state()

    def restore() -> None:
        torch.set_num_threads(num_threads)
        torch.set_rng_state(state)

    return restore


def _publish(plan: SamplingPlan, cast: Cast, weights: Sequence[PolicyWeights]) -> None:
    """Publishes the weights that the policy workers act with."""
    policies = cast.policies
    specs = [plan.acting.policies[id]._replace(device="cpu", precision="fp32") for id in policies]
    args = (list(policies.values()), specs, [weights[id] for id in policies])
    if plan.flags.serial_mode:
        load_and_publish(*args)
    elif specs:
        try:
            call_in_child("checkpoint", load_and_publish, args, LOAD_TIMEOUT_SECONDS)
        except ChildFailed as failure:
            for explained in (ConfigError, CheckpointError):
                if failure.is_a(explained):
                    raise explained(failure.message) from None
            raise


def load_and_publish(
    policies: Sequence[SavedPolicy], specs: Sequence[PolicySpec], weights: Sequence[PolicyWeights]
) -> None:
    """In a child, except in serial mode: loads each checkpoint and publishes its weights.

    Raises ConfigError, CheckpointError.
    """
    from sample_factory.evaluation.policy import load_weights

    for (config, choice), spec, published in zip(policies, specs, weights):
        model = spec.build().model
        state = load_weights(config, choice, model)
        arrays = {name: tensor.contiguous().numpy() for name, tensor in model.state_dict().items()}
        published.publish(arrays, Stamp(state.get("train_step", 0)))


class SessionLoop(Loop):
    """In the main process: collects the episodes, or matches, that count, and shows how many there are.

    error: raised by `Events.on_end`; it ends the session.
    """

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
        """Counts the episodes that are reported within `timeout` seconds."""
        for report in reports_in(self._reports.get_many(timeout)):
            match report:
                case MatchEnded() if self._counts_matches:
                    self._add(report, report.env, 0)
                case EpisodeReport() if not self._counts_matches:
                    env, agent = divmod(report.agent_id, self._topology.agents_per_env)
                    stats = report.extra_stats
                    episode = EpisodeResult(
                        agent, report.reward, report.length, report.true_objective, stats, env
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
        """Receives reports and shows the progress."""
        self.receive(timeout)
        self._progress.update(len(self._count), self._events.describe)

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
