"""The sections of the configuration. Names and defaults are v1's; v2's names are accepted as aliases."""

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from sample_factory.config.flags import flag
from sample_factory.config.monitoring_flags import EvaluationFlags, MonitoringFlags
from sample_factory.config.population_flags import PbtFlags, SelfplayFlags

# Bounds that catch typing errors before they use up the memory or the time of the machine.
MAX_SECONDS = 1_000_000
MAX_WIDTH = 100_000
# Added to --default_niceness, the nice value of learners. Learners get priority: when they are the
# bottleneck, every other process waits for them anyway. Measured on 2 cores, alternating in one run:
# doom_benchmark in fp32, where the learner is the bottleneck, 2,420 FPS without, 2,750 with 5 and 10, 2,920
# with 5 and 19; with a small network, where it is not, 4,680, 4,960 and 5,070. With 19, any other program on
# the machine would leave the simulators almost no time.
POLICY_WORKER_NICENESS = 5
ROLLOUT_WORKER_NICENESS = 10


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
    experiments_root: str | None = flag(None, "sub-folder of train_dir for a group of experiments")
    train_dir: str = flag(os.path.join(os.getcwd(), "train_dir"), "folder that holds all experiment folders")
    restart_behavior: str = flag(
        "resume",
        "if the experiment folder exists: resume the experiment, restart (the folder is renamed), or "
        "overwrite (the folder is deleted)",
        choices=("resume", "restart", "overwrite"),
    )
    cfg: str | None = flag(None, "JSON file of flags; flags on the command line override it")
    device: str = flag(
        "auto",
        "where learner and inference run: gpu, cpu, or auto (gpu if there is one)",
        choices=("auto", "gpu", "cpu"),
    )
    precision: str = flag(
        "auto",
        "arithmetic of the network: fp32, bf16 (autocast; heads, losses and optimizer stay fp32), or auto "
        "(bf16 if the hardware supports it)",
        choices=("auto", "fp32", "bf16"),
    )
    cuda_graphs: bool = flag(
        True,
        "on a GPU, policy workers run their network as CUDA graphs; use False for a custom model whose "
        "Python code does not launch the same operations in every call",
    )
    compile: bool = flag(
        False,
        "the learner compiles its encoders with torch.compile at its first batch; on a CPU this needs a C++ "
        "compiler, and training was slower than without",
    )
    seed: int | None = flag(
        None,
        "seed of the model, the actions and the environments; None: a random seed",
        at_least=0,
        at_most=2**32 - 1,
    )


@dataclass(frozen=True)
class SamplingFlags:
    """Processes, environments, asynchrony."""

    num_policies: int = flag(
        1,
        "number of policies that are trained at the same time, each with its own learner",
        at_least=1,
        at_most=1000,
    )
    pbt_mix_policies_in_one_env: bool = flag(True, "agents of one env may be played by different policies")
    async_rl: bool = flag(True, "collect experience while learning; False alternates strictly (policy lag 0)")
    serial_mode: bool = flag(
        False, "run everything in one process, deterministically; for debugging and tests"
    )
    queue: str = flag(
        "sockets",
        "how messages travel between processes: sockets, or faster_fifo (its own package), which can hang "
        "when a process is killed while it uses a queue; no effect with --serial_mode=True",
        choices=("sockets", "faster_fifo"),
    )
    num_workers: int = flag(
        os.cpu_count() or 1,
        "number of rollout workers (processes that step environments)",
        at_least=1,
        at_most=10_000,
    )
    num_envs_per_worker: int = flag(
        2, "number of environments in each rollout worker", at_least=1, at_most=100_000
    )
    worker_num_splits: int = flag(
        2,
        "number of groups into which the envs of a worker are split: one group is stepped while the others "
        "wait for actions",
        at_least=1,
    )
    policy_workers_per_policy: int = flag(
        1, "number of inference processes for each policy", at_least=1, at_most=1000
    )
    inline_samplers: int = flag(
        0,
        "N > 0: instead of a process for each worker, N processes that each step a share of the envs and "
        "compute the actions too; much faster for envs that step in microseconds",
        at_least=0,
        at_most=10_000,
    )
    max_policy_lag: int = flag(
        10000,
        "samples that are this many SGD steps old, or older, are not trained on",
        at_least=1,
        at_most=1_000_000,
    )
    num_batches_to_accumulate: int = flag(
        2,
        "number of training batches that may wait for the learner before sampling pauses",
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
        "after its first rollout, worker i of n sleeps for i/n of this time, so that rollouts do not all end "
        "at once",
        at_least=0,
        at_most=MAX_SECONDS,
    )
    decorrelate_envs_on_one_worker: bool = flag(
        True,
        "start each env with a different number of random actions, so that episodes do not all end at once",
    )
    reset_timeout_seconds: float = flag(
        120.0,
        "a worker whose envs have not started after this many seconds fails",
        above=0,
        at_most=MAX_SECONDS,
    )
    actor_worker_gpus: tuple[int, ...] = flag(
        (),
        "indices of the GPUs that rollout workers may use, for envs that need one",
        at_least=0,
        at_most=1000,
    )
    set_workers_cpu_affinity: bool = flag(True, "pin each rollout worker and its simulators to a core")
    force_envs_single_thread: bool = flag(True, "limit the maths libraries in rollout workers to one thread")
    default_niceness: int = flag(
        0,
        f"nice value of learners; policy workers add {POLICY_WORKER_NICENESS}, "
        f"rollout workers and simulators {ROLLOUT_WORKER_NICENESS}",
        at_least=-20,
        at_most=19,
    )
    learner_main_loop_num_cores: int = flag(
        0,
        "number of CPU threads that a learner computes with; 0: chosen by the number of cores",
        at_least=0,
        at_most=1024,
    )
    benchmark: bool = flag(
        False, "measure throughput: no decorrelation at the start; ends after 2e6 env frames"
    )
    sampler_only: bool = flag(False, "sample with inference, but do not learn; to measure sampling")


@dataclass(frozen=True)
class LearningFlags:
    """Batches, losses, optimizer."""

    rollout: int = flag(32, "number of steps in a trajectory", at_least=1, at_most=1_000_000)
    recurrence: int = flag(
        -1,
        "steps of backpropagation through time with an RNN, a divisor of rollout; -1: the whole rollout",
        at_least=-1,
    )
    batch_size: int = flag(1024, "number of samples in one SGD step", at_least=1, at_most=100_000_000)
    num_batches_per_iteration: int = flag(
        1,
        "number of minibatches that are collected for one iteration of training",
        aliases=("num_batches_per_epoch",),
        at_least=1,
        at_most=100_000,
    )
    ppo_epochs: int = flag(
        1,
        "number of passes over the samples of an iteration",
        aliases=("num_epochs",),
        at_least=1,
        at_most=10_000,
    )
    shuffle_minibatches: bool = flag(True, "draw new minibatches in each epoch, if an iteration has several")

    gamma: float = flag(0.99, "discount factor", at_least=0, at_most=1)
    reward_scale: float = flag(1.0, "factor by which rewards are multiplied")
    reward_clip: float = flag(1000.0, "rewards are then clipped to plus or minus this value", above=0)
    gae_lambda: float = flag(
        0.95, "lambda of generalised advantage estimation (GAE); used without V-trace", at_least=0, at_most=1
    )
    with_vtrace: bool = flag(True, "V-trace targets (with off-policy correction) instead of GAE")
    vtrace_rho: float = flag(1.0, "upper limit of the importance ratio (rho) in V-trace", at_least=0)
    vtrace_c: float = flag(1.0, "upper limit of the trace coefficient (c) in V-trace", at_least=0)
    value_bootstrap: bool = flag(
        True, "a truncated episode bootstraps from the value of its last state; False treats it as terminal"
    )
    normalize_returns: bool = flag(
        True, "the critic predicts returns normalised by their running mean and standard deviation"
    )
    ppo_clip_ratio: float = flag(
        0.1, "the ratio of probabilities is clipped to [1/(1+e), 1+e], where e is this value", above=0
    )
    ppo_clip_value: float = flag(
        1.0, "largest change of a value prediction in the clipped value loss", above=0
    )
    exploration_loss: str = flag(
        "entropy",
        "what makes the policy explore: an entropy bonus, or the symmetric KL divergence to the uniform "
        "distribution as a loss",
        choices=("entropy", "symmetric_kl"),
    )
    exploration_loss_coeff: float = flag(0.003, "weight of the exploration loss; 0 turns it off", at_least=0)
    value_loss_coeff: float = flag(0.5, "weight of the value loss", at_least=0)
    kl_loss_coeff: float = flag(
        0.0,
        "weight of the KL divergence between the new policy and the one that acted; 0 turns it off",
        at_least=0,
    )

    use_cpc: bool = flag(
        False,
        "auxiliary task CPC|A: recognise the observation k steps ahead among others, from state and actions",
    )
    cpc_forward_steps: int = flag(8, "CPC|A: largest k, at most rollout", at_least=1)
    cpc_time_subsample: int = flag(
        6, "CPC|A: number of steps of each trajectory to predict from", at_least=1, at_most=1_000_000
    )
    cpc_forward_subsample: int = flag(
        2, "CPC|A: number of values of k for each of these steps", at_least=1, at_most=1_000_000
    )

    optimizer: str = flag("adam", "the optimizer", choices=("adam", "lamb"))
    learning_rate: float = flag(1e-4, "initial step size", above=0, at_most=1)
    lr_schedule: str = flag(
        "constant",
        "how the learning rate changes",
        choices=("constant", "kl_adaptive_minibatch", "kl_adaptive_epoch", "linear_decay"),
    )
    lr_schedule_kl_threshold: float = flag(0.008, "KL divergence that the adaptive schedules aim at", above=0)
    lr_adaptive_min: float = flag(
        1e-6, "smallest learning rate of the adaptive schedules", above=0, at_most=1
    )
    lr_adaptive_max: float = flag(1e-2, "largest learning rate of the adaptive schedules", above=0, at_most=1)
    adam_eps: float = flag(1e-6, "epsilon of Adam", above=0, at_most=1)
    adam_beta1: float = flag(0.9, "beta1 of Adam", at_least=0, at_most=0.999999)
    adam_beta2: float = flag(0.999, "beta2 of Adam", at_least=0, at_most=0.999999)
    max_grad_norm: float = flag(
        4.0, "the norm of the gradients is clipped to this; 0 turns it off", at_least=0
    )


@dataclass(frozen=True)
class ModelFlags:
    """Observations and network."""

    obs_subtract_mean: float = flag(0.0, "subtracted from image observations")
    obs_scale: float = flag(
        1.0, "image observations are divided by this value, after the subtraction", above=0
    )
    normalize_input: bool = flag(True, "normalise observations by their running mean and standard deviation")
    normalize_input_keys: tuple[str, ...] = flag(
        (), "names of the observations to normalise; empty: all of them"
    )

    encoder_type: str = flag("conv", "encoder of image observations", choices=("conv", "resnet", "mlp"))
    encoder_subtype: str = flag(
        "convnet_simple",
        "architecture of that encoder; images too small for it get convnet_small or an MLP",
        aliases=("encoder_conv_architecture",),
        choices=(
            "convnet_simple",
            "convnet_impala",
            "convnet_atari",
            "convnet_small",
            "resnet_impala",
            "mlp_mujoco",
        ),
    )
    encoder_custom: str | None = flag(
        None, "name of an encoder that was registered with register_encoder, or module:attribute"
    )
    encoder_extra_fc_layers: int = flag(
        1, "number of fully connected layers of hidden_size after the convolutions", at_least=0, at_most=100
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
    use_rnn: bool = flag(True, "use a recurrent core")
    rnn_type: str = flag("gru", "cell of the recurrent core", choices=("gru", "lstm"))
    rnn_num_layers: int = flag(1, "number of recurrent layers", at_least=1, at_most=100)
    nonlinearity: str = flag("elu", "activation function", choices=("elu", "relu", "tanh"))
    policy_initialization: str = flag(
        "orthogonal",
        "initialisation of linear and convolutional layers",
        choices=("orthogonal", "xavier_uniform", "torch_default"),
    )
    policy_init_gain: float = flag(1.0, "gain of that initialisation", above=0, at_most=1000)
    actor_critic_share_weights: bool = flag(
        True, "actor and critic share one encoder and core; False: each has its own"
    )
    adaptive_stddev: bool = flag(
        True,
        "continuous actions: the standard deviation is an output of the network; False: a learned vector",
    )
    initial_stddev: float = flag(
        1.0, "continuous actions: initial value of the learned standard deviation", above=0, at_most=1000
    )
    continuous_tanh_scale: float = flag(
        0.0,
        "continuous actions: means are squashed by tanh to plus or minus this value; 0 turns it off",
        at_least=0,
    )


@dataclass(frozen=True)
class EnvFlags:
    """Settings that many env families read."""

    env_frameskip: int | None = flag(
        None, "simulator frames per action; None: the family's default", at_least=1, at_most=10_000
    )


TRAINING_SECTIONS: dict[str, type] = {
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


def flat_values(section: Any) -> dict[str, Any]:
    """Returns the fields of one section as flag -> value. Values are not copied."""
    return {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
