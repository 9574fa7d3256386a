"""Makes the envs of a rollout worker, with their seeds and their random first steps."""

from collections.abc import Callable, Iterable

import numpy as np

from sample_factory.envs.contract import same_layout
from sample_factory.envs.protocol import SEED_LIMIT, EnvConfig, EnvContractError, MultiAgentEnv
from sample_factory.envs.random_actions import RandomActions
from sample_factory.exchange.messages import Incident, NewShaping, NewTrainingInfo
from sample_factory.exchange.run_plan import EnvPlan
from sample_factory.exchange.trajectory_buffers import FIRST_INCARNATION, TrajectoryBuffers
from sample_factory.runtime.failures import Failure
from sample_factory.sampling.matchmaking.matchmaking import CheckedMatchmaking, MatchSetup, PastSelves
from sample_factory.sampling.rollout.env_vector import EnvVector
from sample_factory.sampling.rollout.guarded_env import GuardedEnv
from sample_factory.spaces.agent_kinds import AgentKinds

EVALUATION = (1,)  # key of the seeds of envs that are not trained in
MAX_TEXT = 10_000  # characters of an error or a traceback, so that a report fits into a message
ONE_PER_PROCESS = (
    "; the first env of this process was made: where only one can be, use --num_envs_per_worker=1 "
    "--worker_num_splits=1"
)


class EnvSetup:
    """Makes the EnvVectors of one rollout worker, with their envs, seeds and matchmaking, and resets them."""

    def __init__(
        self,
        plan: EnvPlan,
        worker_index: int,
        buffers: TrajectoryBuffers,
        past_selves: PastSelves,
        stepping: np.ndarray,
        report: Callable[[Incident], None],
        beat: Callable[[], None],
    ):
        """Prepares to make the envs of the rollout worker `worker_index`, and its random generator.

        stepping: [1] int, set to the index of the env that is being called. report: sends an incident to the
            main process.
        beat: signals that this process is alive; called between calls on envs, since making and resetting all
            of them can take long.
        """
        self._plan = plan
        self._worker_index = worker_index
        self._buffers = buffers
        self._topology = buffers.topology
        self._past_selves = past_selves
        self._stepping = stepping
        self._report = report
        self._beat = beat
        # Other seeds in a replaced worker: the same ones may let it die again. An evaluation repeats them.
        num_replaced = int(buffers.incarnations[worker_index]) - FIRST_INCARNATION
        self._num_replaced = num_replaced if self._topology.num_episodes is None else 0
        self._rng = np.random.default_rng([plan.seed, worker_index, self._num_replaced])

    def make_vector(self, split: int, values: Iterable[NewShaping | NewTrainingInfo] = ()) -> EnvVector:
        """Makes and resets the envs of a split, and returns their EnvVector. Must be called once per split.
        values: messages with reward shaping and training info for the envs, sent before the first reset."""
        configs = self._env_configs(split)
        envs = [self._make_env(config) for config in configs]
        matchmakings = [self._make_matchmaking(config) for config in configs]
        vector = EnvVector(envs, matchmakings, self._buffers, self._worker_index, split, self._plan)
        for message in values:
            vector.values.update(message)
        random_actions = RandomActions(envs[0].kinds, seed=int(self._rng.integers(2**31)))
        limit = self._plan.max_random_steps
        seconds = self._plan.max_random_seconds / self._topology.num_splits
        seeds = [self._env_seed(config) for config in configs]
        # Random steps would not spread the episodes of copies that begin together.
        are_spread = [limit > 0 and env.spread_episodes(seed) for env, seed in zip(envs, seeds)]
        random_steps = [
            int(self._rng.integers(limit)) if limit and not is_spread else 0 for is_spread in are_spread
        ]
        try:
            vector.reset(seeds, random_steps, random_actions, self._beat, seconds)
        except BaseException:  # also a signal, where the process goes on
            vector.close()
            raise
        return vector

    def _env_configs(self, split: int) -> list[EnvConfig]:
        envs_per_split = self._topology.envs_per_split
        first_id = self._plan.first_env_id + self._worker_index * self._topology.envs_per_worker
        worker_index = self._plan.first_worker + self._worker_index
        indices = range(split * envs_per_split, (split + 1) * envs_per_split)
        is_evaluation = self._topology.num_episodes is not None
        in_turn = self._topology.num_workers * self._topology.envs_per_worker if is_evaluation else 0
        return [EnvConfig(worker_index, index, first_id + index, in_turn) for index in indices]

    def _make_env(self, config: EnvConfig) -> GuardedEnv:
        def make() -> MultiAgentEnv:
            self._beat()
            try:
                env = self._plan.make_env(config)
            except Failure as failure:
                if config.vector_index == 0 or failure.permanent:
                    raise
                text = f"{failure.message}{ONE_PER_PROCESS}"
                raise Failure.of(failure, failure.where, text) from failure.__cause__
            self._check_kinds(env.kinds)
            for wrap in self._plan.around:
                env = wrap(env, config)
            return env

        def report_rebuild(text: str, details: str) -> None:
            self._report(Incident("env_rebuilds", text[:MAX_TEXT], details=details[-MAX_TEXT:]))

        name = f"worker {self._worker_index}: env {config.vector_index} ({self._plan.cfg.env})"
        heals = not self._plan.is_single
        return GuardedEnv(make, name, config.vector_index, self._stepping, report_rebuild, heals)

    def _check_kinds(self, kinds: AgentKinds) -> None:
        """Checks the spaces and agents of an env. Raises EnvContractError if they differ from the env that
        was tried out before the run, for which buffers and networks were made."""
        planned = self._plan.kinds or kinds
        if not same_layout(kinds, planned):
            raise EnvContractError(
                f"env {self._plan.cfg.env!r} has {kinds}; the one of the trial before the run had {planned}. "
                "All envs of a run should have the same spaces and agents"
            )

    def _make_matchmaking(self, config: EnvConfig) -> CheckedMatchmaking:
        setup = MatchSetup(
            self._topology.num_policies,
            self._topology.kind_of_agent,
            self._plan.mix_policies,
            self._rng,
            self._past_selves,
            config.env_id,
            self._plan.cfg,
        )
        made: CheckedMatchmaking = self._plan.matchmaking(setup)
        return made

    def _env_seed(self, config: EnvConfig) -> int:
        """Returns the seed of an env's first reset, below 2**31, since every env accepts such a seed.

        An evaluation has other seeds than a training with the same --seed, so that a policy is not evaluated
        in the levels that it was trained in.
        """
        if self._plan.is_single:
            return self._plan.seed % SEED_LIMIT
        stream = () if self._topology.num_episodes is None else EVALUATION
        numbers = [self._plan.seed, config.env_id, self._num_replaced]
        sequence = np.random.SeedSequence(numbers, spawn_key=stream)
        return int(sequence.generate_state(1)[0] >> 1)
