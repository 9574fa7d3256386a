"""How the adapter recognises batched simulators, and what it refuses. Whether rewards and ends are right is
checked in tests/envs/test_ledger.py."""

import logging
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.adapters import tensors
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.adapters.simulator import SimulatorVectorEnv, is_simulator
from sample_factory.envs.adapters.tensors import Crossing, to_host
from sample_factory.envs.env_info import FEW_COPIES, env_info, probe_env_info
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.envs.family_flags import device_of_env
from sample_factory.envs.protocol import EnvConfig, EnvContractError, EnvRaised, ObservationRows
from sample_factory.exchange.policy_weights import Stamp
from sample_factory.launch.arrangement import arrange
from sample_factory.launch.checks import check_simulator
from sample_factory.launch.plan import with_defaults_for
from sample_factory.models import towers
from sample_factory.runtime.child import ChildFailed
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.log import log
from sample_factory.sampling.inline_sampler import InlineSampler
from sample_factory.spaces.observations import UnsupportedSpace
from tests.counting import CountingEnv, assert_lines_up, make_config, make_plan, make_shared
from tests.counting_model import CountingModel
from tests.envs.adapters.countdown import drive
from tests.envs.ledger_envs import Habits, Script
from tests.envs.simulators import BOX, FORMS, IsaacLab, ManiSkill, RslRl, Simulator, TorchCrowd, make

PLAIN = Habits("float", "bool", False, frozenset(), False)
SCRIPT = Script((3,), ("truncated",), (1,), None, False)


def simulator(name, script=SCRIPT, num_envs=2):
    return make(name, [script] * num_envs, PLAIN)


@pytest.mark.parametrize("name", FORMS)
def test_groups_are_entries_and_actions_are_as_the_simulator_has_them(name):
    own = simulator(name)
    env = adapt(own)
    (kind,) = env.kinds.spaces
    groups = FORMS[name].groups or ("obs",)
    shapes = {group: box.shape for group, box in kind.observation.spaces.items()}
    assert shapes == dict(zip(groups, [(2,), (3,)]))
    assert kind.action.shape == (1,) and env.num_agents == 2
    has_bounds = not isinstance(own, RslRl)
    assert kind.action.is_bounded() == has_bounds and (not has_bounds or kind.action.low == -1000)
    seen, _ = drive(env, [5.4] * (2 + FORMS[name].resets_late))
    assert seen[-1][groups[0]].tolist() == [[2, 5]] * 2
    if len(groups) == 2:
        assert seen[-1][groups[1]].tolist() == [[2, 5, 7]] * 2


@pytest.mark.parametrize("name", FORMS)
def test_a_simulator_is_reset_once_or_again_to_seed_it(name):
    own = simulator(name)
    env = adapt(own)
    drive(env, [5] * 8)
    is_seeded = bool(own.seeds)
    assert own.num_starts == 1 + is_seeded
    assert own.seeds in ([], [0], [None, 0])
    assert is_seeded == isinstance(own, IsaacLab)


def test_what_is_in_the_log_becomes_statistics():
    own = simulator("Isaac Lab")
    own.log = {"Episode_Reward/x": torch.tensor(3.0), "mean": torch.tensor([1.0, 2, 6]), "text": "x"}
    own.log |= {"one": torch.tensor([5.0]), "own": torch.tensor([7.0, 8]), "ragged": [[1], [2, 3]]}
    _, results = drive(adapt(own), [5] * 3)
    assert [result.end_infos for result in results[:2]] == [{}, {}]
    means = {"Episode_Reward/x": 3.0, "mean": 3.0, "one": 5.0}
    assert results[2].end_infos == {
        agent: {"episode_extra_stats": {**means, "own": 7.0 + agent}} for agent in (0, 1)
    }
    assert results[2].truncated.tolist() == [True, True] and not results[2].terminated.any()


def test_tensors_in_the_infos_of_a_vector_env_are_split():
    script = SCRIPT._replace(objective="true_objective", rewards=(1, 2, 3))
    _, results = drive(adapt(ManiSkill([script, script._replace(rewards=(4,))], PLAIN)), [5] * 3)
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
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
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

    def _reset(self):
        return self._begin(), {}


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_simulator_that_does_not_declare_when_it_resets_is_refused(num_envs):
    own = SilentSkrl([SCRIPT] * num_envs, PLAIN, FORMS["skrl"])
    own.metadata = {}
    with pytest.raises(EnvContractError, match="SilentSkrl does not say when it resets .*SAME_STEP[^,]*$"):
        adapt(own)
    own.metadata = {"autoreset_mode": "sometimes"}
    with pytest.raises(EnvContractError, match=r"metadata\['autoreset_mode'\] is 'sometimes'; its class "):
        adapt(own)
    assert own.num_starts == 0, "none was reset to find out"


class Changed(TorchCrowd):
    """`reset` returns what it is given; the infos of a step are `infos`."""

    infos: dict = {}

    def __init__(self, first=None, num_envs=3, **attributes):
        super().__init__(num_envs)
        self.first = torch.zeros(num_envs, 2) if first is None else first
        vars(self).update(attributes)

    def reset(self):
        return self.first

    get_observations = reset

    def step(self, actions):
        ones = torch.ones(self.num_envs)
        return self.first, ones, ones, self.infos


def test_time_limits_of_a_task_with_a_finite_horizon_terminate():
    own = simulator("Isaac Lab")
    own.cfg = types.SimpleNamespace(is_finite_horizon=True)
    _, results = drive(adapt(own), [5] * 3)
    assert results[2].terminated.all() and not results[2].truncated.any()


def test_time_outs_that_done_does_not_include_are_named_in_a_warning(caplog):
    own = Changed(infos={"time_outs": torch.tensor([1, 0, 1])})
    own.step = lambda actions: (own.first, torch.ones(3), torch.tensor([1, 0, 0]), own.infos)
    _, results = drive(adapt(own), [0] * 3)
    assert [result.truncated.tolist() for result in results] == [[True, False, False]] * 3
    assert caplog.text.count("Changed: infos['time_outs'] cuts an episode that `done` does not end") == 1


@pytest.mark.parametrize("shape", [(3, 1), (3,)])
def test_indices_of_actions_are_columns_where_those_of_the_simulator_are(shape):
    class Given(Changed):
        def step(self, actions):
            self.given = actions
            return super().step(actions)

    own = Given(single_action_space=spaces.Discrete(3), actions=torch.zeros(shape))
    drive(adapt(own), [2])
    assert own.given.shape == shape and own.given.ravel().tolist() == [2] * 3


def test_random_keys_of_jax_are_left_out_of_the_infos():
    class Keys:
        shape = (3,)

        def __array__(self, dtype=None, copy=None):
            raise TypeError("JAX array with PRNGKey dtype cannot be converted to a NumPy array")

    own = Changed(infos={"rng": Keys(), "score": torch.ones(3), "state": {"rng": Keys()}})
    _, (result,) = drive(adapt(own), [0])
    assert result.end_infos[0] == {"score": 1, "state": {}}


def test_the_first_observation_is_of_the_state_that_the_last_reset_made():
    own = Changed()
    own.reset = own.get_observations = lambda: own.first.add_(1).clone()
    seen, _ = drive(adapt(own), [])
    assert (seen[0]["obs"] == own.first.numpy()).all()


def test_steps_and_resets_of_a_simulator_keep_no_graph():
    own = Changed()
    weights = torch.ones(2, requires_grad=True)
    own.reset = own.get_observations = lambda: vars(own).update(first=own.first * weights) or own.first
    own.step = lambda actions: (own.reset(), torch.ones(3), torch.zeros(3), {})
    drive(adapt(own), [0] * 2)
    assert not own.first.requires_grad


MULTI = spaces.MultiDiscrete([3, 5])


@pytest.mark.parametrize(
    "single", [MULTI, spaces.MultiBinary(4), spaces.Dict(a=BOX, b=spaces.Discrete(3))], ids=str
)
def test_an_action_space_of_all_envs_that_does_not_show_that_of_one_is_refused(single):
    batched = gym.vector.utils.batch_space(single, 3)
    own = Changed(action_space=batched, observation_space=spaces.Box(-1, 1, (3, 2)))
    with pytest.raises(UnsupportedSpace, match="Changed has an action_space .* set single_action_space"):
        SimulatorVectorEnv(own)
    own.single_action_space = single
    assert SimulatorVectorEnv(own).single_action_space == single


def test_random_first_ages_are_in_the_first_observation_of_an_env_without_reset():
    own = TorchCrowd(num_envs=100)
    env = SimulatorVectorEnv(own)
    env.spread_episodes(seed=1)
    observations, _ = env.reset(seed=1)
    assert (
        observations["obs"][:, 2].tolist() == own.episode_length_buf.tolist() and own.episode_length_buf.any()
    )


def test_an_error_in_the_first_reset_is_one_of_the_env():
    class Breaks(Changed):
        def reset(self):
            raise KeyError("joint")

    with pytest.raises(EnvRaised, match="env 'Breaks' raised in reset: KeyError: 'joint'"):
        adapt(Breaks())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rewards": torch.zeros(3)},
            "rewards is an array of shape (3,); it should have a number for each of the 8 envs",
        ),
        ({"rewards": torch.zeros(8, 2)}, "an array of shape (8, 2)"),
        ({"done": torch.zeros(8, 3)}, "done is an array of shape (8, 3)"),
        ({"infos": {"time_outs": torch.zeros(3)}, "done": torch.ones(8)}, "infos['time_outs'] is an array"),
        ({"observations": {"x": torch.zeros(8, 4)}}, "the observation lacks obs and has x"),
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
        drive(adapt(Wrong()), [5])
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_a_first_observation_without_an_entry_for_each_copy_is_refused():
    class Single(TorchCrowd):
        def get_observations(self):
            return torch.zeros(4)

    with pytest.raises(EnvContractError, match=r"observation 'obs' is an array of shape \(4,\).* 8 envs"):
        adapt(Single())


def observed(own):
    return SimulatorVectorEnv(own).single_observation_space


def old_gym_box(low, high, shape, dtype):
    """Returns a Box of the old gym package, which is recognised by its name."""
    old = type("Box", (), {"__module__": "gym.spaces.box"})()
    vars(old).update(low=np.full(shape, low), high=np.full(shape, high), shape=shape, dtype=np.dtype(dtype))
    return old


FEW = torch.tensor([[1], [0], [2]])
DICT = spaces.Dict(policy=BOX)


@pytest.mark.parametrize(
    ("first", "declared", "space"),
    [
        (FEW, spaces.Discrete(3), spaces.Discrete(3)),
        (FEW[:, 0], spaces.MultiDiscrete([3, 3, 3]), spaces.Discrete(3)),
        (FEW, old_gym_box(0, 9, (1,), np.int32), spaces.Box(0, 9, (1,), np.int32)),
        (FEW, old_gym_box(0, 9, (3, 1), np.int32), spaces.Box(0, 9, (1,), np.int32)),
        (FEW.float(), BOX, BOX),
        (FEW.float(), spaces.Discrete(3), spaces.Box(-np.inf, np.inf, (1,))),
        (FEW.float(), DICT, spaces.Box(-np.inf, np.inf, (1,))),
        ({"policy": FEW.float()}, DICT, DICT),
        (
            {"policy": FEW.float(), "critic": FEW},
            DICT,
            spaces.Dict(policy=BOX, critic=spaces.Box(-np.inf, np.inf, (1,))),
        ),
        (FEW.bfloat16(), None, spaces.Box(-np.inf, np.inf, (1,))),
        (FEW.byte(), spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(0, 255, (1,), np.uint8)),
        (FEW.byte(), spaces.Box(0, 1, (1,)), spaces.Box(0, 1, (1,))),
    ],
)
@pytest.mark.parametrize("name", ["single_observation_space", "observation_space"])
def test_a_declared_space_holds_where_the_first_observations_fit_it(first, declared, space, name):
    assert observed(Changed(first, **{name: declared})) == space


def test_indices_of_a_simulator_are_indices():
    env = adapt(Changed(FEW, single_observation_space=spaces.Discrete(3)))
    seen, _ = drive(env, [0])
    assert seen[1]["obs"].dtype == np.int32 and seen[1]["obs"].ravel().tolist() == [1, 0, 2]


@pytest.mark.parametrize("first", [(FEW, FEW), [FEW, FEW, FEW]])
def test_observations_in_a_list_or_tuple_are_refused(first):
    with pytest.raises(
        EnvContractError, match=r"observation 'obs' is a (tuple|list) of .*or a dict of these"
    ):
        adapt(Changed(first))


def test_actions_are_on_the_device_of_the_first_observation(monkeypatch):
    monkeypatch.setattr(tensors, "_leaf_to_host", lambda value, path=(): value)
    crossing = Crossing()
    crossing.to_host((torch.zeros(1), torch.zeros(1, device="meta")))
    assert crossing.to_env(np.zeros(1)).device.type == "cpu"


def test_each_tensor_has_a_path_of_its_own():
    paths = tensors._changed({"a/b": 1, "a": {"b": 2}}, lambda leaf, path: path)
    assert paths["a/b"] != paths["a"]["b"]


def test_bfloat16_becomes_float32():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    crossing = Crossing()
    host = crossing.to_host(torch.tensor([0.5, 2]).bfloat16())
    assert host.dtype == np.float32 and host.tolist() == [0.5, 2]
    assert to_host(ArrayOfJax(np.ones(2, ml_dtypes.bfloat16))).dtype == np.float32


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ({"time_outs": None}, {}),
        ({"ragged": [[1], [2, 3]], "texts": ["a", "b", "c"]}, {"texts": "b"}),
        (
            {"episode_extra_stats": torch.tensor([1.0, 2, 3]), "log": {"x": 5.0}},
            {"episode_extra_stats": {"x": 5.0, "episode_extra_stats": 2.0}},
        ),
        (
            {"Achievements/x": torch.tensor([0.0, 100, 0]), "episode_metrics": {"y": torch.ones(3)}},
            {"episode_extra_stats": {"Achievements/x": 100.0, "y": 1.0}},
        ),
        ({"episode": torch.tensor([1.0, 2, 3])}, {"episode": 2.0}),
        (
            {"episode": {"r": torch.tensor([1.0, 2, 3]), "rew_x": torch.tensor([4.0])}},
            {"episode": {"r": 2.0}, "episode_extra_stats": {"rew_x": 4.0}},
        ),
    ],
)
def test_infos_of_any_form_are_read(infos, expected):
    own = Changed()
    own.infos = infos
    _, (result,) = drive(adapt(own), [0])
    assert result.terminated.all() and result.end_infos.get(1, {}) == expected


def test_agents_are_inactive_where_the_infos_say_so_in_any_step():
    own = Changed()
    own.infos = {"is_active": torch.tensor([[1], [0], [1]])}
    step = own.step
    own.step = lambda actions: (*step(actions)[:2], torch.zeros(3), own.infos)
    _, (result,) = drive(adapt(own), [0])
    assert result.active.tolist() == [True, False, True] and not result.terminated.any()


@pytest.mark.parametrize(
    "limit", [0, np.inf, torch.tensor(np.inf), torch.tensor([50, 60]), None, lambda: 50, "50"]
)
def test_a_limit_of_episodes_that_is_no_number_of_steps_is_not_used(limit):
    own = Changed(max_episode_length=limit)
    env = SimulatorVectorEnv(own)
    env.spread_episodes(1)
    env.reset(seed=0)
    assert env.max_episode_steps() is None and not own.episode_length_buf.any()


@pytest.mark.parametrize("ages", [np.zeros(3, int), ArrayOfJax(np.zeros(3, int))])
def test_ages_of_other_libraries_are_written_where_that_is_possible(ages):
    own = Changed(episode_length_buf=ages)
    env = SimulatorVectorEnv(own)
    env.spread_episodes(1)
    env.reset(seed=0)
    assert np.asarray(own.episode_length_buf).any() == isinstance(ages, np.ndarray)


def test_the_first_step_of_isaac_gym_only_resets():
    env = adapt(simulator("Isaac Gym"))
    rows = ObservationRows.allocate(env.kinds)
    assert env.reset(0, rows).tolist() == [False, False]
    results = [env.step(np.full((2, 1), 5, np.float32), rows) for _ in range(5)]
    assert [result.truncated.any() for result in results] == [False, False, False, True, False]
    assert [result.active is None or result.active.any() for result in results] == [True] * 3 + [False, True]


class ResetsAtOnce(Changed):
    """Has the counters of Isaac Gym, and marks all envs in its first reset, but resets in the same step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self):
        super().__init__(progress_buf=torch.zeros(3), reset_buf=torch.ones(3))
        del self.episode_length_buf

    def step(self, actions):
        self.progress_buf += 1
        done = self.reset_buf = (self.progress_buf >= 5).long()
        self.progress_buf[done > 0] = 0
        return self.first, torch.ones(3), done, {"time_outs": done}


def test_no_step_is_lost_to_marks_that_a_simulator_leaves_in_its_first_reset():
    _, results = drive(adapt(ResetsAtOnce()), [0] * 11)
    assert [result.rewards.tolist() for result in results] == [[1, 1, 1]] * 11
    assert all(result.active is None or result.active.all() for result in results)
    assert [step for step, result in enumerate(results, 1) if result.truncated.any()] == [5, 10]


@pytest.mark.parametrize("shape", [(3, 1), (3,)])
def test_ages_of_any_shape_are_written_also_where_torch_only_infers(shape):
    with torch.inference_mode():
        own = Changed(episode_length_buf=torch.zeros(shape))
    env = SimulatorVectorEnv(own)
    env.spread_episodes(1)
    env.reset(seed=0)
    assert own.episode_length_buf.any() and own.episode_length_buf.shape == shape


class OneEnv(gym.Env):
    """Like ManiSkill's env for a CPU: one env, with the attributes of a simulator."""

    num_envs = 1
    observation_space = single_observation_space = spaces.Box(-1, 1, (2,))
    action_space = single_action_space = BOX


class OldEnv:
    """A single env of the old API with the attribute of a simulator."""

    num_envs = 1
    observation_space = spaces.Box(-1, 1, (4,))
    action_space = BOX

    def reset(self):
        return np.zeros(4, np.float32)

    def step(self, action):
        return np.zeros(4, np.float32), 1.0, False, {}


class OneRobot(OneEnv):
    """Like ManiSkill's env with one robot: there is no `is_vector_env`, but a batch of observations."""

    observation_space = spaces.Box(-1, 1, (1, 2))


def test_a_simulator_of_one_env_is_recognised_by_its_observations():
    assert not is_simulator(OldEnv()) and is_simulator(OneRobot())
    assert type(adapt(OldEnv())).__name__ == "SingleAgentAdapter"
    assert all(is_simulator(simulator(name, num_envs=1)) for name in FORMS)
    assert is_simulator(Changed(num_envs=1, observation_space=BOX))


def test_a_single_env_with_the_attributes_of_a_simulator_is_a_single_env():
    assert not is_simulator(OneEnv()) and is_simulator(simulator("Isaac Lab", num_envs=1))
    assert type(adapt(OneEnv())).__name__ == "SingleAgentAdapter"
    assert is_simulator(ManiSkill([SCRIPT], PLAIN)) and is_simulator(SimulatorVectorEnv(TorchCrowd()))
    assert not is_simulator(gym.make_vec("CartPole-v1", num_envs=2))


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
    """Begins with random numbers of its own."""

    def __init__(self, seed):
        super().__init__()
        self._seed = seed

    def _observe(self, actions):
        return {"obs": torch.rand(8, 4, generator=torch.Generator().manual_seed(self._seed))}


@pytest.mark.parametrize(
    ("make_env", "num_warnings"),
    [
        (lambda env_config: Noisy(5), 1),
        (lambda env_config: Noisy(5 + env_config.env_id), 0),
        (lambda env_config: Changed(torch.zeros(8, 4), 8, action_space=TorchCrowd().action_space), 0),
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
        super().__init__(num_envs)
        assert device == "cpu"

    def _observe(self, actions):
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
    with pytest.raises(ChildFailed, match=rf"make_env\(num_envs={FEW_COPIES}\) returned an env of 8 agents"):
        probe_env_info(resolve_family("sized"), config.namespace())


def test_the_trial_steps_a_simulator_unless_jax_would_compile_the_step(tmp_path):
    class Raises(Sized):
        def __init__(self, num_envs: int = 300):
            super().__init__(num_envs, "cpu")

        def step(self, actions):
            raise ValueError("no step")

    class Compiles(Raises):
        def reset(self):
            sys.modules["jax"] = sys  # in the process of the trial
            return self._observe(None)

    config = parsed(tmp_path, env=Raises)
    with pytest.raises(ChildFailed, match="no step"):
        probe_env_info(resolve_family("sized"), config.namespace())
    config = parsed(tmp_path, env=Compiles)
    assert probe_env_info(resolve_family("sized"), config.namespace()).num_agents == 300


def test_a_vecenv_of_stable_baselines3_is_refused_by_a_line_that_says_what_to_return():
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([lambda: gym.make("CartPole-v1")] * 2)
    with pytest.raises(TypeError, match=r"DummyVecEnv, a VecEnv of .*; .* gymnasium.make_vec\(...\)"):
        adapt(env)


class SaysNothing(Changed):
    """Returns 4 values, and no time limits."""


def test_ends_of_which_none_is_a_time_limit_are_in_the_log_once(caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    with caplog.at_level(logging.INFO, "sample_factory"):
        drive(adapt(SaysNothing()), [0] * 3)
        drive(adapt(SaysNothing()), [0])
        drive(adapt(TorchCrowd()), [0] * 5)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    (ends,) = caplog.messages
    assert ends.startswith("SaysNothing has none of time_outs, truncation") and "as terminated" in ends


class Composite(TorchCrowd):
    """Its actions have as many parts as a simulator may have copies."""

    def __init__(self, num_envs: int = 2):
        super().__init__(num_envs)
        self.action_space = spaces.MultiDiscrete([3, 5])


def test_parts_of_an_action_are_not_taken_for_copies():
    assert SimulatorVectorEnv(Composite(2)).single_action_space == spaces.MultiDiscrete([3, 5])
    alike = spaces.MultiDiscrete([4, 4, 4])
    single = Changed(action_space=alike, observation_space=spaces.Box(-1, 1, (2,)))
    assert SimulatorVectorEnv(single).single_action_space == alike
    for batched in (spaces.Box(-1, 1, (3, 2)), spaces.Dict(x=spaces.Box(-1, 1, (3, 2)))):
        of_all = Changed(action_space=alike, observation_space=batched)
        assert SimulatorVectorEnv(of_all).single_action_space == spaces.Discrete(4)


class Privileged(TorchCrowd):
    """Returns five values, of which the second is an observation: an older form of rsl_rl."""

    def step(self, actions):
        observations, rewards, done, infos = super().step(actions)
        return observations, torch.full((self.num_envs, 1), 0.5), rewards + 0.5, done, infos


def test_two_ends_are_no_observations_of_a_critic():
    class Five(TorchCrowd):
        num_privileged_obs = 0

        def step(self, actions):
            observations, rewards, done, infos = super().step(actions)
            return observations["obs"], rewards, done, done & False, infos

        def reset(self):
            return torch.zeros(self.num_envs, 4)

    env = SimulatorVectorEnv(Five(2))
    env.reset()
    *_, rewards, terminated, truncated, _ = env.step(np.zeros(2, np.int64))
    assert rewards.tolist() == [1, 1] and not terminated.any() and not truncated.any()


def test_a_helper_that_observes_something_else_is_not_asked():
    class Helper(Changed):
        metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

        def get_observations(self, env_ids):
            return {"joints": env_ids}

    own = Helper(episode_length_buf=None)
    assert SimulatorVectorEnv(own).single_observation_space.shape == (2,)


def test_an_env_of_another_interface_with_num_envs_is_no_simulator():
    env = adapt(CountingEnv())
    env.env.num_envs = 4
    assert not env_info(env, make_config().namespace()).is_simulator


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
        "Defaults for a batched simulator of 64 envs, since the env observes critic, policy"
    )
    assert "critic_only_keys critic" in note.text


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
    _, results = drive(adapt(gym.wrappers.OrderEnforcing(own)), [5] * 4)
    assert [result.truncated.any() for result in results] == [False, False, True, False]
    assert own.seeds == [None, 0]


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
