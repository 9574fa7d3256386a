"""An env in which every step and action is an integer that must line up, and what tests of its parts need.

Its model is in counting_model.py: processes that make the env must not have to import torch.
"""

import argparse
import queue
import types
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config.algorithms import registered_algorithm
from sample_factory.config.config import Config
from sample_factory.config.flags import Layer
from sample_factory.config.merging import build_config
from sample_factory.config.sections import TRAINING_SECTIONS
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import env_info
from sample_factory.exchange.channels import Channels, make_progress
from sample_factory.exchange.messages import Incident
from sample_factory.exchange.policy_weights import PolicyWeights
from sample_factory.exchange.run_plan import EnvPlan, RunPlan, SamplingPlan
from sample_factory.exchange.topology import make_topology
from sample_factory.exchange.trajectory_buffers import NO_AGENT, KindLayout, TrajectoryBuffers
from sample_factory.launch.plan import plan_acting, plan_envs
from sample_factory.models.policy_spec import make_policy_spec
from sample_factory.sampling.matchmaking.matchmaking import registered_matchmaking

NUM_ACTIONS = 1000
STATE_SIZE = 1  # of CountingModel
# Of an EnvVector in which rewards are stored as they are.
RAW_REWARDS = EnvPlan(lambda config: CountingEnv(), argparse.Namespace(), print, seed=1, reward_clip=1e9)
ENV, EPISODE, STEP, LAST_ACTION = range(4)  # columns of the observation


class CountingEnv:
    """A multi-agent env whose observation is (env id, episode, step of the episode, last action).

    Episode e of agent a lasts 3 + (e + a + env id) % 5 steps; every second one is truncated. The reward is
    the step, counted from 1. Agents with an index of at least `first_sleeper` are inactive after every third
    step of the env.
    """

    is_multiagent = True
    observation_space = gym.spaces.Box(-1, 1e9, (4,), np.float32)
    action_space = gym.spaces.Discrete(NUM_ACTIONS)

    def __init__(self, env_id: int = 0, num_agents: int = 1, first_sleeper: int = 1000):
        self.env_id = env_id
        self.num_agents = num_agents
        self._first_sleeper = first_sleeper

    def reset(self, seed=None, options=None):
        self.episode = [0] * self.num_agents
        self.step_of_episode = [0] * self.num_agents
        self.total_steps = 0
        return [self._observation(agent, -1) for agent in range(self.num_agents)], [{}] * self.num_agents

    def step(self, actions):
        self.total_steps += 1
        results = [self._step_agent(agent, int(action)) for agent, action in enumerate(actions)]
        return tuple(list(part) for part in zip(*results))

    def _step_agent(self, agent: int, action: int):
        self.step_of_episode[agent] += 1
        reward = float(self.step_of_episode[agent])
        episode = self.episode[agent]
        ended = self.step_of_episode[agent] == 3 + (episode + agent + self.env_id) % 5
        if ended:
            self.episode[agent] += 1
            self.step_of_episode[agent] = 0
        sleeps = agent >= self._first_sleeper and self.total_steps % 3 == 0
        truncated = ended and episode % 2 == 1
        return (
            self._observation(agent, action),
            reward,
            ended and not truncated,
            truncated,
            {"is_active": not sleeps},
        )

    def _observation(self, agent: int, action: int) -> np.ndarray:
        return np.array([self.env_id, self.episode[agent], self.step_of_episode[agent], action], np.float32)

    def render(self):
        return None

    def close(self):
        pass


def make_config(**typed: Any) -> Config:
    """Returns a configuration from flags, with small defaults for the others."""
    small = {
        "env": "counting",
        "num_workers": 1,
        "num_envs_per_worker": 2,
        "rollout": 8,
        "batch_size": 16,
        "decorrelate_envs_on_one_worker": False,
        "device": "cpu",
        "precision": "fp32",
        "seed": 1,
        "hidden_size": 1,
    }
    return build_config(TRAINING_SECTIONS, [Layer("small defaults", small), Layer("test", typed)], typed)


def dead_worker(index: int) -> tuple[int, list[int], Incident]:
    """Returns the arguments of `Loop.process_replaced` for a rollout worker that has died."""
    return index, [index], Incident("worker_restarts", f"rollout_worker_{index} died")


def make_plan(
    config: Config,
    env: Any,
    family: EnvFamily | None = None,
    state_size: int = STATE_SIZE,
    reports_infos: bool = False,
    observers: Mapping[str, Any] = {},
) -> RunPlan:
    """Returns the plan of a run with this env.

    family: how workers make the env; None: always CountingEnv.
    """
    family = family or EnvFamily("counting", lambda full_env_name: CountingEnv(0, 1), None, {})
    info = env_info(adapt(env), types.SimpleNamespace(env_frameskip=None))
    kinds = info.kinds.spaces
    num_policies = config.sampling.num_policies
    policies = [make_policy_spec(config, *kinds[policy % len(kinds)]) for policy in range(num_policies)]
    matchmaking = registered_matchmaking(config.selfplay.matchmaking)
    sampling = SamplingPlan(
        envs=plan_envs(config, family, matchmaking, 1, reports_infos),
        acting=plan_acting(config, policies, 1),
        info=info,
        topology=make_topology(config, info, config.sampling.inline_samplers or 0),
        state_size=state_size,
        flags=config.sampling,
        niceness=config.sampling.default_niceness,
    )
    algorithm = registered_algorithm(config.run.algo)
    return RunPlan(config, family, sampling, algorithm, (None,) * num_policies, observers)


class ThreadQueue:
    """A `Queue` between threads."""

    def __init__(self):
        self._messages = queue.Queue()

    def put(self, message, keep_waiting=None):
        self._messages.put(message)
        return True

    def get_many(self, timeout, max_messages=1000):
        messages = []
        try:
            messages.append(self._messages.get(timeout > 0, timeout))
            while len(messages) < max_messages:
                messages.append(self._messages.get_nowait())
        except queue.Empty:
            pass
        return messages


def poison(buffers: TrajectoryBuffers) -> None:
    """Fills all data with NaN or the largest integers, so that tests notice reads of memory never written."""
    for name, array in buffers._memory._arrays.items():
        if name not in ("owner", "pending", "incarnations"):
            largest = {"f": np.nan, "b": True}.get(array.dtype.kind)
            array.fill(np.iinfo(array.dtype).max if largest is None else largest)


def make_shared(config: Config, env: Any, num_logits: int = 1) -> tuple[TrajectoryBuffers, Channels]:
    """Returns poisoned buffers, and queues for threads. num_logits: of one action."""
    info = env_info(adapt(env), types.SimpleNamespace(env_frameskip=None))
    topology = make_topology(config, info, config.sampling.inline_samplers or 0)
    layouts = [KindLayout(spaces.observation, 1, num_logits) for spaces in info.kinds.spaces]
    buffers = TrajectoryBuffers(topology, layouts, STATE_SIZE)
    poison(buffers)
    policies = range(topology.num_policies)
    channels = Channels(
        [ThreadQueue() for _ in range(topology.num_workers)],
        [ThreadQueue() for _ in policies],
        [ThreadQueue() for _ in policies],
        ThreadQueue(),
        [PolicyWeights() for _ in policies],
        make_progress(topology),
    )
    return buffers, channels


def counts(buffers: TrajectoryBuffers) -> tuple[int, int, int]:
    """Returns how many buffers are (free, owned by agents, pending at learners)."""
    pending = buffers._pending.any(axis=1)  # read first, since a hand-over writes it last
    owned = buffers._owner != NO_AGENT
    assert not (owned & pending).any(), "a buffer is owned by an agent and pending at a learner"
    return int((~owned & ~pending).sum()), int(owned.sum()), int(pending.sum())


def assert_lines_up(buffers: TrajectoryBuffers, buffer: int) -> None:
    """Asserts that every row of one full buffer follows from the row before it."""
    obs = buffers.obs["obs"][buffer]
    actions = buffers.outputs[buffer, :, 0]
    for t in range(buffers.topology.rollout):
        ended = buffers.terminated[buffer, t] or buffers.truncated[buffer, t]
        acted = buffers.policy_ids[buffer, t] >= 0
        assert obs[t + 1, ENV] == obs[t, ENV]
        assert obs[t + 1, EPISODE] == obs[t, EPISODE] + ended
        assert obs[t + 1, STEP] == (0 if ended else obs[t, STEP] + 1)
        assert buffers.rewards[buffer, t] == obs[t, STEP] + 1
        if acted:
            assert actions[t] == (obs[t, STEP] + 10 * obs[t, EPISODE]) % NUM_ACTIONS
            assert obs[t + 1, LAST_ACTION] == actions[t], (
                "the env was given another action than the stored one"
            )
