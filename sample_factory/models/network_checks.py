"""The trial of a network with parts of a user's own, before training starts.

Policy workers compute one step at a time, for any number of agents; a learner computes many steps in one
call. If the results differ, the learner trains on other outputs than the agents have acted on.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.actor_critic import ActorCritic, NetworkOutput
from sample_factory.models.custom_parts import describe, int_attribute, out_size
from sample_factory.models.network_registry import ACTOR_CRITIC, NetworkError, users_parts
from sample_factory.models.towers import TowerActorCritic
from sample_factory.runtime.failures import one_line
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
    model: ActorCritic,
    twin: ActorCritic,
    flags: ModelFlags,
    observation_space: gym.spaces.Dict,
    with_autocast: bool = False,
) -> None:
    """Checks a network with parts that a user has written: runs it on made-up observations, one step at a
    time as when acting, and over many steps as when learning.

    model, twin: networks of the same flags on the CPU, built one after the other; their weights change.
    with_autocast: whether to act under bfloat16 autocast too.

    Raises NetworkError if a part raises, if parts do not fit together, or if acting and learning give
    different outputs, in the same network or in two networks with the same state_dict.
    """
    parts = users_parts(flags)
    if not parts:
        return
    what = f"a network with {' and '.join(describe(part, name) for part, name in parts.items())}"
    if isinstance(model, TowerActorCritic):
        tower = model.each_tower()[-1]
        what += (
            f" (out_size of the encoder {out_size(tower.encoder)}, core {tower.core.out_size}, decoder "
            f"{tower.out_size}; state_size {tower.core.state_size})"
        )
    if next(model.parameters(), None) is None:
        raise NetworkError(f"{what} has no parameters to train")
    int_attribute(model, "state_size", "the floats that an agent remembers", ACTOR_CRITIC)
    with torch.random.fork_rng(devices=[]), _named(what):
        torch.manual_seed(0)
        observations = made_up_observations(observation_space, STEPS, ROWS, model.device)
        _compare(model, twin, observations)
        seen = {key: tensor[0] for key, tensor in observations.items()}
        first = torch.zeros(ROWS, model.state_size)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=with_autocast):
            model.eval().act(seen, first, deterministic=True)


def _compare(model: ActorCritic, twin: ActorCritic, observations: Mapping[str, Tensor]) -> None:
    """Compares the outputs of `model` acting step by step with outputs for many steps in one call: of
    `model`, without and with resets, and of `twin` with the same weights, in evaluation and in training mode.
    Raises NetworkError for the first difference, with its likely cause."""
    some_resets = np.zeros((STEPS, ROWS), bool)
    some_resets[[0, 1, 2], [0, 1, 0]] = True
    for weight in model.parameters():
        if not weight.any():  # layers that start at 0 would hide a difference
            nn.init.normal_(weight)
    twin.load_state_dict(model.state_dict())
    for learner, is_training, resets, reason in (
        (model, False, None, STEPWISE),
        (model, False, some_resets, RESETS),
        (twin, False, None, OUTSIDE),
        (twin, True, None, MODES),
    ):
        learner.train(is_training)  # which a user's network may override, and return nothing
        learned = _unroll(learner, observations, torch.zeros(ROWS, learner.state_size), resets)
        acted = _act_step_by_step(model.eval(), observations, resets)
        unrolls = learned.logits, learned.values, learned.rnn_state
        for name, unrolled, stepwise in zip(NetworkOutput._fields, unrolls, acted):
            # NaN in the same places is no difference: made-up observations may be impossible ones.
            unrolled, stepwise = unrolled.nan_to_num(), stepwise.nan_to_num()
            difference = float((unrolled - stepwise).abs().max()) if stepwise.numel() else 0.0
            largest = float(stepwise.abs().max()) if stepwise.numel() else 0.0
            if difference > TOLERANCE * max(1.0, largest):
                raise NetworkError(f"its {name} differ by {difference:.2g} {reason}")


def _act_step_by_step(
    model: ActorCritic, observations: Mapping[str, Tensor], resets: np.ndarray | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs the network as when acting, one call per step and row. Returns logits [T, B, L], values [T, B] and
    the last rnn_state [B, state_size]."""
    logits = torch.zeros(STEPS, ROWS, model.num_logits)
    values = torch.zeros(STEPS, ROWS)
    rnn_state = torch.zeros(ROWS, model.state_size)
    for t in range(STEPS):
        for row in range(ROWS):
            if resets is not None and resets[t, row]:
                rnn_state[row] = 0
            seen = {key: tensor[t : t + 1, row : row + 1] for key, tensor in observations.items()}
            output = _unroll(model, seen, rnn_state[row : row + 1])
            logits[t, row], values[t, row], rnn_state[row] = output.logits, output.values, output.rnn_state
    return logits, values, rnn_state


def _unroll(
    model: ActorCritic,
    observations: Mapping[str, Tensor],
    rnn_state: Tensor,
    resets: np.ndarray | None = None,
) -> NetworkOutput:
    """Calls `model.unroll` and returns its output. Raises NetworkError if the call raises or an output has a
    wrong shape."""
    output = model.unroll(observations, rnn_state, resets)
    shape = next(iter(observations.values())).shape[:2]
    _check_shape("logits", output.logits, (*shape, model.num_logits), "[T, B, num_logits]")
    _check_shape("values", output.values, (*shape,), "[T, B]")
    _check_shape("an rnn_state", output.rnn_state, (shape[1], model.state_size), "[B, state_size]")
    return output


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Turns every error into a NetworkError that names the network by `what`."""
    try:
        yield
    except NetworkError as error:
        raise NetworkError(f"{what}: {error}") from None
    except Exception as error:  # whatever a user's network raises
        raise NetworkError(f"{what}: forward raised {one_line(error)}") from error


def _check_shape(name: str, output: Any, wanted: tuple[int, ...], meaning: str) -> None:
    shape = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if shape != list(wanted):
        raise NetworkError(
            f"forward returned {name} of shape {shape}; it should be {list(wanted)}: {meaning}"
        )


def made_up_observations(
    observation_space: gym.spaces.Dict, num_steps: int, num_rows: int, device: torch.device
) -> dict[str, Tensor]:
    """Returns random raw observations within the space, [num_steps, num_rows, *shape] by key. An action mask
    allows every action."""
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
