"""Interface of a policy's network: maps observations and a recurrent state to action logits and a value."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.action_distributions import (
    ActionDistribution,
    action_distribution,
    columns,
    mask_logits,
)
from sample_factory.models.custom_parts import NetworkSpace
from sample_factory.models.normalizers import ObservationNormalizers, RunningNormalizer
from sample_factory.spaces.actions import ACTION_MASK, action_layout
from sample_factory.spaces.observations import image_layout


class PolicyOutput(NamedTuple):
    """Holds the outputs of a policy for one step of B agents, all float32.

    actions: [B, K], one value per discrete choice and per element of a Box. log_probs: [B], of `actions`.
    values: [B], on the scale of normalised returns if returns are normalised.
    logits: [B, L], masked. rnn_state: [B, state_size], before the next step.
    """

    actions: Tensor
    log_probs: Tensor
    values: Tensor
    logits: Tensor
    rnn_state: Tensor


class NetworkOutput(NamedTuple):
    """Holds the outputs of a network for T steps of B rows.

    `ActorCritic.forward` returns logits [T, B, L] before the action mask is applied and values [T, B], in any
    float dtype. `ActorCritic.unroll` returns masked logits and values, both float32. Encodings [T, B, E] and
    beliefs [T, B, H], which only --use_cpc needs, are the outputs of the actor's encoder and core, in the
    dtype that these computed. rnn_state is [B, state_size], after the last step.
    """

    logits: Tensor
    values: Tensor
    rnn_state: Tensor
    encodings: Tensor | None = None
    beliefs: Tensor | None = None


class ActorCritic(nn.Module):
    """A policy and its value function, as policy workers, learners and evaluation use it.

    Subclasses call this __init__, define `forward`, and set `state_size` if they have a memory. They inherit
    everything else: normalisation of observations, action masks, distributions, acting.

    Callers may wrap `act` and `unroll` in torch.autocast; all outputs are float32, except encodings, beliefs
    and the rnn_state of `unroll`. Observations are raw tensors, as the env has written them. The observation
    `action_mask` (one number per discrete logit, nonzero: allowed), if there is one, is applied to all logits
    returned. Values are on the scale of normalised returns if there is a `returns_normalizer`, which
    `make_actor_critic` sets; callers denormalise them.

    state_size: number of floats in a row of rnn_state.
    layout: layout of the actions; defines `num_logits` and `num_action_values`.
    """

    state_size: int = 0

    def __init__(self, flags: ModelFlags, observation_space: gym.spaces.Dict, action_space: gym.Space[Any]):
        super().__init__()
        self.layout = action_layout(action_space)
        self.num_logits = self.layout.num_logits
        self.num_action_values = self.layout.num_action_values
        self._network_space = observation_space if isinstance(observation_space, NetworkSpace) else None
        stored = observation_space if self._network_space is None else self._network_space.stored
        self.observation_shapes = {key: space.shape or () for key, space in stored.spaces.items()}
        self.observation_normalizers = ObservationNormalizers(flags, stored)
        self.returns_normalizer: RunningNormalizer | None
        self.register_module("returns_normalizer", None)  # keeps its place in the state_dict

    def forward(
        self, observations: Mapping[str, Tensor], rnn_state: Tensor, resets: np.ndarray | None
    ) -> NetworkOutput:
        """Runs T steps of B rows; to be defined by subclasses.

        T calls with one step each must give the same as one call with T steps.

        observations: [T * B, ...] by key, time-major, as `observation_space` says: without the action mask,
            images as [channels, height, width]. They are normalised and clipped. Discrete and MultiDiscrete
            observations are indices, int64 [T * B, K].
        rnn_state: [B, state_size] float32, before the first step; 0 at the start of an episode.
        resets: bool [T, B] in host memory, or None: where True, the row's state is zeroed before that step.
        """
        raise NotImplementedError

    @torch.no_grad()
    def act(
        self,
        observations: Mapping[str, Tensor],
        rnn_state: Tensor,
        deterministic: bool = False,
        samples_continuous: bool = True,
    ) -> PolicyOutput:
        """Chooses one action for each row, without a gradient.

        observations: raw, [B, ...] by key. rnn_state: [B, state_size].
        deterministic: whether to take the mode of the distribution instead of a sample.
        samples_continuous: whether continuous components are sampled; otherwise their means are taken.
        """
        logits, values, rnn_state, *_ = self.unroll(observations, rnn_state)
        distribution = self.distribution(logits[0])
        actions = distribution.mode() if deterministic else distribution.sample()
        if not samples_continuous:
            boxes = columns(self.layout.box_actions, actions.device)
            actions.index_copy_(-1, boxes, distribution.mode().index_select(-1, boxes))
        return PolicyOutput(
            actions=actions,
            log_probs=distribution.log_prob(actions),
            values=values[0],
            logits=logits[0],
            rnn_state=rnn_state.float(),
        )

    def unroll(
        self, observations: Mapping[str, Tensor], rnn_state: Tensor, resets: np.ndarray | None = None
    ) -> NetworkOutput:
        """Runs the network, differentiably, over T steps of B trajectories.

        observations: raw, [T, B, ...] or [T * B, ...] by key, time-major.
        rnn_state: [B, state_size], before the first step.
        resets: bool [T, B] in host memory, or None: where True, the row's state is zeroed before that step.
        """
        rows = {key: observations[key].reshape(-1, *shape) for key, shape in self.observation_shapes.items()}
        output: NetworkOutput = self(self.network_inputs(rows), rnn_state.float(), resets)
        logits = output.logits.float()
        if ACTION_MASK in rows:
            logits = mask_logits(self.layout, logits, rows[ACTION_MASK].view(*logits.shape[:2], -1))
        return output._replace(logits=logits, values=output.values.float())

    def network_inputs(self, rows: Mapping[str, Tensor]) -> Mapping[str, Any]:
        """Maps raw observations [N, ...] to the argument of `forward`: `inputs`, unless a subclass normalises
        observations in `forward`."""
        return self.inputs(rows)

    def inputs(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the observations for `forward`: normalises raw observations, [N, ...] by key, and converts
        images to [channels, height, width] where `observation_space` has them in this order."""
        inputs: dict[str, Tensor] = self.observation_normalizers(rows)
        if self._network_space is None:
            return inputs
        for key, space in self._network_space.spaces.items():
            if inputs[key].shape[1:] != space.shape:
                is_hwc = image_layout(self.observation_shapes[key]).is_hwc
                image = inputs[key].movedim(-1, -3) if is_hwc else inputs[key]
                inputs[key] = image.reshape(-1, *(space.shape or ()))
        return inputs

    def distribution(self, logits: Tensor) -> ActionDistribution:
        """Returns the distribution over actions with logits [..., L] that `act` or `unroll` has returned."""
        return action_distribution(self.layout, logits)

    def eval(self) -> Self:
        """Switches to evaluation mode and returns the network, also if a subclass's `train` returns
        nothing."""
        super().eval()
        return self

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def own_weights(self, saved: Mapping[str, Any]) -> Mapping[str, Any]:
        """Selects from a checkpoint's weights, by name, those that this network has: all of them, except in
        a network without a critic."""
        return saved

    def prepare_to_act(self, dtype: torch.dtype) -> None:
        """Prepares a network that will only act, under autocast to `dtype`; does nothing by default.

        A subclass may convert weights to `dtype` here, so that autocast need not do so in every call. Float32
        weights that are loaded later are then rounded once.
        """
