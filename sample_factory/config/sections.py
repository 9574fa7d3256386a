"""All sections of the configuration; the longer ones are in files of their own (`*_flags.py`).

Names and defaults are those of version 1; the names of version 2 are accepted as aliases.
"""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.config.flags import Not, flag
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.monitoring_flags import EvaluationFlags, MonitoringFlags
from sample_factory.config.population_flags import PbtFlags, SelfplayFlags
from sample_factory.config.sampling_flags import ClusterFlags, SamplingFlags

# The flags that name the folder of a run; never taken from the cfg.json in it, which may have been moved.
OWN_FOLDER = ("experiment", "experiments_root", "train_dir")
# A bound that catches typing errors before they use up the memory of the machine.
MAX_WIDTH = 100_000
RNN_TYPES = ("gru", "lstm", "mingru", "gtrxl")
ENCODERS = (
    "auto",
    "convnet_simple",
    "convnet_impala",
    "convnet_atari",
    "convnet_medium",
    "convnet_small",
    "minigrid_convnet_tiny",
    "resnet_impala",
    "resnet_impala_v1",
    "mlp_mujoco",
)
# Values of `only_with`. A part or a network of the user's own may read all flags of the model.
IMAGES = {"observations": ("image",)}
CONTINUOUS = {"actions": ("continuous",)}
CORE = {"use_rnn": (True,), "core_custom": (None,)}
OWN_NETWORK = {"actor_critic_custom": Not((None,))}
OWN_PARTS = ({"encoder_custom": Not((None,))}, OWN_NETWORK)
MUJOCO = {"encoder_subtype": ("mlp_mujoco",)}


@dataclass(frozen=True)
class RunFlags:
    """Identity, directories, device."""

    env: str | None = flag(
        None,
        "full name of the env, e.g. doom_battle or gym_CartPole-v1; of several, each is one of --levels",
        names_code=True,
    )
    algo: str = flag(
        "APPO",
        f"training algorithm: {', '.join(BUILT_IN)} (APPO is asynchronous PPO), one that was registered with "
        "register_algorithm, or module:attribute",
        names_code=True,
    )
    observers: tuple[str, ...] = flag(
        (),
        "names given to register_observer, or module:attribute; all registered ones if left out, none "
        "without a value",
        names_code=True,
    )
    experiment: str = flag(
        "default_experiment",
        "name of the run and of its folder; training resumes a run that exists",
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
        "what to do with a run that exists; restart renames its folder, overwrite deletes it",
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
        None, "JSON file of flags, e.g. configs/doom_basic.json; typed flags override it", metavar="FILE"
    )
    trust_code: bool = flag(
        False,
        "use code, files elsewhere and services that the cfg.json of a run names, although this account has "
        "not signed it",
    )
    device: str = flag(
        "auto",
        "device of the network; auto: the GPU if there is one; cuda means gpu",
        choices=("auto", "gpu", "cpu"),
    )
    precision: str = flag(
        "auto",
        "number format of the network; bf16 keeps heads, losses and optimizer in fp32; auto: bf16 where the "
        "hardware supports it",
        choices=("auto", "fp32", "bf16"),
    )
    cuda_graphs: bool = flag(
        True, "policy workers on a GPU use CUDA graphs; False for a network whose operations vary"
    )
    compile: bool = flag(
        False, "compile the encoders of the learner; slower on a CPU, where it needs a C++ compiler"
    )
    seed: int | None = flag(
        None, "seed of network, actions and envs; a random one if left out", between=(0, 2**32 - 1)
    )


@dataclass(frozen=True)
class ModelFlags:
    """Observations and network."""

    obs_subtract_mean: float = flag(
        0.0, "number that is subtracted from image observations", only_with=IMAGES
    )
    obs_scale: float = flag(
        1.0,
        "number by which image observations are divided, after --obs_subtract_mean",
        above=0,
        only_with=IMAGES,
    )
    normalize_input: bool = flag(True, "normalise observations by their running mean and standard deviation")
    normalize_input_keys: tuple[str, ...] = flag(
        (),
        "names of the observations that --normalize_input normalises; all of them if left out",
        only_with={"normalize_input": (True,)},
    )

    critic_only_keys: tuple[str, ...] = flag(
        (), "names of the observations that only the critic gets, and only in training; none if left out"
    )
    centralized_critic: bool = flag(
        False, "several agents: the critic also gets what the other agents of the team observe, in training"
    )
    centralized_critic_sees: str = flag(
        "observations",
        "what --centralized_critic shows: the team mates' observations; also their last actions; or the "
        "state() of a PettingZoo env",
        choices=("observations", "actions", "state"),
        only_with={"centralized_critic": (True,)},
    )

    encoder_type: str = flag(
        "conv",
        "kind of network that encodes image observations",
        choices=("conv", "resnet", "mlp"),
        only_with=(IMAGES, MUJOCO, *OWN_PARTS),
    )
    encoder_subtype: str = flag(
        "convnet_simple",
        "architecture of the network that encodes image observations; auto: by the size of each image",
        aliases=("encoder_conv_architecture",),
        choices=ENCODERS,
        only_with=(IMAGES, MUJOCO, *OWN_PARTS),
    )
    encoder_custom: str | None = flag(
        None, "name of an encoder given to register_encoder, or module:attribute", names_code=True
    )
    core_custom: str | None = flag(
        None,
        "name of a recurrent core given to register_core, or module:attribute; instead of --rnn_type",
        names_code=True,
    )
    decoder_custom: str | None = flag(
        None,
        "name of a decoder given to register_decoder, or module:attribute; instead of --decoder_mlp_layers",
        names_code=True,
    )
    actor_critic_custom: str | None = flag(
        None, "name of a whole network given to register_actor_critic, or module:attribute", names_code=True
    )
    encoder_extra_fc_layers: int = flag(
        1,
        "fully connected layers of width --hidden_size after the convolutions",
        between=(0, 100),
        only_with=({**IMAGES, "encoder_conv_mlp_layers": ((),)}, *OWN_PARTS),
    )
    encoder_conv_mlp_layers: tuple[int, ...] = flag(
        (),
        "widths of the layers after the convolutions, instead of --encoder_extra_fc_layers",
        above=0,
        at_most=MAX_WIDTH,
        only_with=(IMAGES, *OWN_PARTS),
    )
    encoder_mlp_layers: tuple[int, ...] = flag(
        (512, 512),
        "widths of the layers that encode vector observations",
        above=0,
        at_most=MAX_WIDTH,
        only_with=(
            {"observations": ("vector",), "encoder_subtype": Not(("mlp_mujoco",))},
            {"encoder_type": ("mlp",), "encoder_subtype": Not(("mlp_mujoco",))},
            *OWN_PARTS,
        ),
    )
    decoder_mlp_layers: tuple[int, ...] = flag(
        (),
        "widths of the layers between core and heads of the network; none if left out",
        above=0,
        at_most=MAX_WIDTH,
        only_with=({"decoder_custom": (None,)}, OWN_NETWORK),
    )
    hidden_size: int = flag(
        512,
        "width of fully connected layers and of the recurrent state",
        aliases=("rnn_size",),
        between=(1, MAX_WIDTH),
        only_with=(
            {"use_rnn": (True,)},
            {**IMAGES, "encoder_conv_mlp_layers": ((),)},
            MUJOCO,
            {"core_custom": Not((None,))},
            {"decoder_custom": Not((None,))},
            *OWN_PARTS,
        ),
    )
    use_rnn: bool = flag(
        True, "give the network a memory: a recurrent core", only_with=({"core_custom": (None,)}, OWN_NETWORK)
    )
    rnn_type: str = flag("gru", "kind of recurrent core", choices=RNN_TYPES, only_with=(CORE, OWN_NETWORK))
    rnn_num_layers: int = flag(
        1, "number of recurrent layers", between=(1, 100), only_with=(CORE, OWN_NETWORK)
    )
    gtrxl_memory: int = flag(
        32,
        "with --rnn_type=gtrxl: number of past steps that are remembered",
        between=(1, 4096),
        only_with=({**CORE, "rnn_type": ("gtrxl",)}, OWN_NETWORK),
    )
    gtrxl_heads: int = flag(
        4,
        "with --rnn_type=gtrxl: number of attention heads, a divisor of --hidden_size",
        at_least=1,
        only_with=({**CORE, "rnn_type": ("gtrxl",)}, OWN_NETWORK),
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
        "continuous actions: the network outputs the standard deviation; False: a learned vector",
        only_with=CONTINUOUS,
    )
    initial_stddev: float = flag(
        1.0,
        "continuous actions: initial value of the learned standard deviation",
        above=0,
        at_most=1000,
        only_with=({**CONTINUOUS, "adaptive_stddev": (False,)}, OWN_NETWORK),
    )
    scale_actions: bool = flag(
        False,
        "continuous actions: outputs of -1 and 1 stand for the bounds of an action; False: outputs are the "
        "actions themselves",
        only_with={**CONTINUOUS, "actor_critic_custom": (None,)},
    )
    continuous_tanh_scale: float = flag(
        0.0,
        "continuous actions: tanh limits their means to plus or minus this; 0 turns it off",
        at_least=0,
        only_with=CONTINUOUS,
    )

    @property
    def shares_weights(self) -> bool:
        """Whether actor and critic share an encoder and a core; False whenever the critic observes more."""
        return self.actor_critic_share_weights and not self.critic_only_keys

    @property
    def may_remember(self) -> bool:
        """Whether the network may have a recurrent state; a user's own core or network is assumed to."""
        return self.use_rnn or self.core_custom is not None or self.actor_critic_custom is not None


@dataclass(frozen=True)
class EnvFlags:
    """Settings that many env families read."""

    env_frameskip: int | None = flag(
        None, "simulator frames that each action lasts; as the env defines if left out", between=(1, 10_000)
    )
    env_framestack: int = flag(
        1,
        "successive images in an observation, for a policy without memory; each takes as much memory again",
        between=(1, 1000),
        only_with=IMAGES,
    )
    env_both_ends: str = flag(
        "auto",
        "how an end counts that the env reports as terminated and truncated at once; auto: as the package of "
        "the env means it, else terminated",
        choices=("auto", "terminated", "truncated"),
    )
    levels: tuple[str, ...] = flag(
        (),
        "variants of the env, of which each episode plays one: FLAG=VALUE[,FLAG=VALUE] of the env or of its "
        "make_env, another env of its family, or a name given to register_env; results are shown by level",
        names_code=True,
    )
    level_choice: str = flag(
        "fixed",
        "which level an env plays; fixed: always the same one, by the number of the env; uniform: drawn for "
        "each episode; sequence: one after another, with equal shares of --train_for_env_steps; progress: "
        "drawn by how much the mean reward of a level changes; or a name given to register_level_choice",
        names_code=True,
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


@dataclass(frozen=True)
class RetiredFlags:
    """Flags of versions 1 and 2 without an effect here.

    Accepted with a warning, so that commands of versions 1 and 2 work; `cfg` has them, for make_env
    functions that read them. The help says why a flag has no effect."""

    train_in_background_thread: bool = flag(True, "batching and training always overlap")
    use_spectral_norm: bool = flag(False, "no built-in layer ever used it")
    num_minibatches_to_accumulate: int = flag(-1, "use --num_batches_to_accumulate")
    heartbeat_interval: int = flag(20, "components are watched without heartbeats of their own")
    batched_sampling: bool = flag(False, "a vectorised environment is always sampled as a batch")
    pixel_format: str = flag("CHW", "the layout of an image is derived from its shape")
    use_record_episode_statistics: bool = flag(False, "scores of whole games are always reported")
    episode_counter: bool = flag(False, "an evaluation counts the episodes of each env")
    use_env_info_cache: bool = flag(False, "the environment is probed at each start")
    env_gpu_actions: bool = flag(False, "only envs with several agents in scripts for version 2 get tensors")
    env_gpu_observations: bool = flag(True, "an environment returns NumPy arrays")


RETIRED_FLAGS: Mapping[str, str] = {
    field.name: field.metadata["help"] for field in dataclasses.fields(RetiredFlags)
}
RETIRED_DEFAULTS: Mapping[str, Any] = dataclasses.asdict(RetiredFlags())


def flags_of(*sections: type) -> frozenset[str]:
    """Returns the names of all flags in some sections."""
    return frozenset(field.name for section in sections for field in dataclasses.fields(section))


# The shared flags: all but those of single commands and of env families.
FLAGS: Mapping[str, "dataclasses.Field[Any]"] = {
    field.name: field for section in TRAINING_SECTIONS.values() for field in dataclasses.fields(section)
}
ALIASES = {alias: name for name, field in FLAGS.items() for alias in field.metadata["aliases"]}
FLAG_NAMES = frozenset((*FLAGS, *ALIASES))


def flat_values(section: Any) -> dict[str, Any]:
    """Returns the fields of one section as flag -> value. Values are not copied."""
    return {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
