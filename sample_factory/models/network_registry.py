"""Networks and their parts by name: built-in ones and users'. Registering one does not import torch.

A *part* is "encoder", "core", "decoder" or "actor_critic"; the flag --PART_custom names its factory.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sample_factory.config.sections import ModelFlags
from sample_factory.runtime.failures import Explained
from sample_factory.runtime.registry import Registry, resolve

# A factory(flags, ...) -> torch module; see the functions `register_...` below.
NetworkFactory = Callable[..., Any]

ENCODER = "encoder"
CORE = "core"
DECODER = "decoder"
ACTOR_CRITIC = "actor_critic"

# Values of --encoder_custom whose networks follow --encoder_type and --encoder_subtype.
FOLLOW_PRESETS = (None, "vizdoom")

BUILT_IN_ENCODERS = {
    "vizdoom": "sample_factory.models.family_encoders:VizdoomEncoder",
    "minigrid": "sample_factory.models.family_encoders:MinigridEncoder",
    "dmlab_instructions": "sample_factory.models.family_encoders:DmlabEncoder",
    "map": "sample_factory.models.family_encoders:MapEncoder",
}
# Those that read the observations of their family and no other.
READ_ONLY_OWN_KEYS = ("minigrid", "dmlab_instructions", "map")


class BuiltInCore(NamedTuple):
    """Declares a core that --rnn_type names. Flags that only one core has begin with the core's name.

    factory: "module:attribute" of a class with the arguments (flags, in_size).
    state_size: returns the number of floats in a row of rnn_state. Declared here, not in the module of the
        layers, because the main process sizes the shared memory without torch.
    """

    factory: str
    state_size: Callable[[ModelFlags], int]


CORES: Mapping[str, BuiltInCore] = {
    "gru": BuiltInCore(
        "sample_factory.models.cores:RecurrentCore",
        lambda flags: flags.rnn_num_layers * flags.hidden_size,
    ),
    "lstm": BuiltInCore(
        "sample_factory.models.cores:RecurrentCore",
        lambda flags: 2 * flags.rnn_num_layers * flags.hidden_size,  # hidden state and cell
    ),
    "mingru": BuiltInCore(
        "sample_factory.models.mingru:MinGRU",
        lambda flags: flags.rnn_num_layers * flags.hidden_size,
    ),
    "gtrxl": BuiltInCore(
        "sample_factory.models.gtrxl:GTrXL",  # the number of steps in memory, and the steps
        lambda flags: 1 + flags.rnn_num_layers * flags.gtrxl_memory * flags.hidden_size,
    ),
}
_REGISTRIES = {
    part: Registry(
        f"{part}_custom",
        BUILT_IN_ENCODERS if part == ENCODER else {},
        f"call register_{part} in the script that you start, ",
    )
    for part in (ENCODER, CORE, DECODER, ACTOR_CRITIC)
}


class NetworkError(Explained):
    """Raised before training starts if a user's network, or part of a network, does not work."""


def register_encoder(name: str, factory: NetworkFactory | str) -> None:
    """Registers an encoder for --encoder_custom=name.

    For example:

        class Eyes(torch.nn.Module):
            def __init__(self, flags, observation_space):
                super().__init__()
                self.layer = torch.nn.Linear(observation_space["obs"].shape[0], 64)
                self.out_size = 64

            def forward(self, observations):
                return self.layer(observations["obs"]).relu()

        sample_factory.register_encoder("eyes", Eyes)

    Args:
        name: Value of the flag.
        factory: A class or function factory(flags, observation_space) that returns a torch module with an int
            attribute `out_size`. `flags` has the flags of the model and of the env's family as attributes,
            frozen. A "module:attribute" string is imported when the network is built.

    The module's forward maps a dict of float observations [B, ...] to [B, out_size]. The observations are as
    in observation_space: without the action mask, normalised and clipped, and images always as [channels,
    height, width]. Discrete and MultiDiscrete observations are indices, int64 [B, K]; their spaces are
    `spaces.observations.Indices` with `sizes`.

    Before a run, the network is tried on random inputs; if that fails, the run ends with a NetworkError. The
    trial, `flags` and "module:attribute" strings are the same for `register_core`, `register_decoder` and
    `register_actor_critic`.
    """
    register(ENCODER, name, factory)


def register_core(name: str, factory: NetworkFactory | str) -> None:
    """Registers a core, which replaces the GRU or LSTM, for --core_custom=name.

    For example `register_core("mean", RunningMean)`, with the class of examples/custom_core.py.

    Args:
        name: Value of the flag.
        factory: A class or function factory(flags, in_size) that returns a torch module with int attributes
            `out_size` and `state_size`; or a "module:attribute" string.

    The module's forward(x, rnn_state, resets) gets x [T, B, in_size], rnn_state [B, state_size] float32, and
    resets, a bool tensor [T, B] or None: where it is True, the row's rnn_state must be set to 0 before that
    step. It returns outputs [T, B, out_size] and the rnn_state after the last step, [B, state_size].
    """
    register(CORE, name, factory)


def register_decoder(name: str, factory: NetworkFactory | str) -> None:
    """Registers the layers between the core and the heads, for --decoder_custom=name.

    For example:

        class Gated(torch.nn.Module):
            def __init__(self, flags, in_size):
                super().__init__()
                self.gate = torch.nn.Linear(in_size, in_size)
                self.out_size = in_size

            def forward(self, x):
                return x * self.gate(x).sigmoid()

        sample_factory.register_decoder("gated", Gated)

    Args:
        name: Value of the flag.
        factory: A class or function factory(flags, in_size) that returns a torch module with an int attribute
            `out_size`, which maps [T, B, in_size] to [T, B, out_size]; or a "module:attribute" string.
    """
    register(DECODER, name, factory)


def register_actor_critic(name: str, factory: NetworkFactory | str) -> None:
    """Registers a whole network, for --actor_critic_custom=name.

    For example `register_actor_critic("mine", MyActorCritic)`, with the class of
    examples/custom_actor_critic.py.

    Args:
        name: Value of the flag.
        factory: A class or function factory(flags, observation_space, action_space) that returns a
            `sample_factory.models.actor_critic.ActorCritic`, whose docstring says what a subclass has to
            define; or a "module:attribute" string.
    """
    register(ACTOR_CRITIC, name, factory)


def register(part: str, name: str, factory: NetworkFactory | str) -> None:
    _REGISTRIES[part].register(name, factory)


def named_parts(flags: ModelFlags) -> dict[str, str]:
    """Returns the parts of a network for which a flag --PART_custom is set, part -> value of the flag."""
    names = {
        ENCODER: flags.encoder_custom,
        CORE: flags.core_custom,
        DECODER: flags.decoder_custom,
        ACTOR_CRITIC: flags.actor_critic_custom,
    }
    return {part: name for part, name in names.items() if name is not None}


def users_parts(flags: ModelFlags) -> dict[str, str]:
    """Returns the parts of a network that a user has written, part -> value of the flag --PART_custom; leaves
    out built-in encoders, unless a user has registered another encoder under a built-in name."""
    parts = named_parts(flags)
    built_in = BUILT_IN_ENCODERS.get(parts.get(ENCODER, ""))
    if built_in is not None and _REGISTRIES[ENCODER].find(parts[ENCODER]) == built_in:
        del parts[ENCODER]
    return parts


def are_found_without_script(flags: ModelFlags) -> bool:
    """Returns whether a process that does not run the user's script can import all user-written parts: they
    are named by "module:attribute"."""
    return all(":" in name for name in users_parts(flags).values())


def registered_factories(flags: ModelFlags) -> dict[str, NetworkFactory | str]:
    """Returns the registered factory of each part that the flags name, by part. The parent sends the result
    to child processes, whose registries contain built-in parts only. Parts named by "module:attribute" are
    left out, since a child can import them."""
    return {
        part: _REGISTRIES[part].find(name)
        for part, name in named_parts(flags).items()
        if name in _REGISTRIES[part]
    }


def check_names(flags: ModelFlags) -> None:
    """Checks the values of all flags --PART_custom. Raises ConfigError, with the nearest name, for a value
    that is neither registered nor "module:attribute"."""
    for part, name in named_parts(flags).items():
        _REGISTRIES[part].find(name)


def resolve_factory(part: str, name: str) -> NetworkFactory:
    """Returns the factory of a part, by its registered name or by "module:attribute", which is imported.

    Raises ValueError for an unknown name or attribute, ImportError for a module that cannot be imported.
    """
    factory: NetworkFactory = resolve(_REGISTRIES[part].find(name))
    return factory
