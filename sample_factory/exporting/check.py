"""Compares an exported policy with the trained one, in episodes of the env."""

import math
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor

from sample_factory.envs.protocol import MultiAgentEnv, ObservationRows
from sample_factory.envs.random_actions import RandomActions
from sample_factory.exporting.network import NEXT_RNN_STATE, RNN_STATE, ExportedNetwork, ExportFailed
from sample_factory.models.actor_critic import ActorCritic

TOLERANCE = 1e-4  # of a number, relative to it if it is above 1
MANY_ROWS = 7  # steps that are compared once more, as one batch of another size
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
    agents: indices of agents, all of the policy's kind. Raises ExportFailed for a difference above 1e-4.
    """
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    choices = {part.action: part for part in network.actions if not part.is_box}
    worst = (0.0, network.outputs[0])

    def check(stored: Arrays, state: Tensor, memory: np.ndarray, place: str) -> tuple[Tensor, Tensor, Arrays]:
        """Returns the trained policy's logits and next state [B, ...], and the exported one's outputs."""
        nonlocal worst
        inputs = {entry.name: entry.as_given(stored[entry.key]) for entry in network.observations}
        if model.state_size:
            inputs[RNN_STATE] = memory
        outputs: Arrays = dict(zip(network.outputs, session.run(network.outputs, inputs)))
        output = model.act({key: torch.from_numpy(x) for key, x in stored.items()}, state, deterministic=True)
        for name, tensor in zip(network.outputs, network.outputs_of(model, output)):
            own, right = outputs[name], tensor.numpy()
            fault = ""
            if own.shape != right.shape or own.dtype != right.dtype:
                fault = f"is {own.dtype} {own.shape}, and should be {right.dtype} {right.shape}"
            elif name in choices:  # their probabilities are compared: two choices may be equally likely
                space: Any = choices[name].space
                rows = output.actions.clone()
                rows[:, choices[name].values] = torch.from_numpy(own - space.start).reshape(len(rows), -1)
                log_prob = model.distribution(output.logits).log_prob
                own, right = log_prob(rows).numpy(), log_prob(output.actions).numpy()
            difference = math.inf if fault else _difference(own, right)
            if difference > TOLERANCE:
                fault = f"{name} {fault or f'by {difference:.2g}, where {TOLERANCE:g} is allowed'}"
                raise ExportFailed(f"the exported policy differs in {place}: {fault}; nothing was written")
            worst = max(worst, (difference, name))
        return output.logits, output.rnn_state, outputs

    agents = agents[:MAX_AGENTS]
    env_rows = ObservationRows.allocate(env.kinds)
    others = RandomActions(env.kinds, seed)
    everyone = np.ones(env.num_agents, bool)
    active = env.reset(seed, env_rows)
    active = everyone if active is None else active
    state = torch.zeros(len(agents), model.state_size)
    own_state = state.numpy().copy()
    played: list[tuple[Arrays, Tensor]] = []
    episodes = 0
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        for step in range(num_steps):
            stored = {key: array[agents, 0] for key, array in env_rows.arrays_of(int(agents[0])).items()}
            logits, next_state, outputs = check(stored, state, own_state, f"step {step}")
            played.append((stored, state))
            actions = others(env_rows)
            drawn = model.distribution(logits).sample().numpy()
            actions[agents, : drawn.shape[1]] = drawn
            actions[~active] = 0.0
            result = env.step(actions, env_rows)
            ended = np.asarray(result.terminated) | np.asarray(result.truncated)
            # The networks have run on the rows of inactive agents too: in training, they do not.
            keeps = (active & ~ended)[agents, None]
            active = everyone if result.active is None else result.active
            state = next_state * torch.from_numpy(keeps)
            own_state = outputs.get(NEXT_RNN_STATE, own_state) * keeps
            episodes += int(ended[agents].sum())
    several = played[:: max(1, len(played) // MANY_ROWS)]
    stored = {key: np.concatenate([arrays[key] for arrays, _ in several]) for key in several[0][0]}
    state = torch.cat([state for _, state in several])
    check(stored, state, state.numpy(), f"a batch of {len(state)}")
    return CheckResult(*worst, num_steps * len(agents), episodes)


def _difference(exported: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference, of numbers above 1 relative to them; inf if one is not finite."""
    if not expected.size:
        return 0.0
    expected = expected.astype(np.float64)
    largest = float((np.abs(exported - expected) / np.maximum(1.0, np.abs(expected))).max())
    return largest if math.isfinite(largest) else math.inf
