"""How the adapter recognises batched simulators, and what it refuses. Whether rewards and ends are right is
checked in tests/envs/test_ledger.py."""

import sys
import types

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.adapters.simulator import SimulatorVectorEnv, is_simulator, runs_on_device
from sample_factory.envs.adapters.tensors import Crossing, to_host
from sample_factory.envs.env_info import FEW_COPIES, env_info, probe_env_info
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.envs.protocol import EnvConfig, EnvContractError, ObservationRows
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.launch.arrangement import arrange
from sample_factory.launch.checks import check_simulator
from sample_factory.launch.plan import with_defaults_for
from sample_factory.models import towers
from sample_factory.runtime.child import ChildFailed
from sample_factory.runtime.child_side import ChildContext
from sample_factory.sampling.inline_sampler import InlineSampler
from tests.counting import assert_lines_up, make_config, make_plan, make_shared
from tests.counting_model import CountingModel
from tests.envs.ledger_envs import Habits, Script
from tests.envs.simulators import BOX, FORMS, ManiSkill, Simulator, TorchCrowd, make

PLAIN = Habits("float", "bool", False, frozenset(), False)
SCRIPT = Script((3,), ("truncated",), (1,), None, False)


def simulator(name, script=SCRIPT, num_envs=2):
    return make(name, [script] * num_envs, PLAIN)


def stepped(env, num_steps, action=5.0):
    """Resets and steps an adapted env; returns the rows and the results."""
    rows = ObservationRows.allocate(env.kinds)
    env.reset(0, rows)
    actions = np.full((env.num_agents, 1), action, np.float32)
    return rows, [env.step(actions, rows) for _ in range(num_steps)]


@pytest.mark.parametrize("name", FORMS)
def test_groups_are_entries_and_actions_are_as_the_simulator_has_them(name):
    own = simulator(name)
    env = adapt(own)
    (kind,) = env.kinds.spaces
    groups = FORMS[name].groups or ("obs",)
    shapes = {group: box.shape for group, box in kind.observation.spaces.items()}
    assert shapes == dict(zip(groups, [(2,), (3,)]))
    assert kind.action.shape == (1,) and env.num_agents == 2
    has_bounds = name not in ("rsl_rl", "Playground")
    assert kind.action.is_bounded() == has_bounds and (not has_bounds or kind.action.low == -1000)
    rows, _ = stepped(env, 2, action=5.4)
    assert rows.arrays[groups[0]][:, 0].tolist() == [[2, 5]] * 2
    if len(groups) == 2:
        assert rows.arrays[groups[1]][:, 0].tolist() == [[2, 5, 7]] * 2


@pytest.mark.parametrize("name", FORMS)
def test_a_simulator_is_reset_once_or_again_to_seed_it(name):
    own = simulator(name)
    env = adapt(own)
    stepped(env, 8)
    is_seeded = bool(own.seeds)
    assert own.num_starts == 1 + (is_seeded and name in ("Brax", "mjlab"))
    assert own.seeds in ([], [0], [None, 0])
    assert is_seeded == (name in ("Brax", "mjlab", "Isaac Lab"))


def test_means_in_the_log_are_statistics_and_large_arrays_are_left_out():
    own = simulator("Isaac Lab")
    own.log = {"Episode_Reward/x": torch.tensor(3.0), "lost": torch.zeros(5), "text": "x"}
    _, results = stepped(adapt(own), 3)
    assert [result.end_infos for result in results[:2]] == [{}, {}]
    assert results[2].end_infos == {
        agent: {"episode_extra_stats": {"Episode_Reward/x": 3.0}} for agent in (0, 1)
    }
    assert results[2].truncated.tolist() == [True, True] and not results[2].terminated.any()


def test_tensors_in_the_infos_of_a_vector_env_are_split():
    script = SCRIPT._replace(objective="true_objective", rewards=(1, 2, 3))
    _, results = stepped(adapt(ManiSkill([script, script._replace(rewards=(4,))], PLAIN)), 3)
    assert [results[2].end_infos[agent]["true_objective"] for agent in (0, 1)] == [61.0, 121.0]


class ArrayOfJax:
    """An array of another library, which cannot be written."""

    def __init__(self, values):
        self._values = np.asarray(values)
        self.shape, self.ndim, self.dtype = self._values.shape, self._values.ndim, self._values.dtype

    def __dlpack__(self, **kwargs):
        return self._values.__dlpack__(**kwargs)

    def __array__(self, dtype=None, copy=None):
        return self._values.astype(dtype) if dtype else self._values


class Functional:
    """A simulator of another library than torch: actions are arrays of NumPy."""

    num_envs = 3
    action_space = spaces.Box(-1, 1, (3, 2), np.float32)

    def reset(self):
        return ArrayOfJax(np.zeros((3, 4), np.float32))

    def step(self, actions):
        self.actions = actions
        ones = ArrayOfJax(np.ones(3, np.float32))
        infos = {"truncation": ArrayOfJax(np.array([1.0, 0.0, 1.0], np.float32)), "score": ones}
        return ArrayOfJax(np.full((3, 4), 2, np.float32)), ones, ones, infos


def test_arrays_of_other_libraries_are_read():
    own = Functional()
    env = adapt(own)
    rows = ObservationRows.allocate(env.kinds)
    env.reset(None, rows)
    result = env.step(np.full((3, 2), 9, np.float32), rows)
    assert type(own.actions) is np.ndarray and own.actions.tolist() == [[1, 1]] * 3
    assert result.rewards.tolist() == [1, 1, 1] and (rows.arrays["obs"] == 2).all()
    assert result.truncated.tolist() == [True, False, True]
    assert result.terminated.tolist() == [False, True, False]
    assert result.end_infos[1] == {"truncation": 0.0, "score": 1.0}


def test_tensors_are_found_in_mappings_and_tuples():
    crossing = Crossing()
    values = {"a": torch.ones(2), "b": (np.zeros(1), torch.arange(2)), "c": "text"}
    host = crossing.to_host(values)
    assert type(host["a"]) is np.ndarray and host["b"][1].tolist() == [0, 1] and host["c"] == "text"
    assert to_host(values)["a"].tolist() == [1, 1]
    actions = crossing.to_env({"x": np.ones(2, np.float32), "y": (np.zeros(1, np.int64),)})
    assert actions["x"].dtype == torch.float32 and actions["y"][0].dtype == torch.int64
    plain = Crossing()
    plain.to_host(np.zeros(2))
    plain.to_host(torch.zeros(2))
    assert type(plain.to_env(np.zeros(2))) is np.ndarray, "the observations decide"


class SilentSkrl(Simulator):
    num_actions = 1
    metadata = {}

    def _reset(self):
        return self._begin(), {}


def test_a_simulator_of_five_values_that_does_not_show_when_it_resets_is_refused():
    env = adapt(SilentSkrl([SCRIPT] * 2, PLAIN, FORMS["skrl"]))
    stepped(env, 2)
    with pytest.raises(EnvContractError, match="SilentSkrl does not say when it resets .*SAME_STEP"):
        env.step(np.zeros((2, 1), np.float32), ObservationRows.allocate(env.kinds))


class NeverResets(TorchCrowd):
    def step(self, actions):
        ages = self.episode_length_buf.clone()
        returned = super().step(actions)
        self.episode_length_buf[:] = ages + 1
        return returned


def test_a_simulator_that_never_resets_is_refused():
    env = adapt(NeverResets())
    with pytest.raises(EnvContractError, match="NeverResets has reset no copy in the step that ended"):
        stepped(env, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rewards": torch.zeros(3)},
            "an array of shape (3,); it should have a number for each of the 8 copies",
        ),
        ({"rewards": torch.zeros(8, 2)}, "an array of shape (8, 2)"),
        ({"infos": None}, "step returned the info None; it should be a dict"),
        ({"none": 0}, "step returned None; it should return 5"),
        ({"observations": {"obs": torch.zeros(3, 4)}}, "observation 'obs' has shape (3, 4)"),
    ],
)
def test_what_is_no_batch_is_refused_in_one_line(change, message):
    class Wrong(TorchCrowd):
        def step(self, actions):
            names = ("observations", "rewards", "done", "infos")
            returned = {**dict(zip(names, super().step(actions))), **change}
            return None if "none" in change else tuple(returned[name] for name in names)

    with pytest.raises(EnvContractError) as raised:
        stepped(adapt(Wrong()), 1)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_a_first_observation_without_an_entry_for_each_copy_is_refused():
    class Single(TorchCrowd):
        def get_observations(self):
            return torch.zeros(4)

    with pytest.raises(EnvContractError, match=r"observation 'obs' is an array of shape \(4,\).* 8 copies"):
        adapt(Single())


class OneEnv(gym.Env):
    """Like ManiSkill's env for a CPU: one env, with the attributes of a simulator."""

    num_envs = 1
    observation_space = single_observation_space = spaces.Box(-1, 1, (2,))
    action_space = single_action_space = BOX


def test_a_single_env_with_the_attributes_of_a_simulator_is_a_single_env():
    assert not is_simulator(OneEnv()) and is_simulator(simulator("Isaac Lab", num_envs=1))
    assert type(adapt(OneEnv())).__name__ == "SingleAgentAdapter"
    assert runs_on_device(ManiSkill([SCRIPT], PLAIN)) and runs_on_device(SimulatorVectorEnv(TorchCrowd()))
    assert not runs_on_device(gym.make_vec("CartPole-v1", num_envs=2))


def test_first_episodes_get_random_ages_in_a_training_only():
    own = TorchCrowd(num_envs=500)
    env = SimulatorVectorEnv(own)
    env.reset(seed=1)
    assert not own.episode_length_buf.any()
    env.spread_episodes(seed=1)
    env.reset(seed=1)
    first = own.episode_length_buf.clone()
    assert first.min() >= 0 and first.max() < 50 and len(set(first.tolist())) == 50
    env.reset(seed=1)
    assert (own.episode_length_buf == first).all(), "they follow from the seed"


def test_every_number_of_a_crowd_lines_up_in_an_inline_sampler(monkeypatch):
    monkeypatch.setattr(towers, "make_actor_critic", CountingModel)
    flags = {"num_envs_per_worker": 1, "worker_num_splits": 1, "rollout": 16, "inline_samplers": 1}
    config = make_config(**flags, batch_size=128, async_rl=False)
    register_env("crowd", TorchCrowd)
    family = resolve_family("crowd")
    plan = make_plan(config, TorchCrowd(), family=family).sampling
    plan = plan._replace(envs=plan.envs._replace(make_env=lambda env_config: adapt(TorchCrowd())))
    buffers, channels = make_shared(config, TorchCrowd())
    channels.weights[0].publish({"weight": np.zeros(1, np.float32)}, Stamp(0))
    sampler = InlineSampler(plan.envs, plan.acting, 0, buffers, channels, ChildContext("sampler_0"))
    while sampler.step():
        pass
    full = np.flatnonzero(buffers._pending.any(axis=1))
    assert len(full) == 8
    for buffer in full:
        assert_lines_up(buffers, buffer)
        assert (buffers.policy_ids[buffer] == 0).all()
    assert buffers.truncated[full].any() and buffers.terminated[full].any()
    assert not (buffers.truncated[full] & buffers.terminated[full]).any()


class Sized(TorchCrowd):
    """Shows its number of copies and its device in the shape of the observation."""

    def __init__(self, num_envs: int = 300, device: str = "none"):
        super().__init__(num_envs)
        assert device == "cpu"

    def get_observations(self):
        return {"policy": torch.zeros(self.num_envs, self.num_envs), "critic": torch.zeros(self.num_envs, 2)}


def parsed(tmp_path, *argv, env=Sized):
    register_env("sized", env)
    return parse_config(["--env=sized", f"--train_dir={tmp_path}", "--device=cpu", *argv], resolve_family)


def test_the_trial_makes_few_copies_of_an_env_that_is_made_in_any_number(tmp_path):
    config = parsed(tmp_path)
    assert config.flat()["vector_env_copies"] == 300, "the default of the parameter"
    info = probe_env_info(resolve_family("sized"), config.namespace())
    assert info.num_agents == 300 and info.is_simulator and info.teams == tuple(range(300))
    assert info.kinds.spaces[0].observation["policy"].shape == (FEW_COPIES,)
    made = resolve_family("sized").make(parsed(tmp_path, "--env_agents=7").namespace(), EnvConfig(0, 0, 0))
    assert made.num_envs == 7


def test_a_maker_that_returns_another_number_of_copies_is_refused(tmp_path):
    def make_env(num_envs):
        return TorchCrowd(8)

    config = parsed(tmp_path, env=make_env)
    assert config.flat()["vector_env_copies"] == 1024 and "env_device" not in config.flat()
    with pytest.raises(ChildFailed, match=rf"make_env\(num_envs={FEW_COPIES}\) returned an env of 8 agents"):
        probe_env_info(resolve_family("sized"), config.namespace())


class Composite(TorchCrowd):
    """Its actions have as many parts as a simulator may have copies."""

    def __init__(self, num_envs: int = 2):
        super().__init__(num_envs)
        self.action_space = spaces.MultiDiscrete([3, 5])


def test_parts_of_an_action_are_not_taken_for_copies():
    assert SimulatorVectorEnv(Composite(2)).single_action_space == spaces.MultiDiscrete([3, 5])


class Privileged(TorchCrowd):
    """Returns five values, of which the second is an observation: an older form of rsl_rl."""

    def step(self, actions):
        observations, rewards, done, infos = super().step(actions)
        return observations, torch.full((self.num_envs, 1), 0.5), rewards + 0.5, done, infos


def test_values_in_another_order_are_refused():
    env = SimulatorVectorEnv(Privileged(2))
    env.reset()
    with pytest.raises(EnvContractError, match="5 values of step should be observations, rewards, ends"):
        env.step(np.zeros(2, np.int64))


def planned(tmp_path, *argv):
    config = parsed(tmp_path, *argv)
    kinds = probe_env_info(resolve_family("sized"), config.namespace()).kinds
    return with_defaults_for(config, kinds, is_simulator=True)


def test_a_simulator_gets_the_defaults_of_simulators(tmp_path):
    config, (note, *_) = planned(tmp_path, "--vector_env_copies=64")
    flags = config.flat()
    wanted = {"rollout": 24, "ppo_epochs": 5, "num_batches_per_iteration": 4, "batch_size": 384}
    wanted |= {"async_rl": False, "critic_only_keys": ("critic",), "inline_samplers": 1, "num_workers": 1}
    assert wanted.items() <= flags.items()
    assert note.text.startswith(
        "Defaults for a batched simulator of 64 copies, since the env observes critic, policy"
    )
    assert "critic_only_keys critic" in note.text


@pytest.mark.parametrize("copies", [1, 2, 5, 30, 4096])
@pytest.mark.parametrize("rollout", [16, 24])
def test_each_copy_contributes_equally_to_an_iteration(tmp_path, copies, rollout):
    config = parsed(tmp_path, *([] if rollout == 24 else [f"--rollout={rollout}"]))
    info = env_info(adapt(Sized(copies, "cpu")), types.SimpleNamespace(env_frameskip=None))
    learning = with_defaults_for(config, info.kinds, is_simulator=True)[0].learning
    trajectories = 4 * learning.batch_size // rollout
    assert learning.rollout == rollout and learning.num_batches_per_iteration == 4
    assert trajectories % copies == 0 and learning.batch_size % rollout == 0
    assert 1024 <= 4 * learning.batch_size < 1024 + 2 * rollout * max(copies * 4, 4)


def test_typed_flags_win_over_those_of_simulators(tmp_path):
    typed = ["--critic_only_keys", "--num_workers=2", "--batch_size=64", "--nonlinearity=relu"]
    config, _ = planned(tmp_path, *typed)
    assert config.model.critic_only_keys == () and config.sampling.num_workers == 2
    assert config.sampling.inline_samplers == 2, "one for each simulator"
    assert config.learning.batch_size == 64 and config.model.nonlinearity == "relu"


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--num_envs_per_worker=16", "--num_envs_per_worker=16: make_env returns a simulator of 300 envs"),
        ("--worker_num_splits=2", "use --worker_num_splits=1. --vector_env_copies=N makes another number"),
        ("--inline_samplers=0", "--inline_samplers=0: make_env returns a simulator of 300 envs"),
    ],
)
def test_flags_that_make_several_simulators_in_a_process_are_refused(tmp_path, flag, message):
    config = parsed(tmp_path, flag)
    info = env_info(adapt(Sized(300, "cpu")), types.SimpleNamespace(env_frameskip=None))
    config, _ = with_defaults_for(config, info.kinds, is_simulator=True)
    with pytest.raises(ConfigError) as raised:
        check_simulator(config, info)
    assert message in str(raised.value)


def test_a_simulator_runs_in_one_inline_sampler(tmp_path):
    config = parsed(tmp_path)
    info = env_info(adapt(Sized(300, "cpu")), types.SimpleNamespace(env_frameskip=None))
    config, _ = with_defaults_for(config, info.kinds, is_simulator=True)
    check_simulator(config, info)
    complete, num_inline, _ = arrange(config, info)
    assert num_inline == 1 and complete.sampling.envs_per_worker == 1


def test_wrappers_of_gymnasium_around_a_simulator_are_looked_through():
    own = simulator("Isaac Lab")
    _, results = stepped(adapt(gym.wrappers.OrderEnforcing(own)), 4)
    assert [result.truncated.any() for result in results] == [False, False, True, False]
    assert own.seeds == [0] and own.num_starts == 1


def test_a_simulator_of_brax_is_closed_although_gyms_constructor_was_not_called(monkeypatch):
    class VectorEnv:
        def close(self):
            raise AttributeError("closed")

    old = types.SimpleNamespace(
        vector=types.SimpleNamespace(VectorEnv=VectorEnv), Wrapper=types.SimpleNamespace
    )
    monkeypatch.setitem(sys.modules, "gym", old)

    class Brax(VectorEnv, TorchCrowd):
        pass

    adapt(Brax()).close()
    with pytest.raises(AttributeError):
        made = Brax()
        made.closed = False
        adapt(made).close()
