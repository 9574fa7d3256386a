"""All sections of the configuration; the longer ones are in files of their own (`*_flags.py`).

Names and defaults are those of version 1; the names of version 2 are accepted as aliases.
"""

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.config.cluster_flags import ClusterFlags
from sample_factory.config.flags import flag
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.monitoring_flags import EvaluationFlags, MonitoringFlags
from sample_factory.config.population_flags import PbtFlags, SelfplayFlags
from sample_factory.config.sampling_flags import SamplingFlags

# The flags that name the folder of a run; never taken from the cfg.json in it, which may have been moved.
OWN_FOLDER = ("experiment", "experiments_root", "train_dir")
# A bound that catches typing errors before they use up the memory of the machine.
MAX_WIDTH = 100_000


@dataclass(frozen=True)
class RunFlags:
    """Identity, directories, device."""

    env: str | None = flag(
        None,
        "full name of the environment, e.g. doom_battle or gym_CartPole-v1",
        metavar="NAME",
        names_code=True,
    )
    algo: str = flag(
        "APPO",
        f"training algorithm: {', '.join(BUILT_IN)} (APPO is asynchronous PPO), one that was registered with "
        "register_algorithm, or module:attribute",
        metavar="NAME",
        names_code=True,
    )
    observers: tuple[str, ...] = flag(
        (),
        "observers that follow the run: names given to register_observer, or module:attribute; none: no "
        "observer; all registered ones if left out",
        metavar="NAME",
        names_code=True,
    )
    experiment: str = flag(
        "default_experiment",
        "name of the run and of its folder in --train_dir; training resumes a run that exists",
        metavar="NAME",
    )
    experiments_root: str | None = flag(
        None, "folder within --train_dir for a group of runs", metavar="FOLDER"
    )
    train_dir: str = flag(
        os.path.join(os.getcwd(), "train_dir"), "folder that holds the folders of all runs", metavar="FOLDER"
    )
    restart_behavior: str = flag(
        "resume",
        "what to do with a run that exists: resume it, restart (its folder is renamed), or overwrite "
        "(its folder is deleted)",
        choices=("resume", "restart", "overwrite"),
    )
    transfer_from: str | None = flag(
        None,
        "a new run starts with the weights and normalisers of this one, with a new optimizer and counters "
        "at 0: the name of a run in --train_dir, the folder of a run, or a checkpoint; policies without a "
        "counterpart there get those of its policy 0",
        metavar="RUN",
    )
    cfg: str | None = flag(
        None,
        "JSON file of flags, e.g. configs/doom_basic.json; flags on the command line override it",
        metavar="FILE",
    )
    trust_code: bool = flag(
        False,
        "use all that the cfg.json of a run names, also code, files elsewhere and services, although it is "
        "not signed by this account",
    )
    device: str = flag(
        "auto",
        "device of the network; auto: the GPU if there is one",
        choices=("auto", "gpu", "cpu"),
    )
    precision: str = flag(
        "auto",
        "number format of the network; bf16 keeps heads, losses and optimizer in fp32; auto: bf16 "
        "where the hardware supports it",
        choices=("auto", "fp32", "bf16"),
    )
    cuda_graphs: bool = flag(
        True,
        "policy workers on a GPU run the network as a CUDA graph; use False for a custom model whose "
        "Python code does not launch the same operations in every call",
    )
    compile: bool = flag(
        False,
        "compile the encoders of the learner with torch.compile; on a CPU this needs a C++ compiler, "
        "and training was slower than without",
    )
    seed: int | None = flag(
        None,
        "seed of the network, the actions and the environments; a random one if left out",
        at_least=0,
        at_most=2**32 - 1,
    )


@dataclass(frozen=True)
class ModelFlags:
    """Observations and network."""

    obs_subtract_mean: float = flag(0.0, "number that is subtracted from image observations")
    obs_scale: float = flag(
        1.0, "number by which image observations are divided, after --obs_subtract_mean", above=0
    )
    normalize_input: bool = flag(True, "normalise observations by their running mean and standard deviation")
    normalize_input_keys: tuple[str, ...] = flag(
        (), "names of the observations that --normalize_input normalises; all of them if left out"
    )

    encoder_type: str = flag(
        "conv", "kind of network that encodes image observations", choices=("conv", "resnet", "mlp")
    )
    encoder_subtype: str = flag(
        "convnet_simple",
        "architecture of the network that encodes image observations",
        aliases=("encoder_conv_architecture",),
        choices=(
            "convnet_simple",
            "convnet_impala",
            "convnet_atari",
            "convnet_small",
            "minigrid_convnet_tiny",
            "resnet_impala",
            "resnet_impala_v1",
            "mlp_mujoco",
        ),
    )
    encoder_custom: str | None = flag(
        None,
        "encoder that was registered with register_encoder, by its name, or module:attribute",
        metavar="NAME",
        names_code=True,
    )
    core_custom: str | None = flag(
        None,
        "recurrent core that was registered with register_core, by its name, or module:attribute; it "
        "replaces the one of --use_rnn and --rnn_type",
        metavar="NAME",
        names_code=True,
    )
    decoder_custom: str | None = flag(
        None,
        "decoder that was registered with register_decoder, by its name, or module:attribute; it replaces "
        "--decoder_mlp_layers",
        metavar="NAME",
        names_code=True,
    )
    actor_critic_custom: str | None = flag(
        None,
        "whole network that was registered with register_actor_critic, by its name, or module:attribute",
        metavar="NAME",
        names_code=True,
    )
    encoder_extra_fc_layers: int = flag(
        1,
        "number of fully connected layers of width --hidden_size after the convolutions",
        at_least=0,
        at_most=100,
    )
    encoder_conv_mlp_layers: tuple[int, ...] = flag(
        (),
        "widths of the fully connected layers after the convolutions, instead of --encoder_extra_fc_layers",
        above=0,
        at_most=MAX_WIDTH,
    )
    encoder_mlp_layers: tuple[int, ...] = flag(
        (512, 512), "widths of the layers that encode vector observations", above=0, at_most=MAX_WIDTH
    )
    decoder_mlp_layers: tuple[int, ...] = flag(
        (),
        "widths of the layers between the recurrent core and the heads of the network; none if left out",
        above=0,
        at_most=MAX_WIDTH,
    )
    hidden_size: int = flag(
        512,
        "width of fully connected layers and of the recurrent state",
        aliases=("rnn_size",),
        at_least=1,
        at_most=MAX_WIDTH,
    )
    use_rnn: bool = flag(True, "give the network a memory: a recurrent core")
    rnn_type: str = flag("gru", "kind of recurrent core", choices=("gru", "lstm", "mingru", "gtrxl"))
    rnn_num_layers: int = flag(1, "number of recurrent layers", at_least=1, at_most=100)
    gtrxl_memory: int = flag(
        32,
        "with --rnn_type=gtrxl: steps before the present one that are remembered",
        at_least=1,
        at_most=4096,
    )
    gtrxl_heads: int = flag(
        4, "with --rnn_type=gtrxl: number of attention heads, a divisor of --hidden_size", at_least=1
    )
    episodic_memory: bool = flag(
        False,
        "give the network an episodic memory, which keeps rare moments of training that went well; for "
        "training where some tasks are rare",
    )
    episodic_slots: int = flag(
        256, "with --episodic_memory: number of moments that are kept", at_least=1, at_most=100_000
    )
    nonlinearity: str = flag("elu", "activation function of the network", choices=("elu", "relu", "tanh"))
    policy_initialization: str = flag(
        "orthogonal",
        "initialisation of linear and convolutional layers",
        choices=("orthogonal", "xavier_uniform", "torch_default"),
    )
    policy_init_gain: float = flag(
        1.0, "gain of the initialisation of linear and convolutional layers", above=0, at_most=1000
    )
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
        "continuous actions: tanh limits their means to plus or minus this value; 0 turns it off",
        at_least=0,
    )

    @property
    def may_remember(self) -> bool:
        """Whether the network may have a recurrent state; a user's own core or network is assumed to."""
        return self.use_rnn or self.core_custom is not None or self.actor_critic_custom is not None


@dataclass(frozen=True)
class EnvFlags:
    """Settings that many env families read."""

    env_frameskip: int | None = flag(
        None,
        "number of simulator frames that each action lasts; as the env defines if left out",
        at_least=1,
        at_most=10_000,
    )
    env_framestack: int = flag(
        1,
        "number of successive images in an observation, for a policy without memory; each takes as much "
        "memory again",
        at_least=1,
        at_most=1000,
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
    "cluster": ClusterFlags,
}


def flat_values(section: Any) -> dict[str, Any]:
    """Returns the fields of one section as flag -> value. Values are not copied."""
    return {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
