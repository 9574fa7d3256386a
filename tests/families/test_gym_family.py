"""`gym_<id>`: single envs, and copies that are stepped in one call."""

import re
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.abilities import max_episode_steps
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.protocol import ObservationRows
from sample_factory.families import gym_family
from sample_factory.families.gym_family import (
    CONTROL_SUITE,
    MEMORY,
    PACKAGES,
    ROADS,
    ROBOTS,
    parse_name,
    suite_defaults,
)
from tests.envs.made import make_env

NUM_COPIES = 3


def make(name: str, copies: int, frameskip: int | None = None, env_kwargs: str = "{}"):
    return make_env(name, vector_env_copies=copies, env_frameskip=frameskip, env_kwargs=env_kwargs)


def test_copies_use_the_env_s_own_vectorised_implementation_where_there_is_one():
    from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

    assert isinstance(make("gym_CartPole-v1", NUM_COPIES).unwrapped, CartPoleVectorEnv)
    assert isinstance(make("gym_Pendulum-v1", NUM_COPIES), gym.vector.SyncVectorEnv)


def test_copies_spend_no_step_on_a_reset():
    env = adapt(make("gym_FrozenLake-v1", NUM_COPIES, env_kwargs='{"max_episode_steps": 2}'))
    rows = ObservationRows.allocate(env.kinds)
    env.reset(7, rows)
    results = [env.step(np.zeros((NUM_COPIES, 1), np.float32), rows) for _ in range(6)]
    assert [result.truncated.all() for result in results] == [False, True] * 3
    assert all(result.active is None for result in results)


def test_copies_of_an_env_whose_module_is_named(tmp_path, monkeypatch):
    (tmp_path / "registers_cart.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Cart-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make("gym_registers_cart:Cart-v0", NUM_COPIES).num_envs == NUM_COPIES


SLIPPERY = {"env_kwargs": '{"is_sliperry": false}'}


@pytest.mark.parametrize("copies", [1, NUM_COPIES])
def test_arguments_by_flag_reach_the_env(copies):
    assert make("gym_CartPole-v1", copies, env_kwargs='{"render_mode": null}')
    env = make("gym_FrozenLake-v1", copies, env_kwargs='{"is_slippery": false, "max_episode_steps": 2}')
    single = env if copies == 1 else env.envs[0]
    assert all(len(outcomes) == 1 for outcomes in single.unwrapped.P[0].values())
    assert single.get_wrapper_attr("_max_episode_steps") == 2
    assert make("gym_CartPole-v1", copies, env_kwargs='{"sutton_barto_reward": true}')


@pytest.mark.parametrize("env_kwargs", ["{}", '{"max_episode_steps": 2}'])
def test_copies_are_made_like_the_single_env(env_kwargs):
    single, envs = (make("gym_FrozenLake-v1", copies, env_kwargs=env_kwargs) for copies in (1, NUM_COPIES))
    assert [str(env) for env in envs.envs] == [str(single)] * NUM_COPIES  # names the wrappers


@pytest.mark.parametrize("name", ["gym_FrozenLake-v1", "gym_CartPole-v1"])  # has its own vector env
@pytest.mark.parametrize("copies", [1, NUM_COPIES])
@pytest.mark.parametrize("given", [None, 2])
def test_the_known_limit_of_episodes_is_the_one_at_which_they_end(name, copies, given):
    limit = given or gym.spec(name.removeprefix("gym_")).max_episode_steps
    env_kwargs = "{}" if given is None else f'{{"max_episode_steps": {given}}}'
    assert max_episode_steps(make(name, copies, env_kwargs=env_kwargs)) == limit


@pytest.mark.parametrize(
    ("env", "copies", "flags", "message"),
    [
        ("CartPole-v1", NUM_COPIES, {"frameskip": 4}, "--vector_env_copies=1"),
        ("CartPole-v1", 1, {"env_kwargs": '{"render_mode": "human"}'}, "leave out render_mode"),
        ("FrozenLake-v1", 1, SLIPPERY, "no argument 'is_sliperry'; did you mean is_slippery?"),
        (
            "CartPole-v1",
            NUM_COPIES,
            SLIPPERY,
            "no argument 'is_sliperry'; it has max_episode_steps, sutton_barto",
        ),
    ],
)
def test_arguments_that_an_env_does_not_have_or_training_sets_are_refused(env, copies, flags, message):
    with pytest.raises(ConfigError, match=message):
        make(f"gym_{env}", copies, **flags)


@pytest.mark.parametrize("name", ["gym_FrozenLake-v1", "gym_CartPole-v1"])  # has its own vector env
@pytest.mark.parametrize("copies", [1, NUM_COPIES])
def test_the_limit_minus_1_is_no_limit_and_one_that_is_none_is_refused(name, copies):
    env = make(name, copies, env_kwargs='{"max_episode_steps": -1}')
    assert max_episode_steps(env) is None
    single = env if copies == 1 else env.envs[0]
    assert "TimeLimit" not in str(single)
    for limit in ("0", "-2", "1.5", "true", '"2"'):
        with pytest.raises(ConfigError, match=r"should be a positive number of steps, or -1 for no limit"):
            make(name, copies, env_kwargs=f'{{"max_episode_steps": {limit}}}')
    registered = gym.spec(name.removeprefix("gym_")).max_episode_steps
    assert max_episode_steps(make(name, copies, env_kwargs='{"max_episode_steps": null}')) == registered


class VectorOnly(gym.vector.VectorEnv):
    """Episodes of `length` steps; the observation is the number of steps so far."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": ["rgb_array"]}

    def __init__(self, level, num_envs=1, length=2, render_mode=None):
        self.num_envs, self.length, self.render_mode = num_envs, length, render_mode
        self.single_observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.times = np.zeros((num_envs, 1), np.float32)

    def reset(self, *, seed=None, options=None):
        self.times[options["reset_mask"] if options else ...] = 0
        return self.times.copy(), {}

    def step(self, actions):
        self.times += 1
        over = self.times[:, 0] >= self.length
        return self.times.copy(), np.ones(self.num_envs), over, np.zeros(self.num_envs, bool), {}

    def render(self):
        return [np.zeros((8, 8, 3), np.uint8)] * self.num_envs


@pytest.mark.parametrize("copies", [1, NUM_COPIES])
def test_an_id_without_an_entry_point_for_single_envs_is_a_vector_env_of_any_number_of_copies(
    monkeypatch, copies
):
    spec = EnvSpec("Only-v0", vector_entry_point=f"{__name__}:VectorOnly", kwargs={"length": 3})
    monkeypatch.setitem(gym.registry, "Only-v0", spec)
    env = adapt(make_env("gym_Only-v0", "rgb_array", vector_env_copies=copies, env_kwargs='{"level": 1}'))
    assert env.num_agents == copies and env.env.render_mode == "rgb_array"
    rows = ObservationRows.allocate(env.kinds)
    env.reset(1, rows)
    ends = [env.step(np.zeros((copies, 1), np.float32), rows).terminated.all() for _ in range(6)]
    assert ends == [False, False, True] * 2 and env.render().shape == (8, 8, 3)
    for env_kwargs, message in {
        "{}": """needs the argument 'level': --env_kwargs='{"level": ...}'""",
        '{"level": 1, "lenght": 2}': "no argument 'lenght'; did you mean length?",
        '{"level": 1, "max_episode_steps": 5}': "no argument 'max_episode_steps'; it has level, length",
        '{"level": 1, "max_episode_steps": -1}': "should be a positive number of steps$",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(message).replace(r"\$", "$")):
            make("gym_Only-v0", copies, env_kwargs=env_kwargs)
    with pytest.raises(ConfigError, match="--env_frameskip=4: only single envs skip frames$"):
        make("gym_Only-v0", copies, frameskip=4, env_kwargs='{"level": 1}')


def test_copies_are_single_envs_where_the_env_s_own_vector_env_lets_them_stand_still(monkeypatch):
    """As Gymnasium's JAX envs do: all copies wait while one is reset."""
    waiting = type("Waiting", (VectorOnly,), {"__module__": "gymnasium.envs.functional_jax_env"})
    waiting.__qualname__ = "FunctionalJaxVectorEnv"
    countdown = "tests.envs.adapters.countdown:Countdown"
    monkeypatch.setitem(gym.registry, "Jax-v0", EnvSpec("Jax-v0", countdown, vector_entry_point=waiting))
    assert isinstance(make("gym_Jax-v0", NUM_COPIES), gym.vector.SyncVectorEnv)


def test_an_env_without_the_parameter_render_mode_can_be_made(monkeypatch):
    monkeypatch.setitem(
        gym.registry, "Plain-v0", EnvSpec("Plain-v0", "tests.envs.adapters.countdown:Countdown")
    )
    assert make("gym_Plain-v0", 1).unwrapped.spec.kwargs == {}
    assert make("gym_Plain-v0", NUM_COPIES).num_envs == NUM_COPIES


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "PongNoFrameskip-v4", "MiniGrid-Empty-5x5-v0", "exit-v0"])
def test_the_module_of_a_known_package_is_imported_or_the_package_to_install_is_named(monkeypatch, env_id):
    ((modules, install),) = [package for start, package in PACKAGES.items() if re.match(start, env_id)]
    module = modules[0]
    monkeypatch.delitem(gym.registry, env_id, raising=False)  # other tests may have imported the package
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(ImportError, match=f"needs the package {module}, .* pip install {install}"):
        parse_name(f"gym_{env_id}")
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))  # as if it were
    assert parse_name(f"gym_{env_id}") == (module, env_id)
    monkeypatch.setitem(gym.registry, env_id, EnvSpec(env_id, "a:b"))
    assert parse_name(f"gym_{env_id}") == (None, env_id), "a script may register an id of that name"


def test_vizdoom_s_own_ids_need_no_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the engine writes _vizdoom.ini
    env = make("gym_VizdoomBasic-v1", 1)
    observation, _ = env.reset(seed=1)
    assert observation["screen"].shape == (240, 320, 3)
    env.close()
    for name in ("gym_VizdoomBasik-v1", "gym_vizdoombasic-v1"):
        with pytest.raises(UnknownEnvError, match=r"did you mean gym_VizdoomBasic-v1\?"):
            make(name, 1)


@pytest.mark.parametrize("copies", [1, NUM_COPIES])
def test_a_mujoco_that_is_too_new_for_gymnasium_robotics_is_named(tmp_path, monkeypatch, copies):
    (tmp_path / "gymnasium_robotics.py").write_text("def make(**_):\n    assert False\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(gym.registry, "FetchFake-v4", EnvSpec("FetchFake-v4", "gymnasium_robotics:make"))
    metadata = tmp_path / "mujoco-3.12.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: mujoco\nVersion: 3.12.0\n")
    with pytest.raises(ConfigError, match=r"cannot be made with mujoco 3.12.0, .* pip install 'mujoco<3.12'"):
        make("gym_FetchFake-v4", copies)
    metadata.write_text("Metadata-Version: 2.1\nName: mujoco\nVersion: 3.11.0\n")
    with pytest.raises(AssertionError):
        make("gym_FetchFake-v4", copies)


def test_the_error_for_an_unknown_id_of_a_module_names_the_nearest(tmp_path, monkeypatch):
    module = "registers_mazes"
    (tmp_path / f"{module}.py").write_text("import gymnasium\ngymnasium.register('Maze-v3', 'a:b')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownEnvError, match=f"did you mean gym_{module}:Maze-v3?"):
        make(f"gym_{module}:Mase-v3", 1)
    with pytest.raises(UnknownEnvError, match=f"the newest is gym_{module}:Maze-v3"):
        make(f"gym_{module}:Maze-v1", 1)
    with pytest.raises(UnknownEnvError, match=f"{module} registers no such id with Gymnasium"):
        make(f"gym_{module}:Tower-v0", 1)
    del gym.registry["Maze-v3"]


def test_an_old_version_that_still_exists_is_reported_once(caplog):
    gym_family._warn_of_newer.cache_clear()
    for _ in range(2):
        resolve_family("gym_MountainCar-v0")
        resolve_family("gym_CartPole-v0")
    assert caplog.text.count("gym_CartPole-v0 is out of date: the newest version is gym_CartPole-v1") == 1
    assert "MountainCar" not in caplog.text


@pytest.mark.parametrize(
    ("env_id", "flags"),
    [
        ("popgym-RepeatPreviousEasy-v0", MEMORY),
        ("FetchReachDense-v4", ROBOTS),
        ("MetaWorld/Reach-v3", ROBOTS),
        ("parking-v0", ROBOTS),
        ("CartpoleSwingup-v1", CONTROL_SUITE),
        ("dm_control/cartpole-swingup-v0", CONTROL_SUITE),
        ("highway-fast-v0", ROADS),
        ("CartPole-v1", {}),
        ("Acrobot-v1", {}),
        ("Pendulum-v1", {}),
        ("HumanoidStandup-v5", {}),
        ("ALE/Pong-v5", {}),
    ],
)
def test_an_id_has_the_flags_of_its_suite(env_id, flags):
    assert suite_defaults(env_id) == flags


@pytest.mark.parametrize("flags", [MEMORY, ROBOTS, CONTROL_SUITE, ROADS])
def test_the_flags_of_a_suite_are_consistent(flags, tmp_path):
    def family(name):
        resolved = resolve_family("gym_CartPole-v1")
        return resolved.__class__(name, resolved.make_env, resolved.flags, {**resolved.defaults, **flags})

    config = parse_config(["--env=gym_CartPole-v1", f"--train_dir={tmp_path}", "--num_workers=2"], family)
    assert config.unknown == {}


@pytest.mark.parametrize("name", ["gym_popgym-RepeatFirstEasy-v0", "gym_popgym:popgym-RepeatFirstEasy-v0"])
def test_a_suite_is_found_by_the_id_after_the_module(name, monkeypatch):
    any_module = ("any", "")
    monkeypatch.setattr(
        gym_family, "parse_name", lambda name: any_module
    )  # whether or not its package is here
    assert resolve_family(name).defaults["use_rnn"]
    assert not resolve_family("gym_CartPole-v1").defaults


@pytest.mark.parametrize(("task_id", "flags"), [("FetchReachDense-v4", ROBOTS), ("highway-fast-v0", ROADS)])
def test_envpool_has_the_flags_of_a_suite_too(task_id, flags):
    assert flags.items() <= resolve_family(f"envpool_{task_id}").defaults.items()
