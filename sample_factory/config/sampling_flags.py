"""The sections of sampling: processes, environments, asynchrony, several machines."""

import functools
from dataclasses import dataclass

from sample_factory.config.flags import Not, flag
from sample_factory.runtime.cpu import num_usable_cores

# A bound that catches typing errors.
MAX_SECONDS = 1_000_000
# Added to --default_niceness, the nice value of learners. Learners get priority: when they are the
# bottleneck, every other process waits for them anyway. On 2 cores, these values give 6 to 14 % more frames
# per second than 0. A value of 19 would leave the simulators almost no time beside any other program.
POLICY_WORKER_NICENESS = 5
ROLLOUT_WORKER_NICENESS = 10
EVERY = "every"
LAG = "lag"
DIVERGENCE = "divergence"
# --weights_sync_threshold that is used if none is given: SGD steps, nats.
DEFAULT_THRESHOLDS = {LAG: 20.0, DIVERGENCE: 0.003}
_process_flag = functools.partial(flag, only_with={"serial_mode": (False,)})
_separate_flag = functools.partial(flag, only_with={"serial_mode": (False,), "inline_samplers": (0, None)})
_node_flag = functools.partial(flag, only_with={"num_nodes": Not((1,))})


@dataclass(frozen=True)
class SamplingFlags:
    """Processes, environments, asynchrony."""

    num_policies: int = flag(
        1, "policies to train at the same time, each with a learner of its own", between=(1, 1000)
    )
    pbt_mix_policies_in_one_env: bool = flag(
        True,
        "different policies may play in one multi-agent env; False: one policy plays all its agents",
        only_with={"num_policies": Not((1,)), "agents": ("several",)},
    )
    async_rl: bool = flag(
        True, "sample while the learner trains; False: alternate strictly, without policy lag"
    )
    sample_ahead: bool = flag(
        False,
        "sample for the next iteration, not further, while the learner trains: a lag of one iteration",
        only_with={"async_rl": (False,)},
    )
    serial_mode: bool = flag(False, "run everything in one process, reproducible with --seed; for debugging")
    queue: str = _process_flag(
        "sockets",
        "how processes exchange messages; faster_fifo needs its package, and can hang if a process is killed",
        choices=("sockets", "faster_fifo"),
    )
    num_workers: int = flag(
        num_usable_cores(),
        "processes that step envs; by default one per CPU core of this process and its container",
        between=(1, 10_000),
    )
    num_envs_per_worker: int | None = flag(
        None,
        "envs in each worker process; chosen by the env and the machine if left out, e.g. 16",
        between=(1, 100_000),
    )
    worker_num_splits: int = flag(
        2,
        "groups of the envs of a worker; one is stepped while the others wait for their actions",
        at_least=1,
    )
    policy_workers_per_policy: int = _separate_flag(
        1, "processes that compute the actions of each policy", between=(1, 1000)
    )
    inline_samplers: int | None = _process_flag(
        None,
        "processes that step envs and also compute actions, 0: none; chosen by the machine if left out",
        between=(0, 10_000),
    )
    max_policy_lag: int = flag(
        10000, "experience that is at least this many SGD steps old is discarded", between=(1, 1_000_000)
    )
    forced_policy_lag: int = flag(
        0,
        "for studies: act with weights at least this many SGD steps old, which the learner keeps in memory",
        between=(0, 1_000_000),
    )
    num_batches_to_accumulate: int | None = flag(
        None,
        "batches that may wait for the learner before sampling pauses: one in trajectory buffers, the others "
        "copied to its device; 2 if left out, 1 without a GPU",
        between=(1, 10_000),
        only_with={"async_rl": (True,), "serial_mode": (False,)},
    )
    traj_buffers_excess_ratio: float = flag(
        1.3,
        "number of trajectory buffers, as a multiple of what the run needs; with 1, samples are newer where "
        "the learner is the bottleneck",
        between=(1, 1000),
    )
    decorrelate_experience_max_seconds: float = flag(
        0.0,
        "pause of the last worker after its first trajectories, and shorter ones of the others",
        between=(0, MAX_SECONDS),
        only_with={"benchmark": (False,)},
    )
    decorrelate_envs_on_one_worker: bool = flag(
        True,
        "begin each env with a different number of random actions, to spread the ends of episodes",
        only_with={"benchmark": (False,)},
    )
    reset_timeout_seconds: float = flag(
        120.0,
        "a worker fails whose envs have not started after this many seconds",
        above=0,
        at_most=MAX_SECONDS,
    )
    actor_worker_gpus: tuple[int, ...] = _separate_flag(
        (), "indices of the GPUs that environments may use, if a simulator needs one", between=(0, 1000)
    )
    set_workers_cpu_affinity: bool = _process_flag(
        True, "pin each worker process and its simulators to a core; not with --inline_samplers"
    )
    force_envs_single_thread: bool = _process_flag(
        True, "limit the maths libraries in worker processes to one thread"
    )
    default_niceness: int = _process_flag(
        0,
        f"nice value of learners (higher: less priority); policy workers and inline samplers add "
        f"{POLICY_WORKER_NICENESS}, rollout workers and simulators add {ROLLOUT_WORKER_NICENESS}",
        between=(-20, 19),
    )
    learners_per_policy: int = flag(
        1,
        "processes that train each policy together, each on a share of a batch and a GPU of its own",
        between=(1, 64),
    )
    learner_main_loop_num_cores: int = flag(
        0, "CPU threads of each learner; 0: chosen by the number of cores", between=(0, 1024)
    )
    benchmark: bool = flag(
        False, "measure the speed: no decorrelation at the start, and an end after 2e6 env frames"
    )
    sampler_only: bool = flag(False, "collect experience but do not train, to measure the speed of sampling")

    @property
    def envs_per_worker(self) -> int:
        """Value of --num_envs_per_worker; available once launch.arrangement has chosen a number."""
        assert self.num_envs_per_worker is not None, "it is chosen when the env has been probed"
        return self.num_envs_per_worker


@dataclass(frozen=True)
class ClusterFlags:
    """Several machines: rollout and policy workers on all of them, the learner on this one."""

    num_nodes: int = flag(
        1, "machines that sample, this one included; the others join and leave through Ray", between=(1, 1000)
    )
    ray_address: str | None = _node_flag(
        None,
        "address of a Ray cluster, auto, or local; RAY_ADDRESS if left out, else Ray on this machine alone",
    )
    node_workers: int = _node_flag(
        0, "rollout workers on each other machine; 0: one per usable core", between=(0, 10_000)
    )
    node_envs_per_worker: int = _node_flag(
        0, "envs of each rollout worker of other machines; 0: --num_envs_per_worker", between=(0, 100_000)
    )
    weights_sync: str = _node_flag(
        EVERY,
        "when other machines fetch new weights; every: whenever there are any; lag, divergence: when theirs "
        "are more than --weights_sync_threshold SGD steps old, or diverge by more from the learner's",
        choices=(EVERY, LAG, DIVERGENCE),
    )
    weights_sync_threshold: float | None = flag(
        None,
        "--weights_sync=lag: SGD steps (20 if left out); divergence: mean KL in nats (0.003)",
        above=0,
        only_with={"num_nodes": Not((1,)), "weights_sync": (LAG, DIVERGENCE)},
    )

    @property
    def threshold(self) -> float | None:
        """The threshold in effect for --weights_sync; None for --weights_sync=every."""
        if self.weights_sync == EVERY:
            return None
        return self.weights_sync_threshold or DEFAULT_THRESHOLDS[self.weights_sync]
