"""Specification of a policy's network: data without torch from which any process builds the same one."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sample_factory.config.sections import ModelFlags
from sample_factory.models.encoder_registry import EncoderFactory, register_encoder
from sample_factory.runtime import gpu

MIN_IMAGE_SIDE = 32

if TYPE_CHECKING:
    import torch

    from sample_factory.models.actor_critic import ActorCritic


class BuiltPolicy(NamedTuple):
    """A network on its device. autocast: whether callers have to run it under bfloat16 autocast."""

    model: "ActorCritic"
    device: "torch.device"
    autocast: bool


class PolicySpec(NamedTuple):
    """Flags of the model and everything else that determines its shape and arithmetic.

    observation_space: a Dict of Box; action_space: Discrete, MultiDiscrete, Box or a Tuple of these.
    device: --device, auto, gpu or cpu. precision: --precision, auto, fp32 or bf16.
    custom_encoder: the factory that is registered as --encoder_custom, if any.
    """

    flags: ModelFlags
    observation_space: Any
    action_space: Any
    normalize_returns: bool
    device: str
    precision: str
    custom_encoder: EncoderFactory | str | None = None

    def build(self, index: int = 0) -> BuiltPolicy:
        """Builds the network, in the process that uses it.

        index: number of the policy; several policies are assigned to the GPUs in turn.
        Raises what `make_actor_critic` raises, EncoderError if a custom encoder's output is not as it says,
        and RuntimeError if the device is not available.
        """
        import torch

        from sample_factory.models.actor_critic import make_actor_critic
        from sample_factory.models.encoders import check_output

        if self.custom_encoder is not None:
            assert self.flags.encoder_custom is not None
            register_encoder(self.flags.encoder_custom, self.custom_encoder)
        device = torch.device(gpu.resolve_device(self.device, index))
        model = make_actor_critic(
            self._flags_for_own_keys(), self.observation_space, self.action_space, self.normalize_returns
        )
        model.to(device)
        if self.flags.encoder_custom is not None:
            for tower in model.each_tower():
                check_output(tower.encoder, self.observation_space, device)
        return BuiltPolicy(model, device, self._wants_bf16(device))

    def _flags_for_own_keys(self) -> ModelFlags:
        """Returns the flags without the --normalize_input_keys that only agents of another kind have."""
        flags = self.flags
        own = tuple(key for key in flags.normalize_input_keys if key in self.observation_space.spaces)
        if own == flags.normalize_input_keys:
            return flags
        # An empty tuple would mean all keys.
        return replace(flags, normalize_input_keys=own, normalize_input=flags.normalize_input and bool(own))

    def _wants_bf16(self, device: Any) -> bool:
        """Whether to use bfloat16; with auto, if the hardware supports it and there are images to encode.

        An MLP gains nothing by it.
        """
        if self.precision != "auto":
            return self.precision == "bf16"
        shapes = [space.shape for space in self.observation_space.spaces.values()]
        has_images = any(len(shape) == 3 and min(shape[-2:]) >= MIN_IMAGE_SIDE for shape in shapes)
        return has_images and gpu.has_bf16(device)


def state_size(flags: ModelFlags) -> int:
    """Returns the number of floats in the recurrent state of one agent; 0 without an RNN."""
    if not flags.use_rnn:
        return 0
    towers = 1 if flags.actor_critic_share_weights else 2
    parts = 2 if flags.rnn_type == "lstm" else 1  # LSTM: hidden and cell
    return flags.hidden_size * flags.rnn_num_layers * parts * towers
