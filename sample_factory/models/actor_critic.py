"""The network of a policy: observations to action logits and a value, with a recurrent state in between."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.action_distributions import columns, distribution_of, mask_logits
from sample_factory.models.cores import make_core
from sample_factory.models.encoders import make_encoder, mlp
from sample_factory.models.normalizers import ObservationNormalizers, RunningNormalizer
from sample_factory.spaces.actions import ACTION_MASK, ActionLayout, action_layout


class PolicyOutput(NamedTuple):
    """One step for B agents. All fields are float32 tensors.

    actions: [B, K], one value per discrete choice and per element of a Box.
    log_probs: [B], log-probability of `actions`.
    values: [B], on the scale of normalised returns if returns are normalised.
    logits: [B, L], masked.
    rnn_state: [B, H], the recurrent state before the next step.
    """

    actions: Tensor
    log_probs: Tensor
    values: Tensor
    logits: Tensor
    rnn_state: Tensor


class Unroll(NamedTuple):
    """T steps for B rows, differentiable: logits [T, B, L] (masked) and values [T, B], both float32.

    encodings [T, B, E] and beliefs [T, B, H] are what the encoder and the core of the actor's tower gave, in
    the precision they ran in.
    """

    logits: Tensor
    values: Tensor
    encodings: Tensor
    beliefs: Tensor


class TowerOutput(NamedTuple):
    """Of T steps for B rows: encoder [T, B, E], core [T, B, H], decoder [T, B, F], the last state [B, H']."""

    encodings: Tensor
    beliefs: Tensor
    features: Tensor
    rnn_state: Tensor


class Tower(nn.Module):
    """Encoder, core and decoder: normalised observations and a state to features."""

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict):
        super().__init__()
        self.encoder = make_encoder(flags, observation_space)
        self.core = make_core(flags, self.encoder.out_size)
        self.decoder = mlp(flags, self.core.out_size, flags.decoder_mlp_layers)
        self.out_size = flags.decoder_mlp_layers[-1] if flags.decoder_mlp_layers else self.core.out_size

    def forward(
        self, observations: Mapping[str, Tensor], rnn_state: Tensor, resets: np.ndarray | None
    ) -> TowerOutput:
        """Observations [T * B, ...], and rnn_state [B, state_size] before the first step."""
        encodings = self.encoder(observations).unflatten(0, (-1, rnn_state.shape[0]))
        beliefs, rnn_state = self.core(encodings, rnn_state, resets)
        return TowerOutput(encodings, beliefs, self.decoder(beliefs), rnn_state)


class ActionHead(nn.Module):
    """Features [..., F] to logits [..., L] in the layout of the action space."""

    def __init__(self, flags: ModelFlags, layout: ActionLayout, in_size: int):
        super().__init__()
        self.layout = layout
        self.tanh_scale = flags.continuous_tanh_scale
        self.learned_log_std = None
        num_outputs = layout.num_logits
        if layout.log_stds and not flags.adaptive_stddev:
            num_outputs -= len(layout.log_stds)
            initial = torch.full((len(layout.log_stds),), math.log(flags.initial_stddev))
            self.learned_log_std = nn.Parameter(initial)
        self.linear = nn.Linear(in_size, num_outputs)

    def forward(self, features: Tensor) -> Tensor:
        layout = self.layout
        outputs = self.linear(features)
        if not layout.means:
            return outputs
        if self.learned_log_std is not None:
            log_stds = self.learned_log_std.expand(*outputs.shape[:-1], -1)
            outputs = torch.cat((outputs, log_stds), dim=-1)
            # Where each logit is in (everything but log-stds, log-stds).
            others = [i for i in range(layout.num_logits) if i not in layout.log_stds]
            places = np.argsort(others + list(layout.log_stds))
            outputs = outputs.index_select(-1, columns(tuple(places.tolist()), outputs.device))
        if self.tanh_scale > 0:
            means = columns(layout.means, outputs.device)
            squashed = torch.tanh(outputs.index_select(-1, means) / self.tanh_scale) * self.tanh_scale
            outputs = outputs.index_copy(-1, means, squashed)
        return outputs


class ActorCritic(nn.Module):
    """A policy and its value function; made by `make_actor_critic`.

    Callers may wrap `act` and `unroll` in torch.autocast: normalisation, heads and distributions stay
    float32, and so are all outputs but encodings and beliefs. Observations are raw tensors, as the
    environment wrote them. An observation `action_mask` (one number per discrete logit, nonzero: allowed) is
    applied to the logits that come out, so that no caller can forget it. Values are on the scale of
    normalised returns when there is a `returns_normalizer`; to apply it is up to the caller.
    """

    def __init__(
        self,
        flags: ModelFlags,
        observation_space: gym.spaces.Dict,
        action_space: gym.Space,
        normalize_returns: bool = False,
    ):
        super().__init__()
        self.layout = action_layout(action_space)
        self.num_logits = self.layout.num_logits
        self.num_action_values = self.layout.num_action_values
        self.observation_shapes = {key: space.shape for key, space in observation_space.spaces.items()}
        self.observation_normalizers = ObservationNormalizers(flags, observation_space)
        self.returns_normalizer = RunningNormalizer(()) if normalize_returns else None
        # One tower for both heads, or the actor's and the critic's.
        num_towers = 1 if flags.actor_critic_share_weights else 2
        self.towers = nn.ModuleList(Tower(flags, observation_space) for _ in range(num_towers))
        self.action_head = ActionHead(flags, self.layout, self.towers[0].out_size)
        self.critic_head = nn.Linear(self.towers[-1].out_size, 1)
        # A row of state is that of the actor's tower, then that of the critic's.
        self.state_size = sum(tower.core.state_size for tower in self.towers)

    @torch.no_grad()
    def act(
        self, observations: Mapping[str, Tensor], rnn_state: Tensor, deterministic: bool = False
    ) -> PolicyOutput:
        """Chooses one action for each row: observations [B, ...], rnn_state [B, state_size]. No gradient."""
        logits, values, towers = self._forward(observations, rnn_state, None)
        distribution = self.distribution(logits[0])
        actions = distribution.mode() if deterministic else distribution.sample()
        rnn_state = torch.cat([tower.rnn_state.float() for tower in towers], dim=-1)
        return PolicyOutput(
            actions=actions,
            log_probs=distribution.log_prob(actions),
            values=values[0],
            logits=logits[0],
            rnn_state=rnn_state,
        )

    def unroll(
        self, observations: Mapping[str, Tensor], rnn_state: Tensor, resets: np.ndarray | None = None
    ) -> Unroll:
        """Runs T steps of B rows from their states.

        observations: [T, B, ...] or [T * B, ...], time-major. rnn_state: [B, state_size].
        resets: bool [T, B] in host memory, or None: where True, the state is zeroed before that step.
        """
        logits, values, towers = self._forward(observations, rnn_state, resets)
        return Unroll(logits, values, towers[0].encodings, towers[0].beliefs)

    def _forward(
        self, observations: Mapping[str, Tensor], rnn_state: Tensor, resets: np.ndarray | None
    ) -> tuple[Tensor, Tensor, list[TowerOutput]]:
        rows = {key: observations[key].reshape(-1, *shape) for key, shape in self.observation_shapes.items()}
        normalized = self.observation_normalizers(rows)
        rnn_states = rnn_state.float().chunk(len(self.towers), dim=-1)
        towers = [tower(normalized, own, resets) for tower, own in zip(self.towers, rnn_states)]
        with torch.autocast(rnn_state.device.type, enabled=False):
            logits = self.action_head(towers[0].features.float())
            values = self.critic_head(towers[-1].features.float()).squeeze(-1)
        if ACTION_MASK in rows:
            logits = mask_logits(self.layout, logits, rows[ACTION_MASK].view(*logits.shape[:2], -1))
        return logits, values, towers

    def distribution(self, logits: Tensor, action_mask: Tensor | None = None):
        """The action distribution of logits [..., L]; those of `act` and `unroll` are masked already."""
        return distribution_of(self.layout, mask_logits(self.layout, logits, action_mask))

    def prepare_to_act(self, dtype: torch.dtype) -> None:
        """Keeps the weights of encoder and core in `dtype`, for a model that only acts, in autocast.

        Autocast rounds the same weights to the same numbers, but does so in every call, which takes half the
        time of a small batch. Loading float32 weights into the model afterwards rounds them once. Rounded to
        bfloat16 on a CPU, weights are packed as well when they are first used, see `packed`.
        """
        for tower in self.towers:
            tower.encoder.to(dtype)
            tower.decoder.to(dtype)
            tower.core.prepare_to_act(dtype)

    def update_normalizers(self, observations: Mapping[str, Tensor], valid: Tensor | None = None) -> None:
        """Takes raw observations [T, ..., *shape] into the running statistics, where bool `valid` is True."""
        self.observation_normalizers.update(observations, valid)


def make_actor_critic(
    flags: ModelFlags,
    observation_space: gym.spaces.Dict,
    action_space: gym.Space,
    normalize_returns: bool = False,
) -> ActorCritic:
    """The initialised model that the flags describe, on the CPU.

    Raises ValueError or TypeError, with what would be right, for spaces and flags that do not go together.
    """
    model = ActorCritic(flags, observation_space, action_space, normalize_returns)
    initialize(model, flags.policy_initialization, flags.policy_init_gain)
    return model


def initialize(model: nn.Module, initialization: str, gain: float) -> None:
    """Starts every linear and convolution layer: weights orthogonal or xavier_uniform, biases 0.

    Recurrent cells keep the defaults of torch; with torch_default all layers do.
    """
    if initialization == "torch_default":
        return
    start = {"orthogonal": nn.init.orthogonal_, "xavier_uniform": nn.init.xavier_uniform_}[initialization]
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            start(module.weight, gain=gain)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
