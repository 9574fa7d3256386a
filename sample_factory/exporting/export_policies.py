"""Exports the policies of an experiment: loads, converts, compares, writes."""

import contextlib
import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor

from sample_factory.config import VERSION
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import write_atomically
from sample_factory.config.flags import ConfigError
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import EnvInfo, env_info, own_spaces
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvAround, EnvConfig, MultiAgentEnv, ObservationRows, StepResult
from sample_factory.evaluation.env_choice import explains_other_env, make_env
from sample_factory.evaluation.policy import build_model, load_weights
from sample_factory.evaluation.policy_choice import PolicyChoice, find_checkpoint, names_file
from sample_factory.evaluation.session import Events, Session
from sample_factory.evaluation.session_plan import Cast, FirstEnv, SavedPolicy, plan_single
from sample_factory.exchange.run_plan import RANDOM_PLAYER
from sample_factory.exporting.network import (
    NEXT_RNN_STATE,
    RNN_STATE,
    ActionPart,
    ExportedNetwork,
    ExportFailed,
    describe_actions,
    to_onnx,
)
from sample_factory.launch.checks import log_flags_without_effect
from sample_factory.models.actor_critic import ActorCritic, PolicyOutput
from sample_factory.runtime.supervisor import StopSignals
from sample_factory.spaces.actions import choices, clipping_bounds
from sample_factory.spaces.observations import without_entries

TOLERANCE = 1e-4  # of a number, relative to it if it is above 1
MANY_ROWS = 7  # steps that are compared once more, as one batch of another size
MAX_AGENTS = 64  # of a kind, for envs with a thousand copies

Arrays = dict[str, np.ndarray]


class CheckResult(NamedTuple):
    """Says how far the outputs of an exported policy differ from the outputs of the trained one.
    largest: the largest difference between two numbers, relative to the number if its size is above 1.
    where: name of the output with the largest difference.
    steps, episodes: numbers of compared steps and of ended episodes, summed over the agents."""

    largest: float
    where: str
    steps: int
    episodes: int


class ExportedPolicy(NamedTuple):
    """A file with an exported policy.
    check: how far the exported policy differs from the trained one.
    summary: a few lines of text for the console."""

    path: Path
    check: CheckResult
    summary: str


def export_policies(config: Config) -> list[ExportedPolicy]:
    """Writes an ONNX file for each policy of --policy_index.

    If agents differ in their spaces and a single index is given, the policies of all kinds of agents are
    exported. A checkpoint file, --checkpoint=FILE, has one policy, so only that policy is exported.

    Raises ConfigError for a missing checkpoint or a file that cannot be written, CheckpointError for an
    unusable checkpoint, ExportFailed for a network that cannot be exported, and any exception of the env.
    """
    policies = config.evaluation.policy_index
    checkpoints = config.evaluation.checkpoint or (config.monitoring.load_checkpoint_kind,)
    if len(checkpoints) > 1:
        raise ConfigError(f"--checkpoint has {len(checkpoints)} values; one file is made of one checkpoint")
    for policy in policies:
        find_checkpoint(config, PolicyChoice(policy, checkpoints[0]))  # raises, before the env is made
    family = resolve_family(config.env_name)
    with explains_other_env(config):
        env = FirstEnv(functools.partial(make_env, config, family, False))
    with contextlib.closing(env):
        info = env_info(env.env, config.namespace())
        kinds = info.kinds
        log_flags_without_effect(config, kinds)
        num_kinds = len(kinds.spaces)
        if len(policies) == 1 and not names_file(checkpoints[0]):
            first = policies[0] - policies[0] % num_kinds
            policies = tuple(range(first, first + num_kinds)) if num_kinds > 1 else policies
        return [
            _export(config, family, env, info, PolicyChoice(policy, checkpoints[0]), path)
            for policy, path in zip(policies, _paths(config, policies), strict=True)
        ]


def _paths(config: Config, policies: Sequence[int]) -> list[Path]:
    """Returns the path of each policy's ONNX file, in the order of `policies`, and creates the folder for
    the files. Raises ConfigError if the folder cannot be created."""
    given: str | None = config.extra["export"].export_path
    path = config.experiment_dir / "policy.onnx" if given is None else Path(given).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--export_path={given}: {path.parent} is no folder to write to: {error}") from None
    if given is not None and len(policies) == 1:
        return [path]
    return [path.with_name(f"{path.stem}_{policy}.onnx") for policy in policies]


def _export(
    config: Config, family: EnvFamily, env: FirstEnv, info: EnvInfo, choice: PolicyChoice, path: Path
) -> ExportedPolicy:
    flags = config.extra["export"]
    kinds = info.kinds
    kind = choice.policy_index % len(kinds.spaces)
    own = own_spaces(env.env)[kinds.of_agent.index(kind)]
    spaces = kinds.spaces[kind]
    with explains_other_env(config, warns=False):
        model = build_model(config, choice.policy_index, *spaces)
        state = load_weights(config, choice, model)
    model = model.to("cpu").eval()
    view = without_entries(spaces.observation, config.model.critic_only_keys)
    network = ExportedNetwork(model, own, view, flags.export_value)
    exported = to_onnx(network)
    actions: list[dict[str, Any]] = []

    def describe() -> None:
        if not actions:  # after the first reset
            actions.extend(describe_actions(env.env, own, network.actions))

    steps = play_steps(config, env, info, choice, flags.export_check_steps, describe)
    check = compare(model, network, exported, steps)
    texts = {
        "sample_factory": VERSION,
        "env": config.env_name,
        "env_kwargs": config.flat().get("env_kwargs", "{}"),  # some families have no such flag
        "env_frameskip": (config.env.env_frameskip or 1) * family.action_repeat,
        "env_framestack": config.env.env_framestack,
        "experiment": config.run.experiment,
        "policy_index": choice.policy_index,
        "checkpoint": Path(choice.checkpoint).name,  # of a file, not its folders
        "train_steps": state.get("train_step", 0),
        "env_frames": state.get("env_steps", 0),
        "rnn_state_size": model.state_size,
        "observations": json.dumps([entry.describe() for entry in network.observations]),
        "actions": json.dumps(actions),
    }
    onnx.helper.set_model_props(exported, {name: str(value) for name, value in texts.items()})
    contents: bytes = exported.SerializeToString()
    try:
        write_atomically(path, contents)
    except OSError as error:
        raise ConfigError(f"--export_path: cannot write {path}: {error.strerror}") from None
    summary = (
        f"{choice}: {path} ({len(contents) / 1e6:.1f} MB)\n"
        f"  inputs   {', '.join(network.inputs)}\n"
        f"  outputs  {', '.join(network.outputs)}\n"
        f"  largest difference to torch {check.largest:.1e} ({check.where}), in {check.steps} steps, "
        f"{check.episodes} episodes"
    )
    return ExportedPolicy(path, check, summary)


class PlayedStep(NamedTuple):
    """One step of the A agents that a policy plays.

    stored: observations before the step, key -> [A, ...], as the network gets them.
    keeps: bool [A], whether the recurrent state is kept after the step; False for an agent that was inactive
        or whose episode ended.
    ended: bool [A], whether the episode ended in this step.
    """

    stored: Arrays
    keeps: np.ndarray
    ended: np.ndarray


class _KeepingEnv(EnvAround):
    """Wraps an env, and appends the first `num_steps` steps of the given agents to a list."""

    def __init__(self, env: MultiAgentEnv, agents: np.ndarray, num_steps: int, steps: list[PlayedStep]):
        super().__init__(env)
        self._agents = agents
        self._num_steps = num_steps
        self._steps = steps

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        active = self._env.reset(seed, into)
        self._see(active, into)
        return active

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        result = self._env.step(actions, into)
        if len(self._steps) < self._num_steps:
            ended = np.logical_or(result.terminated, result.truncated)[self._agents]
            # The networks run on the rows of inactive agents too: in training, they do not.
            self._steps.append(PlayedStep(self._seen, self._active & ~ended, ended))
        self._see(result.active, into)
        return result

    def _see(self, active: np.ndarray | None, rows: ObservationRows) -> None:
        views = [rows.view(int(agent)) for agent in self._agents]
        self._seen = {key: np.stack([view[key] for view in views]) for key in views[0]}
        everyone = np.ones(len(self._agents), bool)
        self._active = everyone if active is None else active[self._agents].copy()


def play_steps(
    config: Config,
    env: FirstEnv,
    info: EnvInfo,
    choice: PolicyChoice,
    num_steps: int,
    on_step: Callable[[], None],
) -> list[PlayedStep]:
    """Plays `num_steps` steps with a policy, and returns the steps of its agents; agents of other kinds act
    at random.
    on_step: called after the first reset, and after each step."""
    kinds = info.kinds
    num_kinds = len(kinds.spaces)
    kind = choice.policy_index % num_kinds
    agents = np.flatnonzero(np.array(kinds.of_agent) == kind)[:MAX_AGENTS]
    players = [SavedPolicy(config, choice) if other == kind else RANDOM_PLAYER for other in range(num_kinds)]
    seated = Cast(players, seats=kinds.of_agent)
    steps: list[PlayedStep] = []

    def keep(env: MultiAgentEnv, env_config: EnvConfig) -> MultiAgentEnv:
        return _KeepingEnv(env, agents, num_steps, steps)

    on_cpu = replace(config.run, seed=config.run.seed or 0, device="cpu")
    drawn = replace(config.evaluation, eval_deterministic=False, continuous_actions_sample=True)
    own = replace(config, run=on_cpu, evaluation=drawn)
    plan = plan_single(own, env, info, seated, around=[keep])
    session = Session(plan, seated, Events(is_over=lambda: len(steps) >= num_steps, on_step=on_step))
    session.play(StopSignals())  # without handlers: Ctrl+C ends the command
    return steps


def compare(
    model: ActorCritic, network: ExportedNetwork, exported: onnx.ModelProto, steps: Sequence[PlayedStep]
) -> CheckResult:
    """Compares all outputs of an exported policy with the outputs of the trained one, on observations of
    played steps.

    Each of the two carries its own recurrent state from step to step.

    model: the trained policy, on the CPU in float32. network: made from `model`.
    exported: made from `network`.
    Raises ExportFailed for a difference above 1e-4.
    """
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    differences: list[tuple[float, str]] = []

    def check(stored: Arrays, state: Tensor, memory: np.ndarray, place: str) -> tuple[Tensor, Arrays]:
        """Runs both policies on the same B observations and records their largest difference. Returns the
        next recurrent state of the trained policy, [B, H], and the outputs of the exported policy by name.
        stored: observations, key -> [B, ...], as the network gets them. state, memory: recurrent state of the
            trained and of the exported policy, [B, H]. place: describes the step, for error messages."""
        inputs = {entry.name: entry.as_given(stored[entry.key]) for entry in network.observations}
        if model.state_size:
            inputs[RNN_STATE] = memory
        outputs: Arrays = dict(zip(network.outputs, session.run(network.outputs, inputs)))
        output = model.act({key: torch.from_numpy(x) for key, x in stored.items()}, state, deterministic=True)
        differences.append(_largest_difference(model, network, output, outputs, place))
        return output.rnn_state, outputs

    state = torch.zeros(len(steps[0].keeps), model.state_size)
    own_state = state.numpy().copy()
    states = []
    for number, step in enumerate(steps):
        states.append(state)
        next_state, outputs = check(step.stored, state, own_state, f"step {number}")
        state = next_state * torch.from_numpy(step.keeps[:, None])
        own_state = outputs.get(NEXT_RNN_STATE, own_state) * step.keeps[:, None]
    chosen = range(0, len(steps), max(1, len(steps) // MANY_ROWS))
    stored = {key: np.concatenate([steps[i].stored[key] for i in chosen]) for key in steps[0].stored}
    state = torch.cat([states[i] for i in chosen])
    check(stored, state, state.numpy(), f"a batch of {len(state)}")
    num_episodes = sum(int(step.ended.sum()) for step in steps)
    return CheckResult(*max(differences), len(steps) * len(steps[0].keeps), num_episodes)


def _largest_difference(
    model: ActorCritic, network: ExportedNetwork, output: PolicyOutput, outputs: Arrays, place: str
) -> tuple[float, str]:
    """Returns the largest difference between outputs of the trained and the exported policy, and the name of
    the output in which it occurs.

    output: outputs of the trained policy. outputs: name -> output of the exported policy. place: describes
        the step, for the error message.
    Raises ExportFailed for a difference above 1e-4, and for another shape or dtype.
    """
    parts = {part.action: part for part in network.actions}
    differences = []
    for name, tensor in zip(network.outputs, network.outputs_of(model, output)):
        exported, trained = outputs[name], tensor.numpy()
        if exported.shape != trained.shape or exported.dtype != trained.dtype:
            fault = f"is {exported.dtype} {exported.shape}, and should be {trained.dtype} {trained.shape}"
            raise ExportFailed(f"the exported policy differs in {place}: {name} {fault}; nothing was written")
        if name in parts:
            exported, trained = _comparable(model, parts[name], output, exported, trained)
        difference = _difference(exported, trained)
        if difference > TOLERANCE:
            fault = f"by {difference:.2g}, where {TOLERANCE:g} is allowed"
            raise ExportFailed(f"the exported policy differs in {place}: {name} {fault}; nothing was written")
        differences.append((difference, name))
    return max(differences)


def _comparable(
    model: ActorCritic, part: ActionPart, output: PolicyOutput, exported: np.ndarray, trained: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Converts an action of the exported policy and of the trained one, `exported` and `trained`, to numbers
    that can be compared: log-probabilities of choices, since two choices may be equally likely, and integers
    before they are rounded.
    output: all outputs of the trained policy."""
    if not part.is_box:
        # Log-probabilities of the choices: two choices may be equally likely.
        rows = output.actions.clone()
        rows[:, part.values] = (
            torch.from_numpy(exported - choices(part.space)[1]).reshape(len(rows), -1).float()
        )
        log_prob = model.distribution(output.logits).log_prob
        return log_prob(rows).numpy(), log_prob(output.actions).numpy()
    if trained.dtype.kind != "f":
        # Numbers before they are rounded: one may be halfway between two integers.
        bounds = clipping_bounds(cast(gym.spaces.Box, part.space))
        trained = output.actions[:, part.values].numpy().reshape(exported.shape).clip(*bounds)
        exported = trained + np.maximum(np.abs(exported - trained) - 0.5, 0.0)
    return exported, trained


def _difference(exported: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference between two arrays, relative to an expected number if its size is above
    1; inf if a number is not finite."""
    if not expected.size:
        return 0.0
    expected = expected.astype(np.float64)
    largest = float((np.abs(exported - expected) / np.maximum(1.0, np.abs(expected))).max())
    return largest if math.isfinite(largest) else math.inf
