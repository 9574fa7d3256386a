"""Gymnasium vector envs: autoreset modes, infos of ended episodes, cost per agent."""

import copy
import gc
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TransformReward
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordVectorEpisodeStatistics
from gymnasium.wrappers.vector import TransformReward as TransformVectorReward

from sample_factory.envs.abilities import RewardShaping, find_reward_shaping
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.adapters.simulator import is_simulator
from sample_factory.envs.adapters.vector_env import autoreset_mode
from sample_factory.envs.end_infos import extra_stats, true_objective
from sample_factory.envs.protocol import EMPTY_INFO, EnvContractError, ObservationRows
from sample_factory.envs.random_actions import RandomActions
from sample_factory.spaces.actions import action_encoder
from tests.crowd import CountingCrowd
from tests.envs.adapters.countdown import Countdown, drive

MODES = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
LENGTHS = (2, 3, 5)
NUM_STEPS = 16


class Scored(Countdown):
    """Reports a score and statistics at the end of each episode; both depend on its number and length."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info["true_objective"] = 100.0 * self.length + self.episode
            info["episode_extra_stats"] = {"episode": self.episode, f"only_with_{self.length}": 1.5}
        return observation, reward, terminated, truncated, info


def double(reward):
    return 2 * reward


def double_vector(env):
    return TransformVectorReward(env, double)


def double_rewards(env):
    return TransformReward(env, double)


def episodes_of(env, num_steps, agents):
    """Steps an adapted env; returns the info of each ended episode and its sum of rewards, by agent."""
    _, results = drive(env, [0] * num_steps)
    episodes = {agent: [] for agent in agents}
    returns = np.zeros(len(agents))
    for result in results:
        ended = np.asarray(result.terminated) | np.asarray(result.truncated)
        assert set(result.end_infos) <= set(np.flatnonzero(ended)), "only ended episodes have infos"
        returns += result.rewards
        for agent in np.flatnonzero(ended).tolist():
            episodes[agent].append((result.end_infos.get(agent, EMPTY_INFO), returns[agent]))
            returns[agent] = 0.0
    return episodes


NUMBERS = (1, 0.5, True, 1.5, np.int8(3), 300, np.uint8(7), -1, np.float32(2.25), 0.1, 2**40)


class MixedNumbers(Countdown):
    """Each episode, and in the same episode each copy, reports a number of another type."""

    def __init__(self, copy):
        super().__init__(length=2)
        self.copy = copy

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        number = NUMBERS[(self.copy + self.episode) % len(NUMBERS)]
        info |= {"true_objective": number, "progress": np.array([number])}
        info["episode_extra_stats"] = {"number": number}
        return observation, reward, terminated, truncated, info


def recorded():
    """Returns an env whose raw returns are recorded below a transformation of its rewards."""
    return double_rewards(RecordEpisodeStatistics(Countdown(length=5)))


# The first two copies end in the same step, and report numbers of other types in each of their episodes.
COPIES = (
    lambda: MixedNumbers(0),
    lambda: MixedNumbers(1),
    lambda: Scored(length=2),
    lambda: Scored(length=3),
    recorded,
)


def active_steps(run, agent, mode=None):
    """Returns (observation, reward, terminated, truncated, end info) of each step in which an agent acts.

    run: what `drive` returns. mode: after an end, the agent has to be inactive for one step in NEXT_STEP.
    """
    steps = []
    is_active = True
    for observation, result in zip(*run):
        ends = bool(result.terminated[agent]), bool(result.truncated[agent])
        info = result.end_infos.get(agent)
        assert info is None or any(ends), "only ended episodes have infos"
        if is_active:
            if info and "episode" in info:
                del info["episode"]["t"]  # seconds
            steps.append((tuple(observation["obs"][agent]), float(result.rewards[agent]), *ends, info))
        is_spent = is_active and any(ends) and mode == AutoresetMode.NEXT_STEP
        is_active = result.active is None or bool(result.active[agent])
        assert is_active != is_spent
    return steps


@pytest.fixture
def frozen_garbage():
    """Keeps the processes that AsyncVectorEnv forks from collecting the garbage of earlier tests.

    The threads of EnvPool's envs are not in a forked process; it dies where it destroys such an env (envpool
    1.2.5).
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen_garbage")
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
@MODES
def test_each_sub_env_is_an_agent_with_the_steps_and_end_infos_of_a_single_env(kind, mode):
    num_steps = 3 * (len(NUMBERS) + 1)
    env = adapt(kind(COPIES, autoreset_mode=mode))
    assert env.num_agents == len(COPIES)
    run = drive(env, [0] * num_steps)
    env.close()
    for agent, make in enumerate(COPIES):
        steps = active_steps(run, agent, mode)
        assert steps == active_steps(drive(adapt(make()), [0] * num_steps), 0)[: len(steps)]
        infos = [info for *_, terminated, truncated, info in steps if terminated or truncated]
        assert len(infos) > (len(NUMBERS) if agent < 2 else 5)
        if agent == 3:
            assert [true_objective(info, -1.0) for info in infos[:2]] == [301.0, 302.0]
            assert extra_stats(infos[1])[0] == {"episode": 2, "only_with_3": 1.5}
        if agent == 4:
            assert {true_objective(info, 10.0) for info in infos} == {5.0}, "before the transformation"


@MODES
def test_returns_recorded_around_the_whole_vector_env_are_the_true_objective(mode):
    vector = SyncVectorEnv([lambda i=i: Countdown(length=i) for i in LENGTHS], autoreset_mode=mode)
    env = adapt(TransformVectorReward(RecordVectorEpisodeStatistics(vector), double))
    for length, ended in zip(LENGTHS, episodes_of(env, NUM_STEPS, range(len(LENGTHS))).values()):
        assert len(ended) >= 2
        for info, episode_return in ended:
            assert episode_return == 2 * length
            assert true_objective(info, episode_return) == length


class Native(gym.vector.VectorEnv):
    """Three agents whose infos are given; in each step, the agents in `ends` end their episodes."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    num_envs = 3
    single_observation_space = spaces.Box(0, 1, (1,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, infos, ends=(0, 2), reset_infos=None):
        self.infos = infos
        self.ends = list(ends)
        self.reset_infos = reset_infos or {}

    def reset(self, *, seed=None, options=None):
        return np.zeros((3, 1), np.float32), self.reset_infos

    def step(self, actions):
        terminated = np.zeros(3, bool)
        terminated[self.ends] = True
        return np.zeros((3, 1), np.float32), np.ones(3), terminated, np.zeros(3, bool), self.infos


def end_infos(infos):
    _, (result,) = drive(adapt(Native(infos)), [0])
    return result.end_infos


FINAL_INFOS = np.array([{"true_objective": 5.0}, None, {}], dtype=object)


@pytest.mark.parametrize(
    ("infos", "first", "last"),
    [
        ({"lives": np.array([[1], [2], [3]])}, {"lives": 1}, {"lives": 3}),
        ({"score": np.array([1.0, 2.0, 0.0]), "_score": np.array([True, True, False])}, {"score": 1.0}, {}),
        # Begins with an underscore, but is no mask.
        (
            {"time": np.array([1, 2, 3]), "_time": True},
            {"time": 1, "_time": True},
            {"time": 3, "_time": True},
        ),
        ({"map": "e1m1", "version": np.array(7)}, *[{"map": "e1m1", "version": 7}] * 2),
        ({"final_info": FINAL_INFOS, "_final_info": np.array([True, False, True])}, FINAL_INFOS[0], {}),
        ({"pair": np.array([1, 2])}, *[{"pair": [1, 2]}] * 2),
    ],
    ids=["no mask", "mask", "underscore", "of all", "array of dicts", "array of another length"],
)
def test_each_ended_agent_gets_its_entry_of_the_infos_and_what_belongs_to_all(infos, first, last):
    found = end_infos(infos)
    as_lists = {key: value.tolist() for key, value in found[2].items() if isinstance(value, np.ndarray)}
    assert found.keys() == {0, 2} and {**found[2], **as_lists} == last
    assert {**found[0], **as_lists} == first


def costs(infos, ends=()):
    _, (result,) = drive(adapt(Native(infos, ends)), [0])
    return None if result.costs is None else result.costs.tolist()


def test_costs_are_copied_and_are_0_where_an_agent_has_none():
    of_env = np.array([1, 2, 3])
    env = adapt(Native({"cost": of_env}, ends=()))
    _, (result,) = drive(env, [0])
    of_env[:] = 7
    assert result.costs.tolist() == [1.0, 2.0, 3.0]
    assert costs({"cost": np.ones(3), "_cost": np.array([True, False, True])}) == [1.0, 0.0, 1.0]
    assert costs({}) is None


def test_costs_without_a_number_for_each_agent_are_refused():
    with pytest.raises(EnvContractError, match=r"info\['cost'\] is 3.0; it .* number for each of the 3 envs"):
        costs({"cost": 3.0})


class SameStep(Native):
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}


def test_infos_of_the_reset_are_not_those_of_the_end():
    of_reset = {"time": np.zeros(3, int), "lives": np.full(3, 5)}
    recorded = {"episode": {"r": np.array([4.0, 0, 6.0])}, "_episode": np.array([True, False, True])}
    final = {"final_info": {"time": np.array([9, 0, 7])}, "final_obs": np.full(3, None, object)}
    for infos, of_first in (
        (of_reset, {}),
        (of_reset | recorded, {"episode": {"r": 4.0}}),
        (of_reset | {"true_objective": np.arange(3)}, {"true_objective": 0}),
        (of_reset | final, {"time": 9}),
        (of_reset | {"final_info": {"time": torch.tensor([9, 0, 7])}}, {"time": 9}),
        (of_reset | final | recorded, {"time": 9, "episode": {"r": 4.0}}),
    ):
        _, (result,) = drive(adapt(SameStep(infos)), [0])
        assert result.end_infos[0] == of_first


@pytest.fixture
def ale_py():
    """Returns the package, which writes the modes of its vector envs into the metadata of all VectorEnvs."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    yield ale_py
    gym.vector.VectorEnv.metadata.clear()


class Undeclared(Native):
    metadata = gym.vector.VectorEnv.metadata


@pytest.mark.usefixtures("frozen_garbage")
@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: double_vector(double_vector(env))])
def test_a_mode_counts_only_where_the_class_or_the_env_itself_declares_it(wrap, ale_py):
    atari = gym.make_vec("ALE/Pong-v5", num_envs=1, autoreset_mode=AutoresetMode.SAME_STEP)
    assert Undeclared.metadata["autoreset_mode"] == autoreset_mode(wrap(atari)) == AutoresetMode.SAME_STEP
    gym.make_vec("ALE/Pong-v5", num_envs=1, autoreset_mode=AutoresetMode.NEXT_STEP).close()
    assert autoreset_mode(wrap(atari)) == AutoresetMode.SAME_STEP
    atari.close()
    with pytest.raises(EnvContractError, match="does not say when it resets"):
        adapt(wrap(Undeclared({})))
    assert autoreset_mode(wrap(SameStep({}))) == AutoresetMode.SAME_STEP
    for kind in (SyncVectorEnv, AsyncVectorEnv):
        env = wrap(kind([Countdown], autoreset_mode=AutoresetMode.DISABLED))
        assert autoreset_mode(env) == AutoresetMode.DISABLED
        env.close()


def test_a_vector_env_around_a_single_env_is_adapted():
    """ManiSkillVectorEnv of mani-skill 3.0.1 returns a single env as `unwrapped`."""

    class Around(SameStep):
        @property
        def unwrapped(self):
            return Countdown()

    assert adapt(Around({})).num_agents == 3


class OfTorch(SameStep):
    """A vector env in which everything is a tensor, also the reset mask; the agents count their steps."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    device = torch.device("cpu")

    def __init__(self):
        super().__init__({})
        self.steps = torch.zeros(3, 1)

    def reset(self, *, seed=None, options=None):
        mask = torch.ones(3, dtype=torch.bool) if options is None else options["reset_mask"]
        assert isinstance(mask, torch.Tensor) and mask.dtype == torch.bool
        self.steps[mask] = 0.0
        return self.steps, {}

    def step(self, actions):
        assert isinstance(actions, torch.Tensor)
        self.steps += 1
        ended = self.steps[:, 0] > torch.arange(3)
        return self.steps, torch.ones(3), ended, torch.zeros_like(ended), {}


def test_an_env_of_torch_that_is_reset_from_outside_gets_its_mask_as_a_tensor():
    env = adapt(OfTorch())
    assert is_simulator(env.env)
    observations, results = drive(env, [0] * 3)
    assert [observed["obs"][:, 0].tolist() for observed in observations[1:]] == [
        [0, 1, 1],
        [0, 0, 2],
        [0, 1, 0],
    ]
    assert [result.terminated.tolist() for result in results][1] == [True, True, False]


def test_agents_may_be_inactive_as_the_infos_say():
    reset_infos = {"is_active": np.array([True, False, True])}
    infos = {"is_active": np.array([False, False, True]), "_is_active": np.array([True, False, True])}
    env = adapt(Native(infos, ends=(), reset_infos=reset_infos))
    rows = ObservationRows.allocate(env.kinds)
    assert env.reset(None, rows).tolist() == [True, False, True]
    assert env.step(np.zeros((3, 1), np.float32), rows).active.tolist() == [False, True, True]


def test_reward_shaping_is_found_inside_wrappers_of_vector_envs():
    class Shaped(CountingCrowd, RewardShaping):
        def get_default_reward_shaping(self):
            return {"x": 1.0}

    env = adapt(RecordVectorEpisodeStatistics(Shaped(0)))
    assert find_reward_shaping(env.env).get_default_reward_shaping() == {"x": 1.0}


def test_reward_shaping_is_set_in_each_env_of_a_sync_vector_env():
    class Shaped(Countdown, RewardShaping):
        shaping = None

        def get_default_reward_shaping(self):
            return {"x": 1.0}

        def set_reward_shaping(self, shaping, agent):
            assert agent == 0
            self.shaping = shaping

    vector = SyncVectorEnv([Shaped] * 2)
    env = adapt(RecordVectorEpisodeStatistics(vector))
    shaping = find_reward_shaping(env.env)
    assert shaping.get_default_reward_shaping() == {"x": 1.0}
    shaping.set_reward_shaping({"x": 2.0}, 1)
    assert [copy.shaping for copy in vector.envs] == [None, {"x": 2.0}]
    plain = adapt(SyncVectorEnv([Countdown] * 2))
    assert find_reward_shaping(plain.env).get_default_reward_shaping() == {}


def count_instructions(call):
    """Returns the number of Python bytecode instructions that a call executes, in all functions."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    former = sys.gettrace()
    gc.disable()  # finalizers of objects that other tests have left would count, too
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(former)
        gc.enable()
    return count


class Quiet(gym.vector.VectorEnv):
    """Agents that say something in their infos in every step; the first `num_ended` end in each."""

    single_observation_space = spaces.Box(0, 1, (1,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_agents, num_ended, mode):
        self.num_envs = num_agents
        self.metadata = {"autoreset_mode": mode}
        self.ended = np.arange(num_agents) < num_ended
        self.infos = {"score": np.ones(num_agents), "_score": np.ones(num_agents, bool)}

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 1), np.float32), self.infos

    def step(self, actions):
        return self.reset()[0], np.ones(self.num_envs), self.ended, ~self.ended & False, self.infos


def instructions_per_step(num_agents, num_ended, mode):
    env = adapt(Quiet(num_agents, num_ended, mode))
    rows = ObservationRows.allocate(env.kinds)
    actions = np.zeros((num_agents, 1), np.float32)
    env.reset(None, rows)
    return count_instructions(lambda: env.step(actions, rows))


@MODES
def test_a_step_runs_python_only_for_agents_whose_episode_ended(mode):
    for num_ended in (0, 3):
        few = instructions_per_step(10, num_ended, mode)
        assert few == instructions_per_step(1000, num_ended, mode) > 0
    assert instructions_per_step(10, 3, mode) > instructions_per_step(10, 1, mode)


class Random(gym.Env):
    """Observations are samples of its space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(100_000, start=3),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiBinary(3),
        spaces.Box(-1, 1, (2, 3), np.float64),
        spaces.Tuple((spaces.Discrete(2), spaces.Discrete(4))),  # popgym's Autoencode
        spaces.Dict(  # gymnasium-robotics' FrankaKitchen
            goal=spaces.Dict(kettle=spaces.Box(-1, 1, (7,), np.float64), burner=spaces.Discrete(3)),
            observation=spaces.Box(-1, 1, (5,), np.float64),
            mission=spaces.Text(5),
        ),
    ],
)
def test_observations_of_a_vector_env_are_those_of_single_envs(space):
    env = adapt(SyncVectorEnv([lambda: Random(copy.deepcopy(space))] * 3))
    rows = ObservationRows.allocate(env.kinds)
    env.reset(7, rows)
    for agent in range(3):
        single = adapt(Random(copy.deepcopy(space)))
        row = ObservationRows.allocate(single.kinds)
        single.reset(7 + agent, row)
        assert rows.arrays.keys() == row.arrays.keys()
        for key, array in row.arrays.items():
            assert np.array_equal(rows.arrays[key][agent], array[0])
        assert env.kinds.spaces == single.kinds.spaces


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1, dtype=np.int32),
        spaces.MultiDiscrete([2, 3], dtype=np.uint8),
        spaces.MultiBinary((2, 2)),
        spaces.Box(-3, 3, (2,), np.int16),
        spaces.Tuple((spaces.Discrete(3, start=2), spaces.Box(-1, 1, (2,)))),
        spaces.Dict(
            z=spaces.MultiBinary(2), a=spaces.Tuple((spaces.Box(0, 9, (1,), np.uint8), spaces.Discrete(4)))
        ),
    ],
    ids=str,
)
def test_actions_of_a_vector_env_are_those_of_single_envs_and_in_their_space(space):
    vector_env = SyncVectorEnv([lambda: Countdown(action_space=space)] * 3)
    env = adapt(vector_env)
    rows = ObservationRows.allocate(env.kinds)
    env.reset(1, rows)
    actions = RandomActions(env.kinds, 0)(rows)
    env.step(actions, rows)
    encode = action_encoder(space)
    for row, copied in zip(actions, vector_env.envs, strict=True):
        single = adapt(Countdown(action_space=space))
        single.reset(1, rows)
        single.step(row[None], ObservationRows.allocate(single.kinds))
        taken, own = copied.actions[0], single.env.actions[0]
        assert space.contains(taken) and space.contains(own)
        np.testing.assert_array_equal(encode(taken), encode(own))
