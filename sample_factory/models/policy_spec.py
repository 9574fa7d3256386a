"""What a policy's network is made of: plain data without torch, from which any process builds the same."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sample_factory.config.sections import ModelFlags
from sample_factory.models.encoder_registry import register_encoder
from sample_factory.runtime import gpu

if TYPE_CHECKING:
    import torch

    from sample_factory.models.actor_critic import ActorCritic


class BuiltPolicy(NamedTuple):
    """A network on its device; autocast: whether it is to run under bf16 autocast there."""

    model: "ActorCritic"
    device: "torch.device"
    autocast: bool


class PolicySpec(NamedTuple):
    """The model's flags and all else that decides its shape and arithmetic."""

    flags: ModelFlags
    observation_space: Any
    action_space: Any
    normalize_returns: bool
    device: str  # auto, gpu, cpu
    precision: str  # auto, fp32, bf16
    custom_encoder: Any = None  # what --encoder_custom names, if a user registered it

    def build(self, index: int = 0) -> BuiltPolicy:
        """In the process that uses it. index: which of several policies; they take the GPUs in turn."""
        import torch

        from sample_factory.models.actor_critic import make_actor_critic

        if self.custom_encoder is not None:
            register_encoder(self.flags.encoder_custom, self.custom_encoder)
        device = torch.device(gpu.resolve_device(self.device, index))
        model = make_actor_critic(
            self._flags_for_own_keys(), self.observation_space, self.action_space, self.normalize_returns
        )
        return BuiltPolicy(model.to(device), device, self._wants_bf16(device))

    def _flags_for_own_keys(self) -> ModelFlags:
        """--normalize_input_keys may name observations that only agents of another kind have."""
        flags, keys = self.flags, self.observation_space.spaces
        own = tuple(key for key in flags.normalize_input_keys if key in keys)
        if own == flags.normalize_input_keys:
            return flags
        # No key at all would stand for every key.
        return replace(flags, normalize_input_keys=own, normalize_input=flags.normalize_input and bool(own))

    def _wants_bf16(self, device: Any) -> bool:
        """auto: where the hardware has bf16 and there are images to encode; an MLP gains nothing by it."""
        if self.precision != "auto":
            return self.precision == "bf16"
        shapes = [space.shape for space in self.observation_space.spaces.values()]
        has_images = any(len(shape) == 3 and min(shape[-2:]) >= MIN_IMAGE_SIDE for shape in shapes)
        return has_images and gpu.has_bf16(device)


MIN_IMAGE_SIDE = 32


def state_size(flags: ModelFlags) -> int:
    """Floats in the recurrent state of one agent; 0 without an RNN."""
    if not flags.use_rnn:
        return 0
    towers = 1 if flags.actor_critic_share_weights else 2
    parts = 2 if flags.rnn_type == "lstm" else 1  # LSTM: hidden and cell
    return flags.hidden_size * flags.rnn_num_layers * parts * towers
