"""The section of sampling: processes, environments, asynchrony."""

from dataclasses import dataclass

from sample_factory.config.flags import flag
from sample_factory.runtime.cpu import num_usable_cores

# A bound that catches typing errors.
MAX_SECONDS = 1_000_000
# Added to --default_niceness, the nice value of learners. Learners get priority: when they are the
# bottleneck, every other process waits for them anyway. Measured on 2 cores, alternating in one run:
# doom_benchmark in fp32, where the learner is the bottleneck, 2,420 FPS without, 2,750 with 5 and 10, 2,920
# with 5 and 19; with a small network, where it is not, 4,680, 4,960 and 5,070. With 19, any other program on
# the machine would leave the simulators almost no time.
POLICY_WORKER_NICENESS = 5
ROLLOUT_WORKER_NICENESS = 10


@dataclass(frozen=True)
class SamplingFlags:
    """Processes, environments, asynchrony."""

    num_policies: int = flag(
        1,
        "number of policies to train at the same time, each with a learner of its own",
        at_least=1,
        at_most=1000,
    )
    pbt_mix_policies_in_one_env: bool = flag(
        True, "different policies may play in one multi-agent env; False: one policy plays all its agents"
    )
    async_rl: bool = flag(
        True,
        "collect experience while the learner trains; False: strictly alternate, so that the policy "
        "that acts is never out of date",
    )
    serial_mode: bool = flag(False, "run everything in one process, reproducible with --seed; for debugging")
    queue: str = flag(
        "sockets",
        "how processes exchange messages; faster_fifo needs the package of that name, and can hang "
        "when a process is killed while it uses a queue",
        choices=("sockets", "faster_fifo"),
    )
    num_workers: int = flag(
        num_usable_cores(),
        "number of processes that step environments; by default one per CPU core that may be used, by the "
        "affinity of this process and the CPU limit of its container (cgroup v2)",
        at_least=1,
        at_most=10_000,
    )
    num_envs_per_worker: int | None = flag(
        None,
        "number of environments in each worker process; chosen by the environment and the machine if left "
        "out, e.g. 16",
        at_least=1,
        at_most=100_000,
    )
    worker_num_splits: int = flag(
        2,
        "number of groups into which the environments of a worker process are divided: one group is "
        "stepped while the others wait for their actions",
        at_least=1,
    )
    policy_workers_per_policy: int = flag(
        1, "number of processes that compute the actions of each policy", at_least=1, at_most=1000
    )
    inline_samplers: int | None = flag(
        None,
        "number of processes that step the environments and also compute the actions; chosen by the machine "
        "if left out; 0: separate processes",
        at_least=0,
        at_most=10_000,
    )
    max_policy_lag: int = flag(
        10000,
        "experience that is this many SGD steps old, or older, is not trained on",
        at_least=1,
        at_most=1_000_000,
    )
    forced_policy_lag: int = flag(
        0,
        "for studies of policy lag: actions are chosen with weights that are at least this many SGD steps "
        "old; the learner holds a copy of the weights of each iteration in between in memory",
        at_least=0,
        at_most=1_000_000,
    )
    num_batches_to_accumulate: int = flag(
        2,
        "number of batches that may wait for the learner before sampling pauses",
        at_least=1,
        at_most=10_000,
    )
    traj_buffers_excess_ratio: float = flag(
        1.3,
        "number of trajectory buffers, as a multiple of the number that the run needs",
        at_least=1,
        at_most=1000,
    )
    decorrelate_experience_max_seconds: float = flag(
        0.0,
        "pause of the last worker process after its first trajectories, and proportionally shorter "
        "ones of the others, so that trajectories do not all end at once",
        at_least=0,
        at_most=MAX_SECONDS,
    )
    decorrelate_envs_on_one_worker: bool = flag(
        True,
        "begin each environment with a different number of random actions, so that episodes do not "
        "all end at once",
    )
    reset_timeout_seconds: float = flag(
        120.0,
        "a worker process whose environments have not started after this many seconds fails",
        above=0,
        at_most=MAX_SECONDS,
    )
    actor_worker_gpus: tuple[int, ...] = flag(
        (),
        "indices of the GPUs that environments may use, for simulators that need one",
        at_least=0,
        at_most=1000,
    )
    set_workers_cpu_affinity: bool = flag(
        True, "pin each worker process and its simulators to a core; not with --inline_samplers"
    )
    force_envs_single_thread: bool = flag(True, "limit the maths libraries in worker processes to one thread")
    default_niceness: int = flag(
        0,
        f"nice value of learners (higher: less priority); policy workers and inline samplers add "
        f"{POLICY_WORKER_NICENESS}, rollout workers and simulators add {ROLLOUT_WORKER_NICENESS}",
        at_least=-20,
        at_most=19,
    )
    learners_per_policy: int = flag(
        1,
        "number of processes that train each policy together, each on its share of every batch and, if there "
        "are several, on a GPU of its own",
        at_least=1,
        at_most=64,
    )
    learner_main_loop_num_cores: int = flag(
        0,
        "number of CPU threads that a learner computes with; 0: chosen by the number of cores",
        at_least=0,
        at_most=1024,
    )
    benchmark: bool = flag(
        False, "measure the speed: no decorrelation at the start, and an end after 2e6 env frames"
    )
    sampler_only: bool = flag(False, "collect experience but do not train, to measure the speed of sampling")

    @property
    def envs_per_worker(self) -> int:
        """--num_envs_per_worker, after it has been chosen; see experiment.arrangement."""
        assert self.num_envs_per_worker is not None, "it is chosen when the env has been probed"
        return self.num_envs_per_worker
