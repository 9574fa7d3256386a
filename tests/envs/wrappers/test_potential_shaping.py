"""Potential-based shaping: its sum over an episode, and the invariance of optimal policies, exactly."""

import gymnasium as gym
import numpy as np
import pettingzoo
import pytest

from sample_factory.envs.end_infos import true_objective
from sample_factory.envs.protocol import EPISODE_CONTINUES
from sample_factory.envs.wrappers.potential_shaping import ParallelPotentialShaping, PotentialShaping

GAMMA = 0.9
NUM_STATES = 6  # the last one is terminal
NUM_ACTIONS = 3


class RandomMDP(gym.Env):
    """A small MDP with random transitions and rewards. transitions: [state, action, next state]."""

    observation_space = gym.spaces.Discrete(NUM_STATES)
    action_space = gym.spaces.Discrete(NUM_ACTIONS)

    def __init__(self, seed: int, max_steps: int | None = None):
        rng = np.random.default_rng(seed)
        self.transitions = rng.dirichlet(np.full(NUM_STATES, 0.5), (NUM_STATES - 1, NUM_ACTIONS))
        self.rewards = rng.normal(size=(NUM_STATES - 1, NUM_ACTIONS, NUM_STATES))
        self._max_steps = max_steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = (options or {}).get("state", 0)
        self._num_steps = 0
        return self.state, {}

    def step(self, action):
        before = self.state
        self.state = int(self.np_random.choice(NUM_STATES, p=self.transitions[before, action]))
        self._num_steps += 1
        terminated = self.state == NUM_STATES - 1
        truncated = self._num_steps == self._max_steps
        return self.state, self.rewards[before, action, self.state], terminated, truncated, {}


@pytest.mark.parametrize("max_steps", [None, 4])
def test_the_shaped_return_differs_from_the_plain_one_by_the_potentials_of_the_ends_only(max_steps):
    potentials = np.random.default_rng(3).normal(size=NUM_STATES)
    plain = RandomMDP(1, max_steps)
    env = PotentialShaping(
        RandomMDP(1, max_steps), lambda observation, info: potentials[observation], GAMMA, 2.0
    )
    ends = set()
    for seed in range(20):
        plain.reset(seed=seed, options={"state": 2})
        env.reset(seed=seed, options={"state": 2})
        difference = 0.0
        is_over = False
        step = 0
        while not is_over:
            _, plain_reward, terminated, truncated, _ = plain.step(step % NUM_ACTIONS)
            observation, reward, *_ = env.step(step % NUM_ACTIONS)
            difference += GAMMA**step * (reward - plain_reward)
            step += 1
            is_over = terminated or truncated
        # A truncated episode keeps the potential of its last state; a terminal state has none.
        last = 0.0 if terminated else GAMMA**step * potentials[observation]
        assert difference == pytest.approx(2.0 * (last - potentials[2]))
        ends.add((terminated, truncated))
    assert (True, False) in ends and (max_steps is None or (False, True) in ends)


@pytest.mark.parametrize(("module", "phi"), [("vizdoom.gymnasium_wrapper.x", 5.0), ("mine", 0.0)])
def test_a_state_at_a_limit_that_a_package_also_reports_as_terminal_keeps_its_potential(module, phi):
    class Limited(RandomMDP):
        def step(self, action):
            observation, reward, *_, info = super().step(action)
            return observation, reward * 0, True, True, info

    known = type("Limited", (Limited,), {"__module__": module})
    env = PotentialShaping(gym.wrappers.TimeLimit(known(0), 9), lambda observation, info: 5.0, GAMMA)
    env.reset(seed=0)
    assert env.step(0)[1] == GAMMA * phi - 5.0


def test_the_unshaped_return_is_the_true_objective_unless_the_env_reports_one():
    class Scored(RandomMDP):
        def step(self, action):
            *result, info = super().step(action)
            return *result, {**info, "true_objective": 7.0}

    recorded = gym.wrappers.RecordEpisodeStatistics(RandomMDP(1))
    transformed = gym.wrappers.TransformReward(recorded, lambda reward: 10 * reward)
    for mdp, expected in ((RandomMDP(1), None), (Scored(1), 7.0), (transformed, None)):
        env = PotentialShaping(mdp, lambda observation, info: 100.0, GAMMA)
        env.reset(seed=1)
        plain = RandomMDP(1)
        plain.reset(seed=1)
        total = 0.0
        is_over = False
        while not is_over:
            total += plain.step(1)[1]
            _, _, is_over, _, info = env.step(1)
        assert true_objective(info, -1.0) == pytest.approx(total if expected is None else expected)


class ThreeLives(gym.Env):
    """Loses a life, and ends an episode, with each step; the rewards are 1, 2 and 3."""

    observation_space, action_space = gym.spaces.Discrete(4), gym.spaces.Discrete(1)
    num_lost = 0

    def reset(self, *, seed=None, options=None):
        self.num_lost %= 3
        return self.num_lost, {}

    def step(self, action):
        self.num_lost += 1
        return self.num_lost, float(self.num_lost), True, False, {EPISODE_CONTINUES: self.num_lost < 3}


def test_the_true_objective_of_a_game_with_lives_is_the_return_of_all_of_them():
    env = PotentialShaping(ThreeLives(), lambda observation, info: 100.0, GAMMA)
    for _ in range(2):
        for _ in range(3):
            env.reset()
            *_, info = env.step(0)
        assert true_objective(info, -1.0) == 6.0


class Leaving(pettingzoo.ParallelEnv):
    """Agents a and c act from the start, agent b joins after two steps. The env observes only agents that are
    still in `agents`, unless it `shows_last`. After four steps a terminates, after five b is truncated and c
    leaves without an end. Every agent observes 7 and the number of steps, and its rewards are 1."""

    metadata = {"name": "leaving"}
    possible_agents = ["a", "b", "c"]

    def __init__(self, shows_last):
        self._shows_last = shows_last

    def observation_space(self, agent):
        return gym.spaces.Discrete(20)

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = ["a", "c"]
        self._step = 0
        return dict.fromkeys(self.agents, 7), {}

    def step(self, actions):
        self._step += 1
        before = self.agents
        self.agents = {2: ["a", "b", "c"], 4: ["b", "c"], 5: []}.get(self._step, before)
        seen = dict.fromkeys([*before, *self.agents] if self._shows_last else self.agents, 7 + self._step)
        terminated, truncated = {"a": self._step == 4}, {"b": self._step == 5}
        return seen, dict.fromkeys(before, 1.0), terminated, truncated, {name: {} for name in before}


@pytest.mark.parametrize("shows_last", [True, False])
def test_an_agent_of_a_parallel_env_is_shaped_by_its_own_episode_also_without_a_last_observation(
    shows_last,
):
    env = ParallelPotentialShaping(Leaving(shows_last), lambda observation, info: float(observation), 1.0)
    env.reset()
    shaping = dict.fromkeys(env.possible_agents, 0.0)
    ends = {}
    while env.agents:
        _, rewards, _, _, infos = env.step(dict.fromkeys(env.agents, 0))
        for name, reward in rewards.items():
            shaping[name] += reward - 1.0
        ends |= infos
    # A terminal state has no potential; a truncated episode keeps the last one that is known.
    last = 12.0 if shows_last else 11.0
    assert shaping == {"a": -7.0, "b": last - 9.0, "c": last - 7.0}
    assert {name: true_objective(info, -1.0) for name, info in ends.items()} == {"a": 4.0, "b": 3.0, "c": 5.0}
