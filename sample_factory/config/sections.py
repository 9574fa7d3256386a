"""The sections of an experiment's configuration: names and defaults of v1, v2's names as aliases."""

import dataclasses
import os
from dataclasses import dataclass

from sample_factory.config.evaluation_flags import EvaluationFlags
from sample_factory.config.flags import NEVER, flag
from sample_factory.config.pbt_flags import PbtFlags
from sample_factory.config.selfplay_flags import SelfplayFlags

# Bounds that only a slip of the pen exceeds, but no machine survives.
MAX_SECONDS = 1_000_000
MAX_WIDTH = 100_000
# Added to --default_niceness, which is the learner's: it goes first, for when it is the bottleneck the others
# have to wait for it anyway. Measured on 2 cores, alternating in one run: doom_benchmark in fp32, where it
# is, 2,420 FPS without, 2,750 with 5 and 10, 2,920 with 5 and 19; with a small network, where it is not,
# 4,680, 4,960 and 5,070. With 19, any other program beside them would leave the simulators next to nothing.
POLICY_WORKER_NICENESS, ROLLOUT_WORKER_NICENESS = 5, 10


@dataclass(frozen=True)
class RunFlags:
    """Identity, directories, device."""

    env: str | None = flag(
        None, "full name of the environment; its prefix selects the family, e.g. doom_battle"
    )
    algo: str = flag(
        "APPO",
        "the algorithm: APPO, which is asynchronous PPO, or one that was registered with register_algorithm",
    )
    experiment: str = flag(
        "default_experiment", "name of the run and of its folder; an existing one is resumed"
    )
    experiments_root: str | None = flag(None, "sub-folder of train_dir that groups runs")
    train_dir: str = flag(os.path.join(os.getcwd(), "train_dir"), "folder that holds all experiment folders")
    restart_behavior: str = flag(
        "resume",
        "when the experiment folder exists: resume it, restart (it is moved aside), or overwrite it",
        choices=("resume", "restart", "overwrite"),
    )
    cfg: str | None = flag(None, "JSON file of flags; flags typed on the command line win over it")
    device: str = flag(
        "auto",
        "where learner and inference run: gpu, cpu, or auto (gpu where there is one)",
        choices=("auto", "gpu", "cpu"),
    )
    precision: str = flag(
        "auto",
        "arithmetic of the network: fp32, bf16 (autocast; heads, losses and optimizer stay fp32), or auto "
        "(bf16 where the hardware has it)",
        choices=("auto", "fp32", "bf16"),
    )
    cuda_graphs: bool = flag(
        True,
        "on a GPU, policy workers run their network as CUDA graphs; False suits a model of your own whose "
        "Python code does something else from call to call",
    )
    compile: bool = flag(
        False,
        "the learner compiles its encoders with torch.compile, at its first batch; on a CPU it "
        "needs a C++ compiler and was slower than without",
    )
    seed: int | None = flag(
        None,
        "seeds the model, the actions and the environments; None draws one",
        at_least=0,
        at_most=2**32 - 1,
    )


@dataclass(frozen=True)
class SamplingFlags:
    """Processes, environments, asynchrony."""

    num_policies: int = flag(
        1, "policies trained side by side, each with its own learner", at_least=1, at_most=1000
    )
    pbt_mix_policies_in_one_env: bool = flag(True, "agents of one env may be played by different policies")
    async_rl: bool = flag(True, "collect experience while learning; False strictly alternates (policy lag 0)")
    serial_mode: bool = flag(
        False, "run everything in one process, deterministically; for debugging and tests"
    )
    queue: str = flag(
        "sockets",
        "how messages travel between processes: sockets, or faster_fifo (its own package), which can hang "
        "when a process is killed while it uses a queue; no effect with --serial_mode=True",
        choices=("sockets", "faster_fifo"),
    )
    num_workers: int = flag(os.cpu_count() or 1, "rollout processes", at_least=1, at_most=10_000)
    num_envs_per_worker: int = flag(2, "environments in each rollout process", at_least=1, at_most=100_000)
    worker_num_splits: int = flag(
        2,
        "groups that a worker's envs are split into: one is stepped while the others await actions",
        at_least=1,
    )
    policy_workers_per_policy: int = flag(1, "inference processes of each policy", at_least=1, at_most=1000)
    inline_samplers: int = flag(
        0,
        "N > 0: N processes, each of which holds its share of the rollout workers and answers them itself, "
        "instead of a process per worker; far faster for envs that step in microseconds",
        at_least=0,
        at_most=10_000,
    )
    max_policy_lag: int = flag(
        10000,
        "samples this many SGD steps old, or older, are not trained on",
        at_least=1,
        at_most=1_000_000,
    )
    num_batches_to_accumulate: int = flag(
        2,
        "training batches that may wait for the learner before sampling has to pause",
        at_least=1,
        at_most=10_000,
    )
    traj_buffers_excess_ratio: float = flag(
        1.3,
        "trajectory buffers are allotted this many times over the number that the run needs",
        at_least=1,
        at_most=1000,
    )
    decorrelate_experience_max_seconds: float = flag(
        0.0,
        "after its first rollout, worker i of n sleeps i/n of this, so that rollouts do not end all at once",
        at_least=0,
        at_most=MAX_SECONDS,
    )
    decorrelate_envs_on_one_worker: bool = flag(
        True, "begin with random actions, a different number in each env, so that episodes are out of step"
    )
    reset_timeout_seconds: float = flag(
        120.0, "a worker whose envs have not started after this time fails", above=0, at_most=MAX_SECONDS
    )
    actor_worker_gpus: tuple[int, ...] = flag(
        (), "GPUs that rollout workers may use, for envs that need one", at_least=0, at_most=1000
    )
    set_workers_cpu_affinity: bool = flag(True, "pin each rollout worker and its simulators to a core")
    force_envs_single_thread: bool = flag(True, "limit maths libraries in rollout workers to one thread")
    default_niceness: int = flag(
        0,
        f"nice value of learners; policy workers add {POLICY_WORKER_NICENESS}, "
        f"rollout workers and simulators {ROLLOUT_WORKER_NICENESS}",
        at_least=-20,
        at_most=19,
    )
    learner_main_loop_num_cores: int = flag(
        0,
        "CPU threads of the learner's maths; 0 chooses by the number of cores and the device",
        at_least=0,
        at_most=1024,
    )
    benchmark: bool = flag(False, "throughput mode: no start-up decorrelation; ends after 2e6 env frames")
    sampler_only: bool = flag(False, "sample with inference but do not learn, to measure the sampler")


@dataclass(frozen=True)
class LearningFlags:
    """Batches, objective, optimizer."""

    rollout: int = flag(32, "steps in one trajectory", at_least=1, at_most=1_000_000)
    recurrence: int = flag(
        -1,
        "steps of backpropagation through time with an RNN, a divisor of rollout; -1: the whole rollout",
        at_least=-1,
    )
    batch_size: int = flag(1024, "samples in one SGD step", at_least=1, at_most=100_000_000)
    num_batches_per_iteration: int = flag(
        1,
        "minibatches collected before an iteration of training",
        aliases=("num_batches_per_epoch",),
        at_least=1,
        at_most=100_000,
    )
    ppo_epochs: int = flag(
        1, "passes over the samples of an iteration", aliases=("num_epochs",), at_least=1, at_most=10_000
    )
    shuffle_minibatches: bool = flag(True, "draw new minibatches in each epoch, where there are several")

    gamma: float = flag(0.99, "discount factor", at_least=0, at_most=1)
    reward_scale: float = flag(1.0, "rewards are multiplied by this")
    reward_clip: float = flag(1000.0, "and then clipped to plus or minus this", above=0)
    gae_lambda: float = flag(0.95, "lambda of GAE; used without V-trace", at_least=0, at_most=1)
    with_vtrace: bool = flag(True, "V-trace targets (off-policy corrected) rather than GAE")
    vtrace_rho: float = flag(1.0, "truncation of the importance ratio in V-trace", at_least=0)
    vtrace_c: float = flag(1.0, "truncation of the trace coefficient in V-trace", at_least=0)
    value_bootstrap: bool = flag(
        True, "a truncated episode bootstraps from the value of its last state; False treats it as terminal"
    )
    normalize_returns: bool = flag(
        True, "the critic predicts returns normalised by running mean and deviation"
    )
    ppo_clip_ratio: float = flag(0.1, "e of the ratio clip [1/(1+e), 1+e]", above=0)
    ppo_clip_value: float = flag(
        1.0, "largest change of a value prediction in the clipped value loss", above=0
    )
    exploration_loss: str = flag(
        "entropy",
        "entropy bonus, or symmetric KL to the uniform distribution",
        choices=("entropy", "symmetric_kl"),
    )
    exploration_loss_coeff: float = flag(0.003, "weight of the exploration loss; 0 turns it off", at_least=0)
    value_loss_coeff: float = flag(0.5, "weight of the value loss", at_least=0)
    kl_loss_coeff: float = flag(0.0, "weight of KL(new policy, behaviour policy); 0 turns it off", at_least=0)

    use_cpc: bool = flag(
        False, "auxiliary task CPC|A: from state and actions, tell the observation k steps ahead from others"
    )
    cpc_forward_steps: int = flag(8, "largest k of that task, at most rollout", at_least=1)
    cpc_time_subsample: int = flag(
        6, "steps of each trajectory that it starts from", at_least=1, at_most=1_000_000
    )
    cpc_forward_subsample: int = flag(
        2, "values of k that it takes for each of them", at_least=1, at_most=1_000_000
    )

    optimizer: str = flag("adam", "adam or lamb", choices=("adam", "lamb"))
    learning_rate: float = flag(1e-4, "initial step size", above=0, at_most=1)
    lr_schedule: str = flag(
        "constant",
        "how the learning rate changes",
        choices=("constant", "kl_adaptive_minibatch", "kl_adaptive_epoch", "linear_decay"),
    )
    lr_schedule_kl_threshold: float = flag(0.008, "KL that the adaptive schedules aim at", above=0)
    lr_adaptive_min: float = flag(
        1e-6, "smallest learning rate of the adaptive schedules", above=0, at_most=1
    )
    lr_adaptive_max: float = flag(1e-2, "largest learning rate of the adaptive schedules", above=0, at_most=1)
    adam_eps: float = flag(1e-6, "epsilon of Adam", above=0, at_most=1)
    adam_beta1: float = flag(0.9, "beta1 of Adam", at_least=0, at_most=0.999999)
    adam_beta2: float = flag(0.999, "beta2 of Adam", at_least=0, at_most=0.999999)
    max_grad_norm: float = flag(4.0, "gradients are clipped to this norm; 0 turns it off", at_least=0)


@dataclass(frozen=True)
class ModelFlags:
    """Observations and network."""

    obs_subtract_mean: float = flag(0.0, "subtracted from image observations")
    obs_scale: float = flag(1.0, "image observations are divided by this, after the subtraction", above=0)
    normalize_input: bool = flag(True, "normalise observations by running mean and deviation")
    normalize_input_keys: tuple[str, ...] = flag((), "the observations to normalise; empty: all of them")

    encoder_type: str = flag("conv", "encoder of image observations", choices=("conv", "resnet", "mlp"))
    encoder_subtype: str = flag(
        "convnet_simple",
        "architecture of that encoder",
        aliases=("encoder_conv_architecture",),
        choices=("convnet_simple", "convnet_impala", "convnet_atari", "resnet_impala", "mlp_mujoco"),
    )
    encoder_custom: str | None = flag(None, "name of an encoder that was registered with register_encoder")
    encoder_extra_fc_layers: int = flag(
        1, "fully connected layers of hidden_size after the convolutions", at_least=0, at_most=100
    )
    encoder_conv_mlp_layers: tuple[int, ...] = flag(
        (),
        "widths of the layers after the convolutions; empty: encoder_extra_fc_layers of hidden_size",
        above=0,
        at_most=MAX_WIDTH,
    )
    encoder_mlp_layers: tuple[int, ...] = flag(
        (512, 512), "widths of the layers for vector observations", above=0, at_most=MAX_WIDTH
    )
    decoder_mlp_layers: tuple[int, ...] = flag(
        (), "widths of the layers between core and heads", above=0, at_most=MAX_WIDTH
    )
    hidden_size: int = flag(
        512,
        "width of fully connected layers and of the recurrent state",
        aliases=("rnn_size",),
        at_least=1,
        at_most=MAX_WIDTH,
    )
    use_rnn: bool = flag(True, "recurrent core")
    rnn_type: str = flag("gru", "cell of the recurrent core", choices=("gru", "lstm"))
    rnn_num_layers: int = flag(1, "stacked recurrent layers", at_least=1, at_most=100)
    nonlinearity: str = flag("elu", "activation function", choices=("elu", "relu", "tanh"))
    policy_initialization: str = flag(
        "orthogonal",
        "how linear and convolution weights start",
        choices=("orthogonal", "xavier_uniform", "torch_default"),
    )
    policy_init_gain: float = flag(1.0, "gain of that initialisation", above=0, at_most=1000)
    actor_critic_share_weights: bool = flag(True, "one encoder and core for both heads, or one each")
    adaptive_stddev: bool = flag(
        True, "continuous actions: the deviation depends on the state, or is a learned vector"
    )
    initial_stddev: float = flag(1.0, "start value of that learned vector", above=0, at_most=1000)
    continuous_tanh_scale: float = flag(
        0.0, "squash means to plus or minus this by tanh; 0 turns it off", at_least=0
    )


@dataclass(frozen=True)
class EnvFlags:
    """Settings that many env families read."""

    env_frameskip: int | None = flag(
        None, "simulator frames per action; None: the family's default", at_least=1, at_most=10_000
    )


@dataclass(frozen=True)
class MonitoringFlags:
    """Stopping, checkpoints, reports."""

    train_for_env_steps: int = flag(NEVER, "stop after this many env frames (frameskip counted)", at_least=1)
    train_for_seconds: int = flag(NEVER, "stop after this many seconds of training in this run", at_least=1)
    save_every_sec: int = flag(120, "seconds between checkpoints", at_least=1)
    keep_checkpoints: int = flag(3, "newest checkpoints that are kept", at_least=1)
    save_milestones_sec: int = flag(
        -1, "seconds between checkpoints that are never deleted; -1: none", at_least=-1
    )
    save_best_every_sec: int = flag(5, "seconds between tests for a new best policy", at_least=1)
    save_best_metric: str = flag("reward", "statistic that says which policy is best")
    save_best_after: int = flag(100_000, "env frames before the best policy is tracked", at_least=0)
    load_checkpoint_kind: str = flag("latest", "which checkpoint to load", choices=("latest", "best"))
    stats_avg: int = flag(100, "episodes in the running averages", at_least=1, at_most=1_000_000)
    status_interval: float = flag(
        5.0, "seconds between the lines that tell progress and speed", at_least=0.1, at_most=86_400
    )
    experiment_summaries_interval: int = flag(20, "seconds between summaries of the experiment", at_least=1)
    flush_summaries_interval: int = flag(30, "seconds between flushes of TensorBoard files", at_least=1)
    summaries_use_frameskip: bool = flag(True, "report env frames (frameskip counted) rather than env steps")
    heartbeat_reporting_interval: int = flag(
        180,
        "a component that makes no progress for this many seconds is stuck: its stacks are printed; a "
        "rollout worker is replaced, anything else ends the run",
        at_least=3,
    )
    log_to_file: bool = flag(True, "write sf_log.txt in the experiment folder")
    figures_file: str | None = flag(
        None,
        "file for the figures of the run, for programs: JSON lines, one object every status_interval; "
        "sample_factory/monitoring/figures.py describes the fields",
    )


TRAINING_SECTIONS = {
    "run": RunFlags,
    "sampling": SamplingFlags,
    "learning": LearningFlags,
    "model": ModelFlags,
    "env": EnvFlags,
    "monitoring": MonitoringFlags,
    "population": PbtFlags,
    "selfplay": SelfplayFlags,
    "evaluation": EvaluationFlags,
}


def flat_values(section) -> dict:
    """The fields of one section as a dict, without copying the values."""
    return {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
