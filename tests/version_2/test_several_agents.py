"""Multi-agent envs of version 2: lists, or batches with --batched_sampling, as in godot_rl's wrappers."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import EnvConfig, ObservationRows

NUM_AGENTS = 3
MOVE = gym.spaces.Box(-1, 1, (2,))
JUMP = gym.spaces.Discrete(2)


class Simulator(gym.Env):
    """Observes the number of the agent; the reward is what the agent has done.

    takes_batches: takes actions by component, and returns a dict of stacked arrays.
    """

    observation_space = gym.spaces.Dict({"obs": gym.spaces.Box(-9, 9, (1,))})
    action_spaces = [gym.spaces.Dict(move=MOVE, jump=JUMP)] * NUM_AGENTS  # not for version 2

    def __init__(self, action_space, takes_batches):
        self.action_space = action_space
        self.takes_batches = takes_batches
        self.num_steps = 0

    @property
    def num_agents(self):
        return NUM_AGENTS

    def reset(self, seed=None, options=None):
        return self._observe(), [{}] * NUM_AGENTS

    def step(self, action):
        self.last = action
        self.num_steps += 1
        ended = np.full(NUM_AGENTS, self.num_steps % 5 == 0)
        return self._observe(), np.arange(NUM_AGENTS), ended, ended * 0, [{}] * NUM_AGENTS

    def _observe(self):
        stacked = np.arange(NUM_AGENTS, dtype=np.float32)[:, None]
        return {"obs": stacked} if self.takes_batches else [{"obs": row} for row in stacked]


def make(space):
    def make_env(_env_name, _cfg, _cfg_env, render_mode=None):  # version 2 passes positions, not names
        return Simulator(space, _cfg.batched_sampling)

    return make_env


@pytest.mark.parametrize(
    ("space", "row", "batch", "listed"),
    [
        (JUMP, [1], [1, 1, 1], [1, 1, 1]),
        (MOVE, [0.5, -1], [[0.5, -1]] * 3, [[0.5, -1]] * 3),
        (gym.spaces.Tuple([JUMP, JUMP]), [1, 0], [[1, 0]] * 3, [(1, 0)] * 3),
        (gym.spaces.Tuple([JUMP, MOVE]), [1, 0.5, -1], ([1, 1, 1], [[0.5, -1]] * 3), [(1, [0.5, -1])] * 3),
    ],
)
@pytest.mark.parametrize("is_batched", [True, False])
def test_an_env_gets_and_returns_batches_or_lists(space, row, batch, listed, is_batched):
    register_env("simulator", make(space))
    parser, _ = parse_sf_args(["--env=simulator"])
    parser.set_defaults(batched_sampling=is_batched)
    cfg = parse_full_cfg(parser, ["--env=simulator"])
    env = adapt(resolve_family("simulator").make(cfg, EnvConfig(0, 0, 0)))
    rows = ObservationRows.allocate(env.kinds)
    env.reset(0, rows)
    result = env.step(np.array([row] * NUM_AGENTS, np.float32), rows)
    assert rows.arrays["obs"].ravel().tolist() == list(result.rewards) == [0, 1, 2]
    taken = env.env.unwrapped.last
    expected = batch if is_batched else listed
    assert all(np.array_equal(a, b) for a, b in zip(_flat(taken), _flat(expected), strict=True))
    assert isinstance(taken, np.ndarray) == (is_batched and not isinstance(batch, tuple))


class Robots(gym.Env):
    """Returns its own tensors, which it overwrites, and one dict of infos by agent."""

    observation_space = gym.spaces.Dict(obs=gym.spaces.Box(-9, 9, (1,)))
    action_space = MOVE
    num_agents = NUM_AGENTS

    def __init__(self):
        self.obs = torch.zeros(NUM_AGENTS, 1)
        self.rewards = torch.zeros(NUM_AGENTS)

    def reset(self, seed=None, options=None):
        return {"obs": self.obs}, {}

    def step(self, action):
        self.last = action
        self.obs += 1
        self.rewards += torch.arange(NUM_AGENTS)
        ended = torch.tensor([True, False, True])
        stats = {"height": self.rewards * 10, "wind": 4.0}
        return {"obs": self.obs}, self.rewards, ended, torch.zeros_like(ended), {"episode_extra_stats": stats}


@pytest.mark.parametrize("takes_tensors", [True, False])
def test_an_env_gets_tensors_if_it_asks_for_them_and_may_return_its_own(takes_tensors):
    register_env("robots", lambda *arguments: Robots())
    parser, _ = parse_sf_args(["--env=robots"])
    parser.set_defaults(batched_sampling=True, env_gpu_actions=takes_tensors, device="cpu")
    cfg = parse_full_cfg(parser, ["--env=robots"])
    env = adapt(resolve_family("robots").make(cfg, EnvConfig(0, 0, 0)))
    rows = ObservationRows.allocate(env.kinds)
    env.reset(0, rows)
    first = env.step(np.ones((NUM_AGENTS, 2), np.float32), rows)
    second = env.step(np.ones((NUM_AGENTS, 2), np.float32), rows)
    assert [*first.rewards] == [0, 1, 2] and [*second.rewards] == [0, 2, 4], "copies"
    assert rows.arrays["obs"].ravel().tolist() == [2, 2, 2]
    assert first.end_infos == {
        0: {"episode_extra_stats": {"height": 0.0, "wind": 4.0}},
        2: {"episode_extra_stats": {"height": 20.0, "wind": 4.0}},
    }
    assert isinstance(env.env.unwrapped.last, torch.Tensor if takes_tensors else np.ndarray)


def _flat(value):
    return [np.asarray(part) for entry in value for part in (entry if isinstance(entry, tuple) else [entry])]
