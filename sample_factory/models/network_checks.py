"""Tries out the parts of a network that are a user's own, before training starts.

Acting computes one step at a time, learning many in one call. A core for which both differ would train on
other outputs than those that acted.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.actor_critic import ActorCritic, PolicyOutput, Unroll
from sample_factory.models.custom_parts import describe, int_attribute, out_size
from sample_factory.models.encoder_choice import encoded_spaces
from sample_factory.models.network_registry import (
    ACTOR_CRITIC,
    CORE,
    DECODER,
    ENCODER,
    NetworkError,
    users_parts,
)
from sample_factory.models.towers import TowerActorCritic
from sample_factory.spaces.actions import ACTION_MASK
from sample_factory.spaces.observations import Indices

STEPS = 6
ROWS = 4
TOLERANCE = 1e-3  # relative to the largest number; other batch sizes add up in another order
STEPWISE = (
    f"forward over {STEPS} steps should give the same as {STEPS} calls with one step each, which get the "
    "rnn_state of the call before"
)
RESETS = "where resets [T, B] is True, the row's rnn_state should count as 0 before that step"

Module = TypeVar("Module", bound=nn.Module)


@torch.no_grad()
def check_network(
    model: ActorCritic, flags: ModelFlags, observation_space: gym.spaces.Dict, device: torch.device
) -> None:
    """Runs each part of the user's own on made-up inputs; changes neither it nor torch's random numbers.

    Raises NetworkError, with what would be right, if a part raises, if the shape of its output is not as it
    says, or if acting step by step and unrolling differ.
    """
    parts = users_parts(flags)
    if not parts:
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if ACTOR_CRITIC in parts:
            check_actor_critic(parts[ACTOR_CRITIC], model, observation_space, device)
            return
        assert isinstance(model, TowerActorCritic)
        for tower in model.each_tower():
            if ENCODER in parts:
                check_encoder(parts[ENCODER], tower.encoder, observation_space, device)
            if CORE in parts:
                check_core(parts[CORE], tower.core, out_size(tower.encoder), device)
            if DECODER in parts:
                check_decoder(parts[DECODER], tower.decoder, tower.core.out_size, device)


def check_encoder(
    name: str, encoder: nn.Module, observation_space: gym.spaces.Dict, device: torch.device
) -> None:
    """Encodes two observations of zeros. Raises NetworkError if forward raises, or does not return
    [2, out_size]."""
    rows = {
        key: torch.zeros(
            (2, *space.shape), dtype=torch.int64 if isinstance(space, Indices) else None, device=device
        )
        for key, space in encoded_spaces(observation_space).items()
    }
    what = describe(ENCODER, name)
    output = _call(what, _trial(encoder), rows)
    _check_shape(what, "features", output, (2, out_size(encoder)), "2 rows: [B, out_size]")


def check_decoder(name: str, decoder: nn.Module, in_size: int, device: torch.device) -> None:
    """Runs made-up beliefs. Raises NetworkError if forward raises, or does not return [T, B, out_size]."""
    what = describe(DECODER, name)
    output = _call(what, _trial(decoder), torch.randn(STEPS, ROWS, in_size, device=device))
    wanted = (STEPS, ROWS, out_size(decoder, DECODER))
    _check_shape(what, "features", output, wanted, f"[{STEPS}, {ROWS}, {in_size}]: [T, B, out_size]")


def check_core(name: str, core: Any, in_size: int, device: torch.device) -> None:
    """Runs made-up encodings step by step, and in one call.

    core: as `make_core` returns it. Raises NetworkError if forward raises, if the shapes of outputs and state
    are not as the core says, or if both ways differ.
    """
    what = describe(CORE, name)
    encodings = torch.randn(STEPS, ROWS, in_size, device=device)
    resets = torch.rand(STEPS, ROWS) < 0.4
    trial = _trial(core)

    def run(x: Tensor, rnn_state: Tensor, resets: np.ndarray | None = None) -> tuple[Tensor, Tensor]:
        returned = _call(what, trial, x, rnn_state, resets)
        shape = f"{list(x.shape)}: [T, B,"
        _check_shape(what, "outputs", returned[0], (len(x), ROWS, core.out_size), f"{shape} out_size]")
        _check_shape(what, "an rnn_state", returned[1], (ROWS, core.state_size), f"{shape} in_size]")
        return returned  # type: ignore[no-any-return]

    first = torch.zeros(ROWS, core.state_size, device=device)
    for by_step, reason in ((None, STEPWISE), (resets, RESETS)):
        unrolled, last = run(encodings, first, None if by_step is None else by_step.numpy())
        rnn_state = first
        outputs = []
        for t in range(STEPS):
            if by_step is not None:
                rnn_state = rnn_state * (~by_step[t]).to(device).unsqueeze(-1)
            output, rnn_state = run(encodings[t : t + 1], rnn_state)
            outputs.append(output)
        _check_equal(what, "outputs", unrolled, torch.cat(outputs), reason)
        _check_equal(what, "rnn_state", last, rnn_state, reason)


def check_actor_critic(
    name: str, model: ActorCritic, observation_space: gym.spaces.Dict, device: torch.device
) -> None:
    """Lets the network act on made-up observations, and unrolls it over the same.

    Raises NetworkError if it raises, if the shapes of its outputs are not those of `PolicyOutput` and
    `Unroll`, or if logits or values differ.
    """
    what = describe(ACTOR_CRITIC, name)
    state_size = int_attribute(model, "state_size", "the floats that an agent remembers", ACTOR_CRITIC)
    observations = _observations(observation_space, device)
    resets = torch.rand(STEPS, ROWS) < 0.4
    trial = _trial(model)
    first = torch.zeros(ROWS, state_size, device=device)
    for by_step, reason in ((None, STEPWISE), (resets, RESETS)):
        unrolled: Unroll = _call(
            what, trial.unroll, observations, first, None if by_step is None else by_step.numpy()
        )
        _check_shape(what, "logits", unrolled.logits, (STEPS, ROWS, model.num_logits), "[T, B, num_logits]")
        _check_shape(what, "values", unrolled.values, (STEPS, ROWS), "[T, B]")
        rnn_state = first
        outputs: list[PolicyOutput] = []
        for t in range(STEPS):
            if by_step is not None:
                rnn_state = rnn_state * (~by_step[t]).to(device).unsqueeze(-1)
            rows = {key: tensor[t] for key, tensor in observations.items()}
            outputs.append(_call(what, trial.act, rows, rnn_state, True))
            rnn_state = outputs[-1].rnn_state
            _check_shape(what, "an rnn_state", rnn_state, (ROWS, state_size), "[B, state_size]")
        for field in ("logits", "values"):
            acted = torch.stack([output._asdict()[field] for output in outputs])
            _check_equal(what, field, unrolled._asdict()[field], acted, reason)


def _observations(observation_space: gym.spaces.Dict, device: torch.device) -> dict[str, Tensor]:
    """Returns raw observations, [STEPS, ROWS, *shape] by key; a mask allows every action."""
    tensors = {}
    for key, space in observation_space.spaces.items():
        shape = (STEPS, ROWS, *(space.shape or ()))
        if key == ACTION_MASK:
            tensor = torch.ones(shape)
        elif isinstance(space, Indices):
            tensor = torch.randint(min(space.sizes), shape)
        elif space.dtype == np.uint8:
            tensor = torch.randint(256, shape)
        else:
            tensor = torch.randn(shape)
        dtype = torch.from_numpy(np.empty(0, space.dtype)).dtype
        tensors[key] = tensor.to(device, dtype)
    return tensors


def _trial(module: Module) -> Module:
    """Returns a copy, so that the module does not change, as a batch norm does in training mode."""
    return copy.deepcopy(module).eval()


def _call(what: str, function: Callable[..., Any], *inputs: Any) -> Any:
    try:
        return function(*inputs)
    except Exception as error:
        raise NetworkError(f"{what}: forward raised {type(error).__name__}: {error}") from error


def _check_shape(what: str, name: str, output: Any, wanted: tuple[int, ...], given: str) -> None:
    if not isinstance(output, Tensor):
        raise NetworkError(f"{what}: forward returned a {type(output).__name__}, not a tensor")
    if output.shape != wanted:
        raise NetworkError(
            f"{what}: forward returned {name} of shape {list(output.shape)}; it should be {list(wanted)} for "
            f"{given}"
        )


def _check_equal(what: str, name: str, unrolled: Tensor, acted: Tensor, reason: str) -> None:
    difference = float((unrolled - acted).abs().max()) if acted.numel() else 0.0
    largest = float(acted.abs().max()) if acted.numel() else 0.0
    if not difference <= TOLERANCE * max(1.0, largest):  # also of NaN
        raise NetworkError(
            f"{what}: its {name} differ by {difference:.2g} between acting and unrolling: {reason}"
        )
