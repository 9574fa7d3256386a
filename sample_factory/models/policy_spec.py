"""Specification of a policy's network: data without torch from which any process builds the same one."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import fields, make_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym

from sample_factory.config.config import Config
from sample_factory.config.sections import ModelFlags, flat_values
from sample_factory.models.network_registry import (
    CORES,
    NetworkError,
    NetworkFactory,
    named_parts,
    register,
    registered_factories,
)
from sample_factory.runtime import gpu
from sample_factory.runtime.totals import Total, of_one_process
from sample_factory.spaces.observations import without_entries

MIN_IMAGE_SIDE = 32

if TYPE_CHECKING:
    import torch

    from sample_factory.models.actor_critic import ActorCritic


class BuiltPolicy(NamedTuple):
    """Holds a policy's network on its device, and how to run it. autocast: whether callers have to run the
    network under bfloat16 autocast. total: sums a tensor over all learners of the policy, each of which must
    make the same calls. Where there is one learner, or none, it returns the tensor."""

    model: "ActorCritic"
    device: "torch.device"
    autocast: bool
    total: "Total[torch.Tensor]" = of_one_process


class PolicySpec(NamedTuple):
    """Specifies a policy's network: the model flags and everything else that determines its shape and
    arithmetic.

    observation_space: a Dict of Box; action_space: Discrete, MultiDiscrete, Box or a Tuple of these.
    device: --device, auto, gpu or cpu. precision: --precision, auto, fp32 or bf16.
    family_flags: flags of the env's family by name, for the factories of users' parts; None if no flag
        --PART_custom names a part.
    factories: registered factories of these parts, by part.
    has_critic: whether the network has a critic; False for acting only, if some observations are the
        critic's.
    """

    flags: ModelFlags
    observation_space: Any
    action_space: Any
    normalize_returns: bool
    device: str
    precision: str
    family_flags: Mapping[str, Any] | None = None
    factories: Mapping[str, NetworkFactory | str] = {}
    has_critic: bool = True

    def to_act(self) -> "PolicySpec":
        """Returns the specification of the network that acts after training, with the trained weights. With
        --critic_only_keys, this network has no critic, so that the env need not have the observations that
        only the critic gets."""
        keys = self.flags.critic_only_keys
        view = without_entries(self.observation_space, keys)
        return self._replace(observation_space=view, has_critic=self.has_critic and not keys)

    def build(self, index: int = 0) -> BuiltPolicy:
        """Builds the network, in the process that uses it. index: number of the policy; several policies are
        assigned to the GPUs in turn. Raises ValueError, ConfigError or NetworkError if the network cannot be
        made, e.g. if spaces and flags do not fit together; RuntimeError if the device is not available."""
        import torch

        from sample_factory.models.towers import make_actor_critic

        device = torch.device(gpu.resolve_device(self.device, index))
        flags = self._flags_for_own_keys()
        names = named_parts(flags)
        for part, factory in self.factories.items():
            register(part, names[part], factory)
        if self.family_flags is not None:
            flags = network_flags(flags, self.family_flags)
        spaces = self.observation_space, self.action_space
        model = make_actor_critic(flags, *spaces, self.normalize_returns, self.has_critic)
        return BuiltPolicy(model.to(device), device, self._wants_bf16(device))

    def _flags_for_own_keys(self) -> ModelFlags:
        """Returns the flags with --normalize_input_keys restricted to keys of this policy's observations: the
        flag may also name keys that only other kinds of agents have."""
        flags = self.flags
        own = tuple(key for key in flags.normalize_input_keys if key in self.observation_space.spaces)
        if own == flags.normalize_input_keys:
            return flags
        # An empty tuple would mean all keys.
        return replace(flags, normalize_input_keys=own, normalize_input=flags.normalize_input and bool(own))

    def _wants_bf16(self, device: Any) -> bool:
        """Returns whether to compute in bfloat16. With --precision=auto, this is so if the hardware supports
        bfloat16 and there are images to encode, since an MLP would not become faster."""
        if self.precision != "auto":
            return self.precision == "bf16"
        shapes = [space.shape for space in self.observation_space.spaces.values()]
        has_images = any(len(shape) == 3 and min(shape[-2:]) >= MIN_IMAGE_SIDE for shape in shapes)
        return has_images and gpu.has_bf16(device)


def make_policy_spec(
    config: Config, observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> PolicySpec:
    """Returns the specification of a policy's network.

    observation_space, action_space: spaces of one kind of agents, as stored in the buffers.
    """
    family_flags = None
    if named_parts(config.model):
        family_flags = {} if config.family is None else flat_values(config.family)
    return PolicySpec(
        flags=config.model,
        observation_space=observation_space,
        action_space=action_space,
        normalize_returns=config.learning.normalize_returns,
        device=config.run.device,
        precision=config.run.precision,
        family_flags=family_flags,
        factories=registered_factories(config.model),
    )


def network_flags(flags: ModelFlags, family_flags: Mapping[str, Any]) -> ModelFlags:
    """Returns the flags that users' factories get: the model flags, with the flags of the env's family as
    additional fields. Attributes with names of version 2, such as rnn_size, can be read too."""
    further = [(name, type(value)) for name, value in family_flags.items()]
    aliases = {
        alias: property(operator.attrgetter(field.name))
        for field in fields(ModelFlags)
        for alias in field.metadata["aliases"]
    }
    made = make_dataclass(
        "NetworkFlags", further, bases=(ModelFlags,), namespace=aliases, frozen=True, kw_only=True
    )
    combined: ModelFlags = made(**{**flat_values(flags), **family_flags})
    return combined


def state_size(flags: ModelFlags, has_critic: bool = True) -> int:
    """Returns the number of floats in one agent's recurrent state for built-in networks, without torch."""
    num_towers = 1 if flags.shares_weights or not has_critic else 2
    return num_towers * CORES[flags.rnn_type].state_size(flags) if flags.use_rnn else 0


def probe_state_size(specs: Sequence[PolicySpec]) -> int:
    """Builds and checks the network of each kind of agents, on the CPU, and returns the number of floats in
    an agent's recurrent state. Loads torch. Raises ValueError, ConfigError or NetworkError if a network
    cannot be made, NetworkError if a check fails or the sizes differ between kinds."""
    from sample_factory.models.network_checks import check_network

    sizes = []
    for spec in specs:
        built, twin = (spec._replace(device="cpu").build() for _ in range(2))
        check_network(built.model, twin.model, spec.flags, spec.observation_space, built.autocast)
        sizes.append(built.model.state_size)
    if len(set(sizes)) > 1:
        raise NetworkError(
            f"the networks of this env's kinds of agents have recurrent states of {sizes} floats; state_size "
            "should be the same for all kinds, since they share memory"
        )
    return sizes[0]
