"""Tries out the parts of a network that users have written, before training starts.

Policy workers compute one step at a time, for any number of agents; a learner computes many steps in one
call. If the results differ, the learner trains on other outputs than the agents have acted on.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.actor_critic import ActorCritic, NetworkOutput
from sample_factory.models.custom_parts import describe, int_attribute, out_size
from sample_factory.models.network_registry import (
    ACTOR_CRITIC,
    CORE,
    DECODER,
    ENCODER,
    NetworkError,
    users_parts,
)
from sample_factory.models.towers import Tower, TowerActorCritic
from sample_factory.spaces.actions import ACTION_MASK
from sample_factory.spaces.observations import Indices

STEPS = 4
ROWS = 3
# Relative to the largest number: with another batch size, sums have another order.
TOLERANCE = 1e-3
# Where the outputs of a learner differ from those of an actor, the cause.
STEPWISE = (
    "between acting and unrolling: forward over T steps of B rows should give the same as calls with one "
    "step of one row each, which get the rnn_state of the call before"
)
RESETS = (
    "between acting and unrolling: where resets [T, B] is True, the row's rnn_state should count as 0 before "
    "that step"
)
OUTSIDE = (
    "between two networks with the same state_dict, so learner and actors would compute with different "
    "numbers: make random numbers parameters or persistent buffers, or compute them from a constant seed"
)
MODES = (
    "between training and evaluation mode, so learner and actors would compute different outputs: leave out "
    "dropout and batch norm (take LayerNorm), or let train() of a pretrained part keep it in evaluation mode"
)


@torch.no_grad()
def check_network(
    model: ActorCritic, flags: ModelFlags, observation_space: gym.spaces.Dict, with_autocast: bool
) -> None:
    """Calls each part that a user has written, then the whole network, on made-up inputs; changes neither
    them nor torch's random state.

    with_autocast: under bfloat16 autocast too. Raises NetworkError, with what would be right, if a part
    raises, if the shape of its output is not as it says, or if the parts do not fit together.
    """
    parts = users_parts(flags)
    if not parts:
        return
    if next(model.parameters(), None) is None:
        raise NetworkError(f"{describe(ACTOR_CRITIC, parts[ACTOR_CRITIC])} has no parameters to train")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        observations = made_up_observations(observation_space, STEPS, ROWS, model.device)
        for autocast in {False, with_autocast}:
            with torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
                trial = copy.deepcopy(model).eval()  # a call changes e.g. the statistics of a batch norm
                if isinstance(trial, TowerActorCritic):
                    rows = {key: tensor.flatten(0, 1) for key, tensor in observations.items()}
                    for tower in trial.each_tower():
                        _check_parts(parts, tower, tower.view(trial.inputs(rows)))
                else:
                    _check_actor_critic(parts[ACTOR_CRITIC], trial, observations)
                trial.requires_grad_(False)
                if autocast:
                    trial.prepare_to_act(torch.bfloat16)
                seen = {key: tensor[0] for key, tensor in observations.items()}
                first = torch.zeros(ROWS, trial.state_size, device=model.device)
                _call(_describe_network(parts), partial(trial.act, seen, first, deterministic=True))


@torch.no_grad()
def check_copies(
    model: ActorCritic, twin: ActorCritic, flags: ModelFlags, observation_space: gym.spaces.Dict
) -> None:
    """Checks that a learner, which unrolls, computes the same with a user's part as an actor, which makes one
    step after another, and as a run that is resumed.

    model, twin: networks of the same flags on the CPU, built one after the other; their weights change.
    Raises NetworkError, with the cause, for the first difference.
    """
    parts = users_parts(flags)
    if not parts:
        return
    what = _describe_network(parts)
    some_resets = np.zeros((STEPS, ROWS), bool)
    some_resets[[0, 1, 2], [0, 1, 0]] = True
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        observations = made_up_observations(observation_space, STEPS, ROWS, model.device)
        for weight in model.parameters():
            if not weight.any():  # layers that start at 0 would hide a difference
                nn.init.normal_(weight)
        _call(what, twin.load_state_dict, model.state_dict())
        for learner, is_training, resets, reason in (
            (model, False, None, STEPWISE),
            (model, False, some_resets, RESETS),
            (twin, False, None, OUTSIDE),
            (twin, True, None, MODES),
        ):
            first = torch.zeros(ROWS, learner.state_size)
            learner.train(is_training)  # which a user's network may override, and return nothing
            learned = _call(what, learner.unroll, observations, first, resets)
            _compare(what, learned, model.eval(), observations, resets, reason)


def _compare(
    what: str,
    learned: NetworkOutput,
    actor: ActorCritic,
    observations: Mapping[str, Tensor],
    resets: np.ndarray | None,
    reason: str,
) -> None:
    """Compares the result of unrolling with calls for one step of one row each."""
    for row in range(ROWS):
        rnn_state = torch.zeros(1, actor.state_size)
        for t in range(STEPS):
            if resets is not None and resets[t, row]:
                rnn_state = torch.zeros_like(rnn_state)
            at = (slice(t, t + 1), slice(row, row + 1))
            seen = {key: tensor[at] for key, tensor in observations.items()}
            output = _call(what, actor.unroll, seen, rnn_state)
            rnn_state = output.rnn_state
            _check_equal(what, "logits", learned.logits[at], output.logits, reason)
            _check_equal(what, "values", learned.values[at], output.values, reason)
        _check_equal(what, "rnn_state", learned.rnn_state[row : row + 1], rnn_state, reason)


def _check_parts(parts: Mapping[str, str], tower: Tower, inputs: Mapping[str, Tensor]) -> None:
    """inputs: of the encoder, STEPS * ROWS rows by key."""
    device = next(iter(inputs.values())).device
    encoder, core, decoder = tower.encoder, tower.core, tower.decoder
    if ENCODER in parts:
        what = describe(ENCODER, parts[ENCODER])
        num_rows = STEPS * ROWS
        given = f"{num_rows} rows: [B, out_size]"
        _check_shape(what, "features", _call(what, encoder, inputs), (num_rows, out_size(encoder)), given)
    if CORE in parts:
        what = f"{describe(CORE, parts[CORE])} with state_size {core.state_size}"
        x = torch.randn(STEPS, ROWS, out_size(encoder), device=device)
        outputs, rnn_state = _call(what, core, x, torch.zeros(ROWS, core.state_size, device=device))
        given = f"x {list(x.shape)}: "
        _check_shape(what, "outputs", outputs, (STEPS, ROWS, core.out_size), f"{given}[T, B, out_size]")
        _check_shape(what, "an rnn_state", rnn_state, (ROWS, core.state_size), f"{given}[B, state_size]")
    if DECODER in parts:
        what = describe(DECODER, parts[DECODER])
        x = torch.randn(STEPS, ROWS, core.out_size, device=device)
        wanted = (STEPS, ROWS, out_size(decoder, DECODER))
        _check_shape(what, "features", _call(what, decoder, x), wanted, f"{list(x.shape)}: [T, B, out_size]")


def _check_actor_critic(name: str, model: ActorCritic, observations: Mapping[str, Tensor]) -> None:
    what = describe(ACTOR_CRITIC, name)
    size = int_attribute(model, "state_size", "the floats that an agent remembers", ACTOR_CRITIC)
    output = _call(what, model.unroll, observations, torch.zeros(ROWS, size, device=model.device))
    _check_shape(what, "logits", output.logits, (STEPS, ROWS, model.num_logits), "[T, B, num_logits]")
    _check_shape(what, "values", output.values, (STEPS, ROWS), "[T, B]")
    _check_shape(what, "an rnn_state", output.rnn_state, (ROWS, size), "[B, state_size]")


def _describe_network(parts: Mapping[str, str]) -> str:
    return f"a network with {' and '.join(describe(part, name) for part, name in parts.items())}"


def made_up_observations(
    observation_space: gym.spaces.Dict, num_steps: int, num_rows: int, device: torch.device
) -> dict[str, Tensor]:
    """Returns random raw observations within the space, [num_steps, num_rows, *shape] by key; a mask allows
    every action."""
    tensors = {}
    for key, space in observation_space.spaces.items():
        assert isinstance(space, gym.spaces.Box)
        shape = (num_steps, num_rows, *space.shape)
        if key == ACTION_MASK:
            tensor = torch.ones(shape)
        elif isinstance(space, Indices):
            tensor = torch.randint(min(space.sizes), shape)
        elif space.dtype == np.uint8:
            tensor = torch.randint(256, shape)
        else:
            tensor = torch.randn(shape)
        within = np.clip(tensor.numpy(), space.low, space.high).astype(space.dtype)
        tensors[key] = torch.from_numpy(within).to(device)
    return tensors


def _call(what: str, function: Callable[..., Any], *inputs: Any) -> Any:
    try:
        return function(*inputs)
    except Exception as error:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs if isinstance(tensor, Tensor))
        given = f" for {shapes}" if shapes else ""
        raise NetworkError(f"{what}: forward{given} raised {type(error).__name__}: {error}") from error


def _check_shape(what: str, name: str, output: Any, wanted: tuple[int, ...], given: str) -> None:
    if not isinstance(output, Tensor):
        raise NetworkError(f"{what}: forward returned a {type(output).__name__}, not a tensor")
    if output.shape != wanted:
        raise NetworkError(
            f"{what}: forward returned {name} of shape {list(output.shape)}; it should be {list(wanted)} for "
            f"{given}"
        )


def _check_equal(what: str, name: str, unrolled: Tensor, acted: Tensor, reason: str) -> None:
    _check_shape(what, name, acted, tuple(unrolled.shape), "one step of one row")
    # NaN in the same places is no difference: made-up observations may be impossible ones.
    unrolled, acted = unrolled.nan_to_num(), acted.nan_to_num()
    difference = float((unrolled - acted).abs().max()) if acted.numel() else 0.0
    largest = float(acted.abs().max()) if acted.numel() else 0.0
    if difference > TOLERANCE * max(1.0, largest):
        raise NetworkError(f"{what}: its {name} differ by {difference:.2g} {reason}")
