"""Plays envs as a rollout worker does: what the learner trains on, and the episodes that are reported."""

import argparse
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sample_factory.envs.env_info import env_info, make_adapted_env
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv, ObservationRows
from sample_factory.envs.random_actions import RandomActions
from sample_factory.exchange.messages import EpisodeReport
from sample_factory.exchange.topology import make_topology
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers, kind_layouts
from sample_factory.sampling.rollout.env_vector import EnvVector
from tests.counting import RAW_REWARDS, make_config
from tests.envs.made import cfg_of
from tests.sampling.matchmaking.matchmakers import random_matchmaker

ROLLOUT = 32
COLUMNS = ("outputs", "rewards", "terminated", "truncated", "policy_ids")  # of the trajectory buffers
Act = Callable[[ObservationRows], np.ndarray]


class Reported(NamedTuple):
    """An episode that the product reports.

    step: number of the step, from 0, in which the episode ended. length: in env frames.
    """

    step: int
    agent: int
    reward: float
    length: int
    objective: float
    stats: Mapping[str, float]
    info: Mapping[str, Any]


class Trained(NamedTuple):
    """T steps of A agents, as they lie in the trajectory buffers.

    actions: [T, A, K] float32. rewards: [T, A] float32, neither scaled nor clipped. terminated, truncated:
    [T, A] bool; after a truncated step the learner bootstraps. acted: [T, A] bool, whether the step is
    trained on. seen: by key, [T + 1, A], the digests of the observations.
    """

    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    acted: np.ndarray
    seen: Mapping[str, np.ndarray]
    episodes: list[Reported]


def digests(batch: np.ndarray) -> np.ndarray:
    """Returns a number for the bytes of each row, [A] int64: pictures of whole runs take gigabytes."""
    return np.array([zlib.crc32(np.ascontiguousarray(row)) for row in batch])


class Unguarded:
    """A GuardedEnv that catches nothing."""

    steps_in_background = False
    resets_itself = False

    def __init__(self, env: MultiAgentEnv):
        self.env, self.name, self.kinds = env, "env", env.kinds
        self.takes_turns = env.takes_turns
        self.close = env.close

    def reset(self, seed: int | None, into: ObservationRows) -> None:
        self.active_after_reset = self.env.reset(seed, into)

    def step(self, actions: np.ndarray, into: ObservationRows) -> Any:
        return self.env.step(actions, into)


def adapted_by_name(env_name: str, render_mode: str | None = None, **flags: Any) -> MultiAgentEnv:
    """Makes an env as a run does, with the defaults of its family."""
    return make_adapted_env(
        resolve_family(env_name), cfg_of(env_name, **flags), EnvConfig(0, 0, 0), render_mode
    )


def train_on(
    env: MultiAgentEnv,
    num_steps: int,
    seed: int = 1,
    act: Act | None = None,
    frameskip: int = 1,
) -> Trained:
    """Plays steps of an env in an EnvVector, and closes it.

    act: called with the rows of the observations; returns the actions, [A, K]; None: random ones. frameskip:
    env frames in a step.
    """
    info = env_info(env, argparse.Namespace(env_frameskip=frameskip))
    num_agents = env.num_agents
    config = make_config(
        worker_num_splits=1, num_envs_per_worker=1, rollout=ROLLOUT, batch_size=ROLLOUT * num_agents
    )
    buffers = TrajectoryBuffers(make_topology(config, info, 0), kind_layouts(info.kinds), 1)
    matchmaker = random_matchmaker(1, info.kinds.of_agent, True, np.random.default_rng(0))
    plan = RAW_REWARDS._replace(reports_infos=True, teams=info.teams)
    vector = EnvVector([Unguarded(env)], [matchmaker], buffers, 0, 0, plan)
    act = act or RandomActions(env.kinds, seed)
    vector.reset([seed], [0], act)
    columns: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}
    seen: list[dict[str, np.ndarray]] = []
    episodes: list[Reported] = []
    for number in range(num_steps):
        memory = vector.memory
        rows, step = memory.buffer_indices, memory.step
        seen.append({key: digests(array[rows, step]) for key, array in buffers.obs.items()})
        actions = act(memory.rows(slice(0, num_agents), step))
        buffers.outputs[rows, step, : actions.shape[1]] = actions
        vector.step()
        episodes += [
            Reported(number, r.agent_id, r.reward, r.length, r.true_objective, r.extra_stats, r.info)
            for r in vector.log.take_reports()
            if isinstance(r, EpisodeReport)
        ]
        if memory.is_full or number == num_steps - 1:
            for (
                name,
                column,
            ) in columns.items():  # now, since later steps of a rollout may add to earlier ones
                column.append(vars(buffers)[name][rows, : memory.step].swapaxes(0, 1))
        if memory.is_full:
            finished = vector.finish_rollout()
            assert finished is not None, "the buffers are released at once, so there are enough"
            full, was_live = finished
            buffers.release(full[was_live[:, 0]], 0)
    rows, step = vector.memory.buffer_indices, vector.memory.step
    seen.append({key: digests(array[rows, step]) for key, array in buffers.obs.items()})
    vector.close()
    outputs, *results, policy_ids = (np.concatenate(column) for column in columns.values())
    return Trained(
        outputs[..., : actions.shape[1]],
        *results,
        policy_ids >= 0,
        {key: np.stack([by_key[key] for by_key in seen]) for key in buffers.obs},
        episodes,
    )
