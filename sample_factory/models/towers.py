"""The built-in network: a tower of encoder, core and decoder for actor and critic, or one tower for each."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from sample_factory.config.sections import ModelFlags
from sample_factory.models.action_distributions import columns
from sample_factory.models.actor_critic import ActorCritic, NetworkOutput
from sample_factory.models.cores import make_core
from sample_factory.models.custom_parts import NetworkSpace, make_custom_part, out_size
from sample_factory.models.encoder_choice import encoded_spaces
from sample_factory.models.encoders import ComputesLogits, IndexLinear, TakesRawImages, make_encoder, mlp
from sample_factory.models.network_registry import ACTOR_CRITIC, DECODER, ENCODER, users_parts
from sample_factory.models.normalizers import RunningNormalizer
from sample_factory.spaces.actions import ActionLayout, action_layout
from sample_factory.spaces.observations import without_entries

# Layers whose weights autocast rounds to its dtype.
ROUNDED_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
LARGE_LAYER = 2**24  # weights, see `initialize`
# How the names of the critic's weights begin, with --critic_only_keys.
OF_CRITIC = ("towers.1.", "critic_head.", "observation_normalizers.of_critic.")


class TowerOutput(NamedTuple):
    """Holds the outputs of a tower for T steps of B rows. encodings: [T, B, E], of the encoder. beliefs: [T,
    B, H], of the core. features: [T, B, F], of the decoder. rnn_state: [B, state_size], after the last step.
    """

    encodings: Tensor  # [T, B, E], of the encoder
    beliefs: Tensor  # [T, B, H], of the core
    features: Tensor  # [T, B, F], of the decoder
    rnn_state: Tensor  # [B, state_size], after the last step


class Tower(nn.Module):
    """Maps normalised observations and a recurrent state to features, by an encoder, a core and a decoder.
    observation_space: the part of the env's observations that the encoder gets."""

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        self.observation_space = observation_space
        self._keys = tuple(encoded_spaces(observation_space))
        self.encoder = make_encoder(flags, observation_space)
        self.core = make_core(flags, out_size(self.encoder))
        self.decoder, self.out_size = make_decoder(flags, self.core.out_size)

    def forward(
        self, observations: Mapping[str, Any], rnn_state: Tensor, resets: np.ndarray | None
    ) -> TowerOutput:
        """Runs T steps of B rows. observations: [T * B, ...] by key, time-major. rnn_state: [B, state_size],
        before the first step. resets: bool [T, B] in host memory: where True, the row's state is zeroed
        before that step; None: nowhere."""
        encodings = torch.unflatten(self.encoder(self.view(observations)), 0, (-1, rnn_state.shape[0]))
        beliefs, rnn_state = self.core(encodings, rnn_state, resets)
        return TowerOutput(encodings, beliefs, self.decoder(beliefs), rnn_state)

    def view(self, observations: Mapping[str, Any]) -> dict[str, Any]:
        """Selects the observations that this tower's encoder gets."""
        return {key: observations[key] for key in self._keys}


def make_decoder(flags: ModelFlags, in_size: int) -> tuple[nn.Module, int]:
    """Makes the decoder that the flags name. Returns the decoder, and the width of its output. Raises
    ConfigError if --decoder_custom names no registered decoder; NetworkError if the user's decoder cannot be
    made, or lacks an int attribute out_size."""
    if flags.decoder_custom is not None:
        decoder = make_custom_part(DECODER, flags.decoder_custom, flags, in_size)
        return decoder, out_size(decoder, DECODER)
    widths = flags.decoder_mlp_layers
    return mlp(flags, in_size, widths), widths[-1] if widths else in_size


class ActionHead(nn.Module):
    """Maps features [..., F] to logits [..., L] in the layout of the action space."""

    def __init__(self, flags: ModelFlags, layout: ActionLayout, in_size: int):
        super().__init__()
        self.layout = layout
        self.tanh_scale = flags.continuous_tanh_scale
        self.learned_log_std: nn.Parameter | None = None
        num_outputs = layout.num_logits
        if layout.log_stds and not flags.adaptive_stddev:
            num_outputs -= len(layout.log_stds)
            initial = torch.full((len(layout.log_stds),), math.log(flags.initial_stddev))
            self.learned_log_std = nn.Parameter(initial)
        self._places = _log_stds_last(layout)
        self.scale_actions: Tensor | None
        # Part of a checkpoint: without it, or with other bounds, its weights would mean other actions.
        self.register_buffer("scale_actions", _scale_of_logits(layout) if layout.is_scaled else None)
        self.linear = nn.Linear(in_size, num_outputs)

    def forward(self, features: Tensor) -> Tensor:
        """Maps features [..., F] to logits [..., L]."""
        layout = self.layout
        outputs: Tensor = self.linear(features)
        if not layout.means:
            return outputs
        if self.learned_log_std is not None:
            log_stds = self.learned_log_std.expand(*outputs.shape[:-1], -1)
            outputs = torch.cat((outputs, log_stds), dim=-1)
            if self._places is not None:
                outputs = outputs.index_select(-1, columns(self._places, outputs.device))
        if self.tanh_scale > 0:
            means = columns(layout.means, outputs.device)
            squashed = torch.tanh(outputs.index_select(-1, means) / self.tanh_scale) * self.tanh_scale
            outputs = outputs.index_copy(-1, means, squashed)
        if self.scale_actions is not None:
            outputs = outputs * self.scale_actions[0] + self.scale_actions[1]
        return outputs


def _scale_of_logits(layout: ActionLayout) -> Tensor:
    """Returns a factor and a summand for each logit, [2, L], that convert means and log-stds from the
    network's scale to the scale of the actions."""
    factors = np.ones(layout.num_logits)
    summands = np.zeros(layout.num_logits)
    factors[list(layout.means)] = layout.half_ranges
    summands[list(layout.means)] = layout.centers
    summands[list(layout.log_stds)] = np.log(layout.half_ranges)
    return torch.tensor(np.stack([factors, summands]), dtype=torch.float32)


def _log_stds_last(layout: ActionLayout) -> tuple[int, ...] | None:
    """Returns indices that restore the order of `layout` in a row where the log-stds follow all other logits:
    logit i is in column result[i]. Returns None if the layout already has the log-stds last."""
    others = [i for i in range(layout.num_logits) if i not in layout.log_stds]
    places = tuple(np.argsort(others + list(layout.log_stds)).tolist())
    return None if places == tuple(range(layout.num_logits)) else places


def given_logits(tower: Tower, flags: ModelFlags, layout: ActionLayout) -> int:
    """Returns how many of the tower's features are logits that its encoder has computed (see ComputesLogits):
    all logits of the layout, or 0 for other encoders.

    Raises ValueError if the flags put a part between the encoder and the logits, or if the number of logits
    does not fit the action space.
    """
    if not isinstance(tower.encoder, ComputesLogits):
        return 0
    between = (flags.use_rnn, flags.decoder_mlp_layers, flags.core_custom, flags.decoder_custom)
    if any(between):
        raise ValueError(
            f"encoder {flags.encoder_custom} computes the logits of the actions itself; use it with "
            "--use_rnn=False and without --decoder_mlp_layers, --core_custom and --decoder_custom"
        )
    num_logits = tower.encoder.num_logits
    if num_logits != layout.num_logits or layout.box_actions:
        raise ValueError(
            f"encoder {flags.encoder_custom} computes {num_logits} logits of discrete actions; the env's "
            f"action space has {layout.num_logits}"
        )
    return num_logits


class TowerActorCritic(ActorCritic):
    """The built-in network: a tower that actor and critic share, or one tower for each, with an action head
    and a critic head.

    A row of rnn_state holds the state of the actor's tower, then the state of the critic's tower. Heads and
    distributions stay float32 under autocast. Without a critic, values are 0.

    normalizes_in_slices: whether a CPU normalises and encodes images in slices, see conv_stack.py. False
        where the network is compiled or exported.
    """

    def __init__(
        self,
        flags: ModelFlags,
        observation_space: gym.spaces.Dict,
        action_space: gym.Space[Any],
        has_critic: bool = True,
    ):
        views = [observation_space]
        if has_critic and not flags.shares_weights:  # the actor's, then the critic's
            views = [without_entries(observation_space, flags.critic_only_keys), observation_space]
        if ENCODER in users_parts(flags):  # built-in ones read every layout
            views = [NetworkSpace(view) for view in views]
        super().__init__(flags, views[-1], action_space)
        self.layout = action_layout(action_space, flags.scale_actions)
        self.towers = nn.ModuleList(Tower(flags, view) for view in views)
        towers = self.each_tower()
        # The value does not depend on logits that an encoder computes.
        self.num_given_logits = given_logits(towers[0], flags, self.layout)
        self.action_head: ActionHead | None = None
        if not self.num_given_logits:
            self.action_head = ActionHead(flags, self.layout, towers[0].out_size)
        self.critic_head = nn.Linear(towers[-1].out_size - self.num_given_logits, 1) if has_critic else None
        self.state_size = sum(tower.core.state_size for tower in towers)
        self._users_parts = users_parts(flags)
        encoder = towers[-1].encoder  # of all observations
        # Users' subclasses of built-in parts expect tensors.
        is_ours = self._users_parts.keys().isdisjoint((ENCODER, ACTOR_CRITIC))
        self._raw_keys = encoder.raw_keys if is_ours and isinstance(encoder, TakesRawImages) else frozenset()
        self.normalizes_in_slices = True

    def forward(
        self, observations: Mapping[str, Tensor], rnn_state: Tensor, resets: np.ndarray | None
    ) -> NetworkOutput:
        rnn_states = rnn_state.split([tower.core.state_size for tower in self.each_tower()], dim=-1)
        outputs: list[TowerOutput] = [
            tower(observations, own_state, resets) for tower, own_state in zip(self.towers, rnn_states)
        ]
        with torch.autocast(rnn_state.device.type, enabled=False):
            features = outputs[0].features.float()
            num_given = self.num_given_logits
            logits = features[..., :num_given] if self.action_head is None else self.action_head(features)
            if self.critic_head is None:
                values = logits.new_zeros(logits.shape[:-1])
            else:
                features = outputs[-1].features[..., num_given:]
                values = self.critic_head(features.float()).squeeze(-1)
        rnn_state = torch.cat([output.rnn_state for output in outputs], dim=-1)
        return NetworkOutput(logits, values, rnn_state, outputs[0].encodings, outputs[0].beliefs)

    def network_inputs(self, rows: Mapping[str, Tensor]) -> Mapping[str, Any]:
        """Returns `inputs`; on a CPU, images that a ConvStack encodes are RawImages."""
        if self.normalizes_in_slices and self._raw_keys and self.device.type == "cpu":
            raw: Mapping[str, Any] = self.observation_normalizers(rows, self._raw_keys)
            return raw
        return self.inputs(rows)

    def each_tower(self) -> Sequence[Tower]:
        """Returns one tower if both heads share it, otherwise the actor's tower and the critic's."""
        return cast(Sequence[Tower], self.towers)

    def own_weights(self, saved: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.critic_head is not None:
            return saved
        return {name: tensor for name, tensor in saved.items() if not name.startswith(OF_CRITIC)}

    def prepare_to_act(self, dtype: torch.dtype) -> None:
        """Converts the weights of linear and convolutional layers, and of cores, to `dtype`.

        Autocast would round these weights to the same numbers in every call, which takes half the time of a
        small batch. Weights of other layers, such as norms, stay float32, as under autocast. So do weights of
        parts that users have written, which may compute without autocast. On a CPU, weights are also packed
        at their first use, see cpu_layers.py.
        """
        for tower in self.each_tower():
            for part, module in ((ENCODER, tower.encoder), (DECODER, tower.decoder)):
                if part in self._users_parts:
                    continue
                for layer in module.modules():
                    if isinstance(layer, ROUNDED_LAYERS):
                        layer.to(dtype)
            tower.core.prepare_to_act(dtype)


def make_actor_critic(
    flags: ModelFlags,
    observation_space: gym.spaces.Dict,
    action_space: gym.Space[Any],
    normalize_returns: bool = False,
    has_critic: bool = True,
) -> ActorCritic:
    """Makes the network that the flags describe, on the CPU, and initialises its weights.

    has_critic: False for the actor alone, with --critic_only_keys; then the space has none of these keys.
    A user's network (--actor_critic_custom) keeps the weights that it was created with.

    Raises ValueError or NetworkError, with what would be right, if spaces and flags do not fit together.
    """
    model: ActorCritic
    name = flags.actor_critic_custom
    if name is None:
        model = TowerActorCritic(flags, observation_space, action_space, has_critic)
        initialize(model, flags.policy_initialization, flags.policy_init_gain)
    else:
        made = make_custom_part(
            ACTOR_CRITIC, name, flags, NetworkSpace(observation_space), action_space, returns=ActorCritic
        )
        model = cast(ActorCritic, made)
    if normalize_returns:
        model.returns_normalizer = RunningNormalizer(())
    return model


def initialize(model: nn.Module, initialization: str, gain: float) -> None:
    """Initialises every linear and convolution layer: biases 0, weights by `initialization`.

    initialization: orthogonal (Saxe et al. 2014; in layers larger than LARGE_LAYER normal, with the same
        scale), xavier_uniform (Glorot and Bengio 2010), or torch_default, which changes nothing. Cores and
        frozen parameters are left as they initialise themselves.
    gain: scale of the weights.
    """
    if initialization == "torch_default":
        return
    initializers = {"orthogonal": nn.init.orthogonal_, "xavier_uniform": nn.init.xavier_uniform_}
    set_weights = initializers[initialization]
    towers = [module for module in model.modules() if isinstance(module, Tower)]
    kept = {module for tower in towers for module in tower.core.modules()}
    for module in model.modules():
        if module in kept or not isinstance(module, nn.Linear | _ConvNd | IndexLinear):
            continue
        weight = module.weight
        is_large = isinstance(module, IndexLinear) or weight.numel() > LARGE_LAYER
        if not weight.requires_grad:
            pass  # frozen: a user has trained it elsewhere
        elif is_large and initialization == "orthogonal":
            # Nearly orthogonal, and of the same scale: exactly orthogonal ones take seconds or minutes.
            nn.init.normal_(weight, std=gain / math.sqrt(max(len(weight), weight[0].numel())))
        else:
            set_weights(weight, gain=gain)
        if module.bias is not None and module.bias.requires_grad:
            nn.init.zeros_(module.bias)
