"""Tries out the parts of a network that users have written, before training starts.

Policy workers compute one step at a time, for any number of agents; a learner computes many steps in one
call. If the results differ, the learner trains on other outputs than the agents have acted on.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from sample_factory.config.sections import ModelFlags
from sample_factory.models.actor_critic import ActorCritic, NetworkOutput
from sample_factory.models.cores import Core
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
from sample_factory.models.normalizers import autocast_dtype
from sample_factory.models.towers import TowerActorCritic
from sample_factory.spaces.actions import ACTION_MASK
from sample_factory.spaces.observations import Indices

STEPS = 4
ROWS = 3
# Relative to the largest number: with another batch size, sums have another order.
TOLERANCE = 1e-3
BF16_TOLERANCE = 0.1
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

Module = TypeVar("Module", bound=nn.Module)
At = tuple[slice, slice]  # steps and rows
EVERYTHING = (slice(None), slice(None))


@torch.no_grad()
def check_network(
    model: ActorCritic, flags: ModelFlags, observation_space: gym.spaces.Dict, with_autocast: bool
) -> None:
    """Runs each part that a user has written, then the whole network, on made-up inputs; changes neither them
    nor torch's random state.

    with_autocast: under bfloat16 autocast too. Raises NetworkError, with what would be right, if a part
    raises, if the shape of its output is not as it says, if acting step by step and unrolling differ, or if
    the parts do not fit together.
    """
    parts = users_parts(flags)
    if not parts:
        return
    if next(model.parameters(), None) is None:
        raise NetworkError(f"{describe(ACTOR_CRITIC, parts[ACTOR_CRITIC])} has no parameters to train")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for autocast in {False, with_autocast}:
            with torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
                _check_parts(model, parts, observation_space)
                _check_acting(model, parts, observation_space, autocast)


@torch.no_grad()
def check_copies(
    model: ActorCritic, twin: ActorCritic, flags: ModelFlags, observation_space: gym.spaces.Dict
) -> None:
    """Checks that a learner, an actor and a resumed run compute the same with a user's part.

    model, twin: networks of the same flags on the CPU, built one after the other; their weights change.
    Raises NetworkError if outputs depend on numbers outside of the state_dict, or on the training mode.
    """
    parts = users_parts(flags)
    if not parts:
        return
    what = _describe_network(parts)
    with torch.random.fork_rng(devices=[]):
        observations = made_up_observations(observation_space, STEPS, ROWS, model.device)
        for weight in model.parameters():
            if weight.dim() > 1 and not weight.any():  # layers that start at 0 would hide a difference
                nn.init.normal_(weight)
        _call(what, twin.load_state_dict, model.state_dict())
        outputs = []
        for network, is_training in ((model, False), (twin, False), (twin, True)):
            torch.manual_seed(0)
            first = torch.zeros(ROWS, network.state_size)
            outputs.append(_call(what, network.train(is_training).unroll, observations, first))
    acted, of_twin, trained = outputs
    for reason, other in ((OUTSIDE, of_twin), (MODES, trained)):
        # NaN in the same places is no difference: made-up observations may be impossible ones.
        _check_equal(what, "logits", other.logits.nan_to_num(), acted.logits.nan_to_num(), reason)
        _check_equal(what, "values", other.values.nan_to_num(), acted.values.nan_to_num(), reason)


def _check_parts(model: ActorCritic, parts: Mapping[str, str], observation_space: gym.spaces.Dict) -> None:
    device = model.device
    if ACTOR_CRITIC in parts:
        _check_actor_critic(parts[ACTOR_CRITIC], model, observation_space, device)
        return
    assert isinstance(model, TowerActorCritic)
    for tower in model.each_tower():
        if ENCODER in parts:
            check_encoder(parts[ENCODER], tower.encoder, tower.observation_space, device)
        if CORE in parts:
            _check_core(parts[CORE], tower.core, out_size(tower.encoder), device)
        if DECODER in parts:
            what = describe(DECODER, parts[DECODER])
            in_size = tower.core.out_size
            output = _call(what, _trial(tower.decoder), torch.randn(STEPS, ROWS, in_size, device=device))
            wanted = (STEPS, ROWS, out_size(tower.decoder, DECODER))
            _check_shape(what, "features", output, wanted, f"[{STEPS}, {ROWS}, {in_size}]: [T, B, out_size]")


def _check_acting(
    model: ActorCritic, parts: Mapping[str, str], observation_space: gym.spaces.Dict, autocast: bool
) -> None:
    """Acts once, as a policy worker does, with observations of zeros, or of what the space has next to 0; a
    mask allows every action. Raises NetworkError if that raises."""
    observations = {}
    for key, space in observation_space.spaces.items():
        assert isinstance(space, gym.spaces.Box)
        row = np.clip(np.full(space.shape, key == ACTION_MASK, space.dtype), space.low, space.high)
        observations[key] = torch.from_numpy(np.stack([row] * ROWS)).to(model.device)
    trial = _trial(model).requires_grad_(False)
    if autocast:
        trial.prepare_to_act(torch.bfloat16)
    what = _describe_network(parts)
    first = torch.zeros(ROWS, trial.state_size, device=model.device)
    _call(what, lambda: trial.act(observations, first, True, True))


def _describe_network(parts: Mapping[str, str]) -> str:
    return f"a network with {' and '.join(describe(part, name) for part, name in parts.items())}"


def check_encoder(
    name: str, encoder: nn.Module, observation_space: gym.spaces.Dict, device: torch.device
) -> None:
    """Encodes two observations of zeros. Raises NetworkError if forward raises, or does not return
    [2, out_size]."""
    rows = {
        key: torch.zeros((2, *space.shape), dtype=_encoded_dtype(space, device), device=device)
        for key, space in encoded_spaces(observation_space).items()
    }
    what = describe(ENCODER, name)
    output = _call(what, _trial(encoder), rows)
    _check_shape(what, "features", output, (2, out_size(encoder)), "2 rows: [B, out_size]")


def _encoded_dtype(space: gym.spaces.Box, device: torch.device) -> torch.dtype:
    """Returns the dtype in which ObservationNormalizers give an observation to an encoder."""
    if isinstance(space, Indices):
        return torch.int64
    return autocast_dtype(device) if len(space.shape) >= 3 else torch.float32


def _check_core(name: str, core: Core, in_size: int, device: torch.device) -> None:
    """Checks that a core gives the same whether all steps of a trajectory are one call or each step is one.

    core: from `make_core`. Raises NetworkError.
    """
    what = f"{describe(CORE, name)} with state_size {core.state_size}"
    encodings = torch.randn(STEPS, ROWS, in_size, device=device)
    trial = _trial(core)

    def run(at: At, rnn_state: Tensor, resets: np.ndarray | None) -> tuple[dict[str, Tensor], Tensor]:
        x = encodings[at]
        outputs, rnn_state = _call(what, trial, x, rnn_state, resets)
        steps, rows, _ = x.shape
        given = f"x {list(x.shape)}: "
        _check_shape(what, "outputs", outputs, (steps, rows, core.out_size), f"{given}[T, B, out_size]")
        _check_shape(what, "an rnn_state", rnn_state, (rows, core.state_size), f"{given}[B, state_size]")
        return {"outputs": outputs}, rnn_state

    _check_steps(what, run, torch.zeros(ROWS, core.state_size, device=device))


def _check_actor_critic(
    name: str, model: ActorCritic, observation_space: gym.spaces.Dict, device: torch.device
) -> None:
    """Checks the same of a whole network; see `_check_core`."""
    what = describe(ACTOR_CRITIC, name)
    state_size = int_attribute(model, "state_size", "the floats that an agent remembers", ACTOR_CRITIC)
    observations = made_up_observations(observation_space, STEPS, ROWS, device)
    trial = _trial(model)

    def run(at: At, rnn_state: Tensor, resets: np.ndarray | None) -> tuple[dict[str, Tensor], Tensor]:
        seen = {key: tensor[at] for key, tensor in observations.items()}
        output: NetworkOutput = _call(what, trial.unroll, seen, rnn_state, resets)
        steps = STEPS if at == EVERYTHING else 1
        rows = len(rnn_state)
        _check_shape(what, "logits", output.logits, (steps, rows, model.num_logits), "[T, B, num_logits]")
        _check_shape(what, "values", output.values, (steps, rows), "[T, B]")
        _check_shape(what, "an rnn_state", output.rnn_state, (rows, state_size), "[B, state_size]")
        return {"logits": output.logits, "values": output.values}, output.rnn_state.float()

    _check_steps(what, run, torch.zeros(ROWS, state_size, device=device))


def _check_steps(
    what: str, run: Callable[[At, Tensor, np.ndarray | None], tuple[dict[str, Tensor], Tensor]], first: Tensor
) -> None:
    """Compares one call for all steps with calls for one step of one row each, with and without resets.

    run(at, rnn_state, resets): returns outputs [T, B, ...] by name and the next rnn_state [B, S] for the
    steps and rows `at`. first: [ROWS, S], the rnn_state before the first step.
    """
    some_resets = np.zeros((STEPS, ROWS), bool)
    some_resets[[0, 1, 2], [0, 1, 0]] = True
    for resets, reason in ((None, STEPWISE), (some_resets, RESETS)):
        unrolled, last = run(EVERYTHING, first, resets)
        acted = {name: torch.empty_like(tensor) for name, tensor in unrolled.items()}
        last_acted = torch.empty_like(last)
        for row in range(ROWS):
            rnn_state = first[row : row + 1]
            for t in range(STEPS):
                if resets is not None and resets[t, row]:
                    rnn_state = torch.zeros_like(rnn_state)
                outputs, rnn_state = run((slice(t, t + 1), slice(row, row + 1)), rnn_state, None)
                for name, output in outputs.items():
                    acted[name][t, row] = output[0, 0]
            last_acted[row] = rnn_state[0]
        for name, tensor in unrolled.items():
            _check_equal(what, name, tensor, acted[name], reason)
        _check_equal(what, "rnn_state", last, last_acted, reason)


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


def _trial(module: Module) -> Module:
    """Returns a copy in evaluation mode: a call would change e.g. the statistics of a batch norm."""
    return copy.deepcopy(module).eval()


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
    difference = float((unrolled - acted).abs().max()) if acted.numel() else 0.0
    largest = float(acted.abs().max()) if acted.numel() else 0.0
    tolerance = TOLERANCE if autocast_dtype(acted.device) == torch.float32 else BF16_TOLERANCE
    if not difference <= tolerance * max(1.0, largest):  # also of NaN
        raise NetworkError(f"{what}: its {name} differ by {difference:.2g} {reason}")
