"""Compares an exported policy with the trained one, in episodes of the env."""

import math
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor

from sample_factory.envs.protocol import MultiAgentEnv, ObservationRows
from sample_factory.envs.random_actions import RandomActions
from sample_factory.exporting.network import ExportedNetwork, ExportFailed
from sample_factory.exporting.signature import NEXT_RNN_STATE, RNN_STATE, ActionPart, Signature
from sample_factory.models.actor_critic import ActorCritic

TOLERANCE = 1e-4  # of a number, relative to it if it is above 1
MANY_ROWS = 7  # steps whose rows are compared once more as one batch, of another size
MAX_AGENTS = 64  # of a kind, for envs with a thousand copies

Arrays = dict[str, np.ndarray]


class CheckResult(NamedTuple):
    """largest: the largest difference of a number, relative to it if it is above 1; where: its output.

    steps, episodes: how many were played, summed over the agents.
    """

    largest: float
    where: str
    steps: int
    episodes: int


def compare(
    model: ActorCritic,
    network: ExportedNetwork,
    exported: onnx.ModelProto,
    env: MultiAgentEnv,
    agents: np.ndarray,
    num_steps: int,
    seed: int,
) -> CheckResult:
    """Plays `num_steps` steps of the env with both policies, and compares all their outputs.

    Each policy has a recurrent state of its own. The actions are drawn from the distribution of the trained
    policy; agents that it does not play act at random.

    model: the trained policy, on the CPU in float32. network: made from it. exported: made from `network`.
    agents: indices of agents, all of the policy's kind.
    Raises ExportFailed for a difference above 1e-4, and what the env raises.
    """
    signature = network.signature
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    agents = agents[:MAX_AGENTS]
    rows = ObservationRows.allocate(env.kinds)
    others = RandomActions(env.kinds, seed)
    active = _mask(env.reset(seed, rows), env.num_agents)
    state = torch.zeros(len(agents), model.state_size)
    own_state = state.numpy().copy()
    played: list[tuple[Arrays, Tensor]] = []
    worst = (0.0, signature.outputs[0])
    episodes = 0

    def check(stored: Arrays, state: Tensor, own_state: np.ndarray, place: str) -> tuple[Tensor, Any, Any]:
        """Returns the logits and the next states [B, ...] of both policies."""
        nonlocal worst
        tensors = {key: torch.from_numpy(array) for key, array in stored.items()}
        output = model.act(tensors, state, deterministic=True)
        outputs = session.run(signature.outputs, _inputs(signature, stored, own_state))
        expected = [tensor.numpy() for tensor in network.outputs_of(model, output)]
        for name, own, right in zip(signature.outputs, outputs, expected):
            if own.shape != right.shape or own.dtype != right.dtype:
                fault = f"{name} is {own.dtype} {own.shape}, and should be {right.dtype} {right.shape}"
                raise ExportFailed(f"the exported policy differs in {place}: {fault}; nothing was written")
            part = signature.choices.get(name)
            logits = output.logits.numpy()
            difference = _difference(own, right) if part is None else _loss(part, logits, own)
            if difference > TOLERANCE:
                fault = f"{name} by {difference:.2g}, where {TOLERANCE:g} is allowed"
                raise ExportFailed(f"the exported policy differs in {place}: {fault}; nothing was written")
            worst = max(worst, (difference, name))
        return output.logits, output.rnn_state, dict(zip(signature.outputs, outputs)).get(NEXT_RNN_STATE)

    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        for step in range(num_steps):
            stored = {key: array[agents, 0] for key, array in rows.arrays_of(int(agents[0])).items()}
            logits, next_state, next_own_state = check(stored, state, own_state, f"step {step}")
            played.append((stored, state))
            actions = others(rows)
            drawn = model.distribution(logits).sample().numpy()
            actions[agents, : drawn.shape[1]] = drawn
            actions[~active] = 0.0
            result = env.step(actions, rows)
            ended = np.asarray(result.terminated) | np.asarray(result.truncated)
            was_active, active = active, _mask(result.active, env.num_agents)
            keeps = ~(ended | (was_active & ~active))[agents, None]
            state = next_state * torch.from_numpy(keeps)
            own_state = own_state if next_own_state is None else next_own_state * keeps
            episodes += int(ended[agents].sum())
    chosen = played[:: max(1, len(played) // MANY_ROWS)]
    stored = {key: np.concatenate([rows[key] for rows, _ in chosen]) for key in chosen[0][0]}
    state = torch.cat([state for _, state in chosen])
    check(stored, state, state.numpy(), f"a batch of {len(state)}")
    return CheckResult(*worst, num_steps * len(agents), episodes)


def _mask(active: np.ndarray | None, num_agents: int) -> np.ndarray:
    """Returns `StepResult.active` as an array also where all agents are active."""
    return np.ones(num_agents, bool) if active is None else active


def _inputs(signature: Signature, stored: Arrays, own_state: np.ndarray) -> Arrays:
    """Returns the observations as the env gave them, for the rows that are stored."""
    inputs = {}
    for entry in signature.observations:
        array = stored[entry.key]
        space = entry.space
        if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            array = array + np.ravel(space.start)
        inputs[entry.name] = array.reshape(-1, *entry.shape).astype(entry.dtype)
    return {**inputs, RNN_STATE: own_state} if signature.state_size else inputs


def _loss(part: ActionPart, logits: np.ndarray, action: np.ndarray) -> float:
    """Returns how far the logits of the chosen actions lie below the largest ones: two choices may be equally
    likely. logits: [B, L], of the trained policy. action: [B, ...], of the exported one."""
    space: Any = part.space
    sizes = [space.n] if isinstance(space, gym.spaces.Discrete) else space.nvec.ravel()
    choices = (action - np.asarray(space.start)).reshape(len(action), -1, 1)
    components = np.split(logits[:, part.logits], np.cumsum(sizes)[:-1], axis=1)
    return max(
        _difference(np.take_along_axis(own, choices[:, i], axis=1), own.max(axis=1, keepdims=True))
        for i, own in enumerate(components)
    )


def _difference(exported: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference, of numbers above 1 relative to them; inf if one is not finite."""
    if not expected.size:
        return 0.0
    expected = expected.astype(np.float64)
    largest = float((np.abs(exported - expected) / np.maximum(1.0, np.abs(expected))).max())
    return largest if math.isfinite(largest) else math.inf
