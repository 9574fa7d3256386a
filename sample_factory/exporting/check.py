"""Compares an exported policy with the trained one, in episodes of the env."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor

from sample_factory.envs.protocol import MultiAgentEnv, ObservationRows
from sample_factory.envs.random_actions import RandomActions
from sample_factory.exporting.network import denormalized_values
from sample_factory.exporting.signature import NEXT_RNN_STATE, RNN_STATE, VALUE, ActionPart, Signature
from sample_factory.exporting.to_onnx import ExportFailed
from sample_factory.models.action_distributions import MAX_LOG_STD, MIN_LOG_STD
from sample_factory.models.actor_critic import ActorCritic, PolicyOutput
from sample_factory.spaces.actions import batch_action_decoder

TOLERANCE = 1e-4  # of a number, relative to it if it is above 1
MANY_ROWS = 7  # rows of a batch of another size than the number of agents
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


class Check:
    """Plays with both policies, each with a recurrent state of its own, and compares all their outputs.

    The actions are drawn from the distribution of the trained policy; agents that it does not play act at
    random.
    """

    def __init__(self, model: ActorCritic, exported: onnx.ModelProto, signature: Signature):
        """model: the trained one, as for `enjoy`, on the CPU in float32."""
        self._model = model
        self._signature = signature
        self._session = onnxruntime.InferenceSession(
            exported.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self._largest = 0.0
        self._where = signature.outputs[0]

    def play(self, env: MultiAgentEnv, agents: np.ndarray, num_steps: int, seed: int) -> CheckResult:
        """Plays with the agents in `agents`, all of the policy's kind, for a number of steps of the env.

        Raises ExportFailed for a difference above 1e-4, and what the env raises.
        """
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            return self._play(env, agents[:MAX_AGENTS], num_steps, seed)

    def _play(self, env: MultiAgentEnv, agents: np.ndarray, num_steps: int, seed: int) -> CheckResult:
        rows = ObservationRows.allocate(env.kinds)
        others = RandomActions(env.kinds, seed)
        active = _mask(env.reset(seed, rows), env.num_agents)
        state = torch.zeros(len(agents), self._model.state_size)
        own_state = state.numpy().copy()
        kept: list[tuple[Arrays, Tensor]] = []
        episodes = 0
        for step in range(num_steps):
            stored = {key: array[agents, 0] for key, array in rows.arrays_of(int(agents[0])).items()}
            output, own_state_after = self._compare(stored, state, own_state, f"step {step}")
            kept.append((stored, state))
            actions = others(rows)
            drawn = self._model.distribution(output.logits).sample().numpy()
            actions[agents, : drawn.shape[1]] = drawn
            actions[~active] = 0.0
            result = env.step(actions, rows)
            ended = np.asarray(result.terminated) | np.asarray(result.truncated)
            is_active = _mask(result.active, env.num_agents)
            keeps = ~(ended | (active & ~is_active))[agents, None]
            active = is_active
            state = output.rnn_state * torch.from_numpy(keeps)
            own_state = own_state_after * keeps
            episodes += int(ended[agents].sum())
        self._compare_many_rows(kept)
        return CheckResult(self._largest, self._where, num_steps * len(agents), episodes)

    def _compare_many_rows(self, kept: Sequence[tuple[Arrays, Tensor]]) -> None:
        """Compares a batch of rows from different steps."""
        chosen = kept[:: max(1, len(kept) // MANY_ROWS)]
        stored = {key: np.concatenate([rows[key] for rows, _ in chosen]) for key in chosen[0][0]}
        state = torch.cat([state for _, state in chosen])
        self._compare(stored, state, state.numpy(), f"a batch of {len(state)}")

    def _compare(
        self, stored: Arrays, state: Tensor, own_state: np.ndarray, place: str
    ) -> tuple[PolicyOutput, np.ndarray]:
        """Returns the outputs of the trained policy, and the next recurrent state of the exported one.

        stored: observations [B, ...]. state, own_state: [B, H], of the two. place: for the error.
        """
        tensors = {key: torch.from_numpy(array) for key, array in stored.items()}
        output = self._model.act(tensors, state, deterministic=True)
        expected = self._expected(output)
        outputs = self._session.run(self._signature.outputs, self._inputs(stored, own_state))
        exported = dict(zip(self._signature.outputs, cast(Sequence[np.ndarray], outputs)))
        for name, array in expected.items():
            if exported[name].shape != array.shape or exported[name].dtype != array.dtype:
                raise ExportFailed(
                    f"the exported policy differs in {place}: {name} is {exported[name].dtype} "
                    f"{exported[name].shape}, and should be {array.dtype} {array.shape}; nothing was written"
                )
        is_choice = {part.action for part in self._signature.parts if not part.is_box}
        for name in expected.keys() - is_choice:
            self._count(_difference(exported[name], expected[name]), name, place)
        for part in self._signature.parts:
            if part.action in is_choice:
                self._compare_choices(part, output, exported[part.action], expected[part.action], place)
        return output, exported.get(NEXT_RNN_STATE, own_state)

    def _compare_choices(
        self, part: ActionPart, output: PolicyOutput, exported: np.ndarray, expected: np.ndarray, place: str
    ) -> None:
        """Compares actions [B, ...]; where they differ, the difference is that of their logits: two choices
        may be equally likely."""
        space: Any = part.space
        sizes = [space.n] if isinstance(space, gym.spaces.Discrete) else space.nvec.ravel()
        logits = np.split(output.logits[:, part.logits].numpy(), np.cumsum(sizes)[:-1], axis=1)
        start = np.asarray(space.start)
        rows = [(action - start).reshape(len(action), -1) for action in (exported, expected)]
        for component, own_logits in enumerate(logits):
            own, best = (np.take_along_axis(own_logits, row[:, component, None], 1) for row in rows)
            self._count(_difference(own, best), part.action, place)

    def _inputs(self, stored: Arrays, own_state: np.ndarray) -> Arrays:
        """Returns what the env gave, for the observations as they are stored."""
        inputs = {}
        for entry in self._signature.observations:
            array = stored[entry.key]
            space = entry.space
            if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
                array = array + np.ravel(space.start)
            inputs[entry.name] = array.reshape(-1, *entry.shape).astype(entry.dtype)
        if self._signature.state_size:
            inputs[RNN_STATE] = own_state
        return inputs

    def _expected(self, output: PolicyOutput) -> Arrays:
        """Returns the outputs by name, as the trained policy computes them."""
        expected = {}
        logits = output.logits.numpy()
        for part in self._signature.parts:
            decode = batch_action_decoder(part.space)
            expected[part.action] = decode(output.actions[:, part.values].numpy())
            own = logits[:, part.logits]
            if part.is_box:
                means, log_stds = np.split(own, 2, axis=1)
                own_stds = np.exp(np.clip(log_stds, MIN_LOG_STD, MAX_LOG_STD))
                shape = part.space.shape or ()
                numbers = [means.reshape(-1, *shape), own_stds.reshape(-1, *shape)]
            else:
                numbers = [own]
            expected.update(zip(part.parameters, numbers))
        if self._signature.state_size:
            expected[NEXT_RNN_STATE] = output.rnn_state.numpy()
        if self._signature.has_value:
            expected[VALUE] = denormalized_values(self._model, output.values).numpy()
        return expected

    def _count(self, difference: float, name: str, place: str) -> None:
        if difference > TOLERANCE:
            raise ExportFailed(
                f"the exported policy differs in {place}: {name} by {difference:.2g}, where {TOLERANCE:g} is "
                "allowed; nothing was written"
            )
        if difference > self._largest:
            self._largest = difference
            self._where = name


def _mask(active: np.ndarray | None, num_agents: int) -> np.ndarray:
    """Returns `StepResult.active` as an array also where all agents are active."""
    return np.ones(num_agents, bool) if active is None else active


def _difference(exported: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference, of numbers above 1 relative to them; inf if one is not finite."""
    if not expected.size:
        return 0.0
    expected = expected.astype(np.float64)
    differences = np.abs(exported - expected) / np.maximum(1.0, np.abs(expected))
    largest = float(differences.max())
    return largest if math.isfinite(largest) else math.inf
