"""What the adapter of batched simulators reads and refuses. Whether rewards and ends are right is checked in
tests/envs/test_ledger.py, and with real packages in tests/conformance/simulators."""

import itertools
import logging
import sys
import textwrap
import types

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.adapters.simulator import SimulatorVectorEnv, _note_once, is_simulator
from sample_factory.envs.env_info import FEW_COPIES, env_info
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.envs.family_flags import device_of_env
from sample_factory.envs.protocol import EnvConfig, EnvContractError
from sample_factory.envs.simulator import Simulator
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.launch.arrangement import arrange
from sample_factory.launch.checks import check_simulator
from sample_factory.launch.plan import with_defaults_for
from sample_factory.models import towers
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.failures import Failure
from sample_factory.runtime.log import log
from sample_factory.sampling.inline_sampler import InlineSampler
from sample_factory.spaces.observations import UnsupportedSpace
from tests.counting import CountingEnv, assert_lines_up, make_config, make_plan, make_shared
from tests.counting_model import CountingModel
from tests.envs.adapters.countdown import drive
from tests.envs.made import probe
from tests.envs.simulators import TorchCrowd

BOX = spaces.Box(-1, 1, (1,), np.float32)
SAME_STEP = {"autoreset_mode": AutoresetMode.SAME_STEP}


class Plain:
    """A simulator by the contract, three envs whose episodes end in each step. Attributes are set as given.

    returned: by name, what `step` returns.
    """

    num_envs = 3
    metadata = SAME_STEP
    single_action_space = BOX

    def __init__(self, first=None, returned=(), **attributes):
        self.first = torch.zeros(3, 2) if first is None else first
        ones = torch.ones(3)
        self.returned = {"observations": self.first, "rewards": ones, "done": ones, "infos": {}}
        self.returned |= dict(returned)
        vars(self).update(attributes)

    def reset(self):
        return self.first

    def step(self, actions):
        self.actions = actions
        return tuple(self.returned.values())


def known(name, **attributes):
    """Returns a class like Plain whose module has this name."""
    return type("Env", (Plain,), {"__module__": name, **attributes})


class ArrayOfJax:
    """An array of another library, which cannot be written."""

    def __init__(self, values):
        self._values = np.asarray(values)
        self.shape, self.dtype = self._values.shape, self._values.dtype

    def __dlpack__(self, **kwargs):
        return self._values.__dlpack__(**kwargs)

    def __array__(self, dtype=None, copy=None):
        return self._values.astype(dtype) if dtype else self._values


def test_arrays_of_other_libraries_are_read_and_actions_are_arrays_of_numpy():
    cut = ArrayOfJax(np.array([1.0, 0.0, 1.0], np.float32))
    ones = ArrayOfJax(np.ones((3, 1), np.float32))
    returned = {"rewards": ones, "done": ones, "infos": {"truncation": cut, "score": ones}}
    own = Plain(ArrayOfJax(np.full((3, 4), 2, np.float32)), returned)
    seen, (result,) = drive(adapt(own), [9])
    assert type(own.actions) is np.ndarray and own.actions.tolist() == [[1]] * 3, "within their bounds"
    assert result.rewards.tolist() == [1, 1, 1] and (seen[1]["obs"] == 2).all()
    assert result.truncated.tolist() == [True, False, True]
    assert result.terminated.tolist() == [False, True, False]
    assert result.end_infos[1] == {"truncation": 0.0, "score": 1.0}


def test_the_example_of_the_contract_is_a_simulator():
    _, _, example = Simulator.__doc__.partition("class Waiting:")
    lines = ["class Waiting:", *itertools.takewhile(lambda line: "**" not in line, example.splitlines()[1:])]
    names = {"torch": torch, "spaces": spaces, "AutoresetMode": AutoresetMode}
    exec(textwrap.dedent("\n".join([f"        {lines[0]}", *lines[1:]])), names)
    seen, results = drive(adapt(names["Waiting"]()), [0] * 101)
    assert seen[99]["obs"].tolist() == [[99]] * 64 and results[99].truncated.all()
    assert (seen[101]["obs"] == 1).all() and not results[100].truncated.any()


class WithCritic(TorchCrowd):
    """VecEnvs of versions 2 and 5 of rsl_rl. The critic observes twice what the actor does."""

    def __init__(self, version):
        super().__init__(2)
        self.version = version
        if version < 5:
            self.reset = lambda: (torch.zeros(2, 4), None)

    def _groups(self, own):
        return {"policy": own["obs"], "critic": 2 * own["obs"]}

    def get_observations(self):
        groups = self._groups(super().get_observations())
        return (groups["policy"], {"observations": groups}) if self.version == 2 else groups

    def step(self, actions):
        own, *results, extras = super().step(actions)
        groups = self._groups(own)
        if self.version == 2:
            return groups["policy"], *results, {**extras, "observations": groups}
        return groups, *results, extras


@pytest.mark.parametrize("version", [2, 5])
def test_the_critics_observations_are_a_group_in_each_version_of_rsl_rl(version):
    seen, results = drive(adapt(WithCritic(version)), [5] * 4)
    assert set(seen[0]) == {"policy", "critic"}
    for number, observations in enumerate(seen):
        assert (observations["critic"] == 2 * observations["policy"]).all()
        assert observations["policy"][:, 3].tolist() == [5 if number else -1] * 2
    assert [result.terminated.tolist() for result in results[2:]] == [[True, False], [False, True]]


def test_a_simulator_is_seeded_by_a_parameter_or_a_method():
    class Seeded(Plain):
        def reset(self, *, seed=None):
            self.seeds = [*vars(self).get("seeds", ()), seed]
            return self.first, {}

    own = Seeded()
    drive(adapt(own), [0])
    assert own.seeds == [None, 0]
    seeds = []
    drive(adapt(Plain(seed=seeds.append)), [0])
    assert seeds == [0]


def test_steps_and_resets_of_a_simulator_keep_no_graph():
    weights = torch.ones(2, requires_grad=True)
    own = Plain()
    own.reset = lambda: own.first * weights
    own.step = lambda actions: vars(own).update(first=own.reset()) or (own.first, *[torch.zeros(3)] * 2, {})
    drive(adapt(own), [0] * 2)
    assert not own.first.requires_grad


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "Plain does not say when it resets .*SAME_STEP.*NEXT_STEP"),
        ({"autoreset_mode": "sometimes"}, r"metadata\['autoreset_mode'\] is 'sometimes'; its class "),
        ({"autoreset_mode": AutoresetMode.DISABLED}, "Plain should reset envs itself, in `step`"),
    ],
)
def test_a_simulator_says_when_it_resets(metadata, message):
    with pytest.raises(EnvContractError, match=message):
        adapt(Plain(metadata=metadata))


class OneEnv(gym.Env):
    """Like ManiSkill's env for a CPU: one env, with the attributes of a simulator."""

    num_envs = 1
    observation_space = single_observation_space = spaces.Box(-1, 1, (2,))
    action_space = single_action_space = BOX


def test_one_env_alone_is_a_simulator_if_it_is_known_when_it_resets_itself():
    assert not is_simulator(OneEnv()) and not is_simulator(Plain(num_envs=1, metadata={}))
    assert type(adapt(OneEnv())).__name__ == "SingleAgentAdapter"
    assert is_simulator(Plain(num_envs=1)) and is_simulator(TorchCrowd(1))
    assert is_simulator(known("isaaclab.envs.x", metadata={})(num_envs=1))
    assert is_simulator(SimulatorVectorEnv(TorchCrowd()))
    assert not is_simulator(gym.make_vec("CartPole-v1", num_envs=2))
    env = adapt(CountingEnv())
    env.env.num_envs = 4
    assert not env_info(env, make_config().namespace()).is_simulator


def test_a_vecenv_of_stable_baselines3_is_refused_by_a_line_that_says_what_to_return():
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([lambda: gym.make("CartPole-v1")] * 2)
    with pytest.raises(TypeError, match=r"DummyVecEnv, a VecEnv of .*; .* gymnasium.make_vec\(...\)"):
        adapt(env)


INDICES = torch.tensor([[1], [0], [2]])
ANY = spaces.Box(-np.inf, np.inf, (1,))


@pytest.mark.parametrize(
    ("first", "declared", "space"),
    [
        (INDICES, spaces.Discrete(3), spaces.Discrete(3)),
        (INDICES[:, 0], spaces.Discrete(3), spaces.Discrete(3)),
        (INDICES.repeat(1, 2), spaces.MultiDiscrete([3, 3]), spaces.MultiDiscrete([3, 3])),
        (INDICES.float(), BOX, ANY),
        (INDICES.float(), None, ANY),
        (INDICES.bfloat16(), None, ANY),
        (INDICES.byte(), ANY, spaces.Box(0, 255, (1,), np.uint8)),
        ({"a": INDICES.float()}, spaces.Dict(b=BOX), spaces.Dict(a=ANY)),
        ({"a": INDICES}, spaces.Dict(a=spaces.Discrete(3)), spaces.Dict(a=spaces.Discrete(3))),
    ],
)
@pytest.mark.parametrize("name", ["single_observation_space", "observation_space"])
def test_the_first_observations_decide_and_indices_are_declared(first, declared, space, name):
    assert SimulatorVectorEnv(Plain(first, **{name: declared})).single_observation_space == space


def test_indices_are_stored_as_indices():
    seen, _ = drive(adapt(Plain(INDICES, single_observation_space=spaces.Discrete(3))), [0])
    assert seen[1]["obs"].dtype == np.int32 and seen[1]["obs"].ravel().tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("first", "declared", "message"),
    [
        (torch.zeros(4), None, r"observation 'obs' is an array of shape \(4,\).* 3 envs, or a dict of these"),
        ((INDICES, INDICES, INDICES), None, "observation 'obs' is a tuple of 3"),
        (INDICES.float(), spaces.Discrete(3), r"float32 for 3 .* space is Discrete\(3\); set single_o"),
        (INDICES, spaces.MultiDiscrete([3, 3, 3]), "set single_observation_space to that of one env"),
    ],
)
def test_first_observations_that_fit_no_space_are_refused(first, declared, message):
    with pytest.raises(EnvContractError, match=message):
        adapt(Plain(first, observation_space=declared))


@pytest.mark.parametrize(
    ("attributes", "space"),
    [
        ({"action_space": spaces.MultiDiscrete([3, 5])}, spaces.MultiDiscrete([3, 5])),
        ({"action_space": BOX, "num_actions": 7}, BOX),
        ({"num_actions": 2}, spaces.Box(-np.inf, np.inf, (2,))),
    ],
)
def test_the_action_space_is_the_declared_one_of_one_env(attributes, space):
    own = Plain(**{"single_action_space": None, **attributes})
    assert SimulatorVectorEnv(own).single_action_space == space


@pytest.mark.parametrize("single", [BOX, spaces.Discrete(4), spaces.MultiBinary(4)], ids=str)
def test_an_action_space_that_could_be_that_of_all_envs_is_refused(single):
    batched = gym.vector.utils.batch_space(single, 3)
    with pytest.raises(UnsupportedSpace, match="could be that of all 3 envs: set single_action_space"):
        SimulatorVectorEnv(Plain(single_action_space=None, action_space=batched))
    with pytest.raises(UnsupportedSpace, match="should have a single_action_space, or num_actions"):
        SimulatorVectorEnv(Plain(single_action_space=None))
    own = Plain(single_action_space=single, action_space=batched)
    assert SimulatorVectorEnv(own).single_action_space == single


def test_the_table_says_that_indices_of_actions_are_a_column_in_isaac_lab():
    for make, shape in ((known("isaaclab.envs.direct"), (3, 1)), (Plain, (3,))):
        own = make(single_action_space=spaces.Discrete(3))
        drive(adapt(own), [2])
        assert own.actions.shape == shape and own.actions.ravel().tolist() == [2] * 3


def breaks():
    raise KeyError("joint")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"returned": {"rewards": torch.zeros(2)}},
            "rewards is an array of shape (2,); it should have",
        ),
        ({"returned": {"done": torch.full((3,), 0.5)}}, "done of step has other numbers than 0 and 1; step"),
        ({"returned": {"infos": {"time_outs": torch.zeros(2)}}}, "infos['time_outs'] is an array"),
        ({"returned": {"observations": {"x": torch.zeros(3, 4)}}}, "observation"),
        ({"returned": {"observations": torch.zeros(2, 2)}}, "observation 'obs' has shape (2, 2)"),
        ({"returned": {"infos": None}}, "step returned None for the info; it should be a dict"),
        ({"step": lambda actions: None}, "step returned None; it should return 5"),
        ({"reset": breaks}, "env 'Plain': reset raised KeyError: 'joint'"),
    ],
)
def test_what_is_no_batch_is_refused_in_one_line(attributes, message):
    with pytest.raises((EnvContractError, Failure)) as raised:
        drive(adapt(Plain(**attributes)), [5])
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ({"time_outs": None, "first_obs": torch.ones(3, 5), "text": "x"}, {"text": "x"}),
        ({"score": torch.tensor([[1.0], [2], [3]]), "all": torch.tensor(4.0)}, {"score": 2.0, "all": 4.0}),
        ({"deep": {"er": {"y": torch.arange(3)}}}, {"deep": {"er/y": 1}}),
        (
            {"log": {"x": 5.0, "mean": torch.tensor([1.0, 5]), "own": torch.arange(3), "text": "x"}},
            {"episode_extra_stats": {"x": 5.0, "mean": 3.0, "own": 1.0}},
        ),
        (
            {"episode": {"r": torch.tensor([1.0, 2, 3]), "rew_x": torch.tensor([4.0])}},
            {"episode": {"r": 2.0}, "episode_extra_stats": {"rew_x": 4.0}},
        ),
        (
            {"episode_extra_stats": {"z": torch.arange(3)}, "log": {"x": 5.0}},
            {"episode_extra_stats": {"z": 1, "x": 5.0}},
        ),
    ],
)
def test_infos_of_an_end_are_read(infos, expected):
    _, (result,) = drive(adapt(Plain(returned={"infos": infos})), [0])
    assert result.terminated.all() and result.end_infos.get(1, {}) == expected


def test_agents_are_inactive_where_the_infos_say_so_in_any_step():
    infos = {"is_active": torch.tensor([[1], [0], [1]])}
    _, (result,) = drive(adapt(Plain(returned={"done": torch.zeros(3), "infos": infos})), [0])
    assert result.active.tolist() == [True, False, True] and not result.terminated.any()


def test_time_limits_of_a_task_with_a_finite_horizon_terminate():
    returned = {"infos": {"time_outs": torch.ones(3)}}
    for is_finite in (True, False):
        cfg = types.SimpleNamespace(is_finite_horizon=is_finite)
        _, (result,) = drive(adapt(Plain(returned=returned, cfg=cfg)), [0])
        assert result.terminated.all() == is_finite and result.truncated.all() != is_finite


def test_what_is_doubtful_about_ends_is_in_the_log_once(caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    _note_once.cache_clear()
    returned = {"done": torch.tensor([1, 0, 0]), "infos": {"time_outs": torch.tensor([1, 0, 1])}}
    with caplog.at_level(logging.INFO, "sample_factory"):
        _, results = drive(adapt(Plain(returned=returned)), [0] * 3)
        drive(adapt(Plain()), [0] * 3)
        drive(adapt(TorchCrowd()), [0] * 5)
    assert [result.truncated.tolist() for result in results] == [[True, False, False]] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    beyond, silent = caplog.messages
    assert "infos['time_outs'] cuts an episode that `done` does not end" in beyond
    assert silent.startswith("Plain has none of time_outs, truncation") and "as terminated" in silent


def test_first_episodes_get_random_ages_in_a_training_only():
    own = TorchCrowd(num_envs=500)
    env = SimulatorVectorEnv(own)
    env.reset(seed=1)
    assert not own.episode_length_buf.any()
    env.spread_episodes(seed=1)
    observations, _ = env.reset(seed=1)
    first = own.episode_length_buf.clone()
    assert first.min() >= 0 and first.max() < 50 and len(set(first.tolist())) == 50
    assert observations["obs"][:, 2].tolist() == first.tolist(), "the first observations show them"
    env.reset(seed=1)
    assert (own.episode_length_buf == first).all(), "they follow from the seed"


@pytest.mark.parametrize(
    "ages", [np.zeros(3, int), ArrayOfJax(np.zeros(3, int)), torch.zeros(3, 1), "infers"]
)
def test_ages_are_written_where_that_is_possible(ages):
    with torch.inference_mode():
        ages = torch.zeros(3) if isinstance(ages, str) else ages
    own = Plain(episode_length_buf=ages, max_episode_length=50)
    env = SimulatorVectorEnv(own)
    env.spread_episodes(1)
    env.reset(seed=0)
    assert np.asarray(own.episode_length_buf).any() != isinstance(ages, ArrayOfJax)
    assert own.episode_length_buf.shape == ages.shape


@pytest.mark.parametrize("limit", [0, np.inf, torch.tensor(np.inf), torch.tensor([50, 60]), None, "50"])
def test_a_limit_of_episodes_that_is_no_number_of_steps_is_not_used(limit):
    own = Plain(max_episode_length=limit, episode_length_buf=torch.zeros(3))
    env = SimulatorVectorEnv(own)
    env.spread_episodes(1)
    env.reset(seed=0)
    assert env.max_episode_steps() is None and not own.episode_length_buf.any()


def test_wrappers_of_gymnasium_around_a_simulator_are_looked_through():
    class Env(Plain, gym.Env):
        def reset(self, *, seed=None, options=None):
            self.seed = seed
            return self.first, {}

    own = Env(action_space=BOX, observation_space=BOX)
    env = adapt(gym.wrappers.OrderEnforcing(own))
    drive(env, [0])
    assert env.num_agents == 3 and own.seed == 0


def made_samplers(make_env, num_workers=1):
    """Returns the inline samplers of a plan whose envs are `make_env(env_config)`, and their buffers."""
    flags = {"num_envs_per_worker": 1, "worker_num_splits": 1, "rollout": 16, "batch_size": 128 * num_workers}
    config = make_config(**flags, num_workers=num_workers, inline_samplers=num_workers, async_rl=False)
    register_env("crowd", TorchCrowd)
    plan = make_plan(config, TorchCrowd(), family=resolve_family("crowd")).sampling
    plan = plan._replace(envs=plan.envs._replace(make_env=lambda env_config: adapt(make_env(env_config))))
    buffers, channels = make_shared(config, TorchCrowd())
    channels.weights[0].publish({"weight": np.zeros(1, np.float32)}, Stamp(0))
    contexts = [ChildContext(f"sampler_{index}") for index in range(num_workers)]
    return buffers, [
        InlineSampler(plan.envs, plan.acting, index, buffers, channels, context)
        for index, context in enumerate(contexts)
    ]


def test_every_number_of_a_crowd_lines_up_in_an_inline_sampler(monkeypatch):
    monkeypatch.setattr(towers, "make_actor_critic", CountingModel)
    buffers, (sampler,) = made_samplers(lambda env_config: TorchCrowd())
    while sampler.step():
        pass
    full = np.flatnonzero(buffers._pending.any(axis=1))
    assert len(full) == 8
    for buffer in full:
        assert_lines_up(buffers, buffer)
        assert (buffers.policy_ids[buffer] == 0).all()
    assert buffers.truncated[full].any() and buffers.terminated[full].any()
    assert not (buffers.truncated[full] & buffers.terminated[full]).any()


class Noisy(TorchCrowd):
    """Begins with random numbers of its own; seed None: with zeros."""

    def __init__(self, seed):
        super().__init__()
        self._seed = seed

    def _observe(self, actions):
        if self._seed is None:
            return {"obs": torch.zeros(8, 4)}
        return {"obs": torch.rand(8, 4, generator=torch.Generator().manual_seed(self._seed))}


@pytest.mark.parametrize(
    ("make_env", "num_warnings"),
    [
        (lambda env_config: Noisy(5), 1),
        (lambda env_config: Noisy(5 + env_config.env_id), 0),
        (lambda env_config: Noisy(None), 0),
    ],
    ids=["same seed", "seeds of their own", "all begin alike"],
)
def test_simulators_that_draw_the_same_numbers_are_named_in_a_warning(
    make_env, num_warnings, caplog, monkeypatch
):
    monkeypatch.setattr(towers, "make_actor_critic", CountingModel)
    made_samplers(make_env, num_workers=2)
    warnings = [text for text in caplog.messages if "workers 0 and 1 begin with the same obs" in text]
    assert len(warnings) == num_warnings
    assert all("should use (cfg.seed or 0) + env_config.env_id" in text for text in warnings)


class Sized(TorchCrowd):
    """Shows its number of copies and its device in the shape of the observation."""

    def __init__(self, num_envs: int = 300, device: str = "none"):
        super().__init__(num_envs, device)
        assert device == "cpu"

    def _observe(self, actions):
        return {"policy": torch.zeros(self.num_envs, self.num_envs), "critic": torch.zeros(self.num_envs, 2)}


def parsed(tmp_path, *argv, env=Sized):
    register_env("sized", env)
    return parse_config(["--env=sized", f"--train_dir={tmp_path}", "--device=cpu", *argv], resolve_family)


def test_the_trial_makes_few_copies_of_an_env_that_is_made_in_any_number(tmp_path):
    config = parsed(tmp_path)
    assert config.flat()["vector_env_copies"] == 300, "the default of the parameter"
    info = probe(resolve_family("sized"), config.namespace())
    assert info.num_agents == 300 and info.is_simulator and info.teams == tuple(range(300))
    assert info.kinds.spaces[0].observation["policy"].shape == (FEW_COPIES,)
    made = resolve_family("sized").make(parsed(tmp_path, "--env_agents=7").namespace(), EnvConfig(0, 0, 0))
    assert made.num_envs == 7


def test_the_env_of_a_node_without_a_gpu_follows_its_network_to_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of_env(parsed(tmp_path, "--device=gpu").namespace(), 0) == "cpu"
    with pytest.raises(ConfigError, match="the env's device: --device=gpu, but"):
        device_of_env(parsed(tmp_path, "--env_device=gpu").namespace(), 0)


def test_a_maker_that_returns_another_number_of_copies_is_refused(tmp_path):
    def make_env(num_envs):
        return TorchCrowd(8)

    config = parsed(tmp_path, env=make_env)
    assert config.flat()["vector_env_copies"] == 1024 and "env_device" not in config.flat()
    with pytest.raises(Failure, match=rf"make_env\(num_envs={FEW_COPIES}\) returned an env of 8 agents"):
        probe(resolve_family("sized"), config.namespace())


def test_the_trial_steps_a_simulator_unless_jax_would_compile_the_step(tmp_path, monkeypatch):
    class Raises(Sized):
        def __init__(self, num_envs: int = 300):
            super().__init__(num_envs, "cpu")

        def step(self, actions):
            raise ValueError("no step")

    class Compiles(Raises):
        def reset(self):
            monkeypatch.setitem(sys.modules, "jax", sys)
            return self._observe(None)

    config = parsed(tmp_path, env=Raises)
    with pytest.raises(Failure, match="no step"):
        probe(resolve_family("sized"), config.namespace())
    config = parsed(tmp_path, env=Compiles)
    assert probe(resolve_family("sized"), config.namespace()).num_agents == 300


def planned(tmp_path, *argv):
    """Returns the config with the defaults for simulators, and the EnvInfo."""
    info = env_info(adapt(Sized(300, "cpu")), types.SimpleNamespace(env_frameskip=None))
    config, _ = with_defaults_for(parsed(tmp_path, *argv), info.kinds, is_simulator=True)
    return config, info


def test_a_simulator_runs_in_one_inline_sampler(tmp_path):
    config, info = planned(tmp_path)
    check_simulator(config, info)
    complete, num_inline, _ = arrange(config, info)
    assert num_inline == 1 and complete.sampling.envs_per_worker == 1


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--num_envs_per_worker=16", "--num_envs_per_worker=16: make_env returns a simulator of 300 envs"),
        ("--worker_num_splits=2", "use --worker_num_splits=1. --vector_env_copies=N makes another number"),
        ("--inline_samplers=0", "--inline_samplers=0: make_env returns a simulator of 300 envs"),
    ],
)
def test_flags_that_make_several_simulators_in_a_process_are_refused(tmp_path, flag, message):
    config, info = planned(tmp_path, flag)
    with pytest.raises(ConfigError) as raised:
        check_simulator(config, info)
    assert message in str(raised.value)
