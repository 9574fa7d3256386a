"""What agents see of their team, for a centralised critic."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import PlaysInTeams
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_info import env_info
from sample_factory.envs.protocol import EnvConfig, EnvContractError, ObservationRows
from sample_factory.envs.wrappers.team_view import view_of_state, view_of_team
from sample_factory.spaces.actions import action_layout
from sample_factory.spaces.observations import Indices
from tests.counting import CountingEnv
from tests.envs.parallel_envs import Scripted, Turn
from tests.envs.wrappers.test_frame_stack import CHW, HWC, PLANE, STACK, CountingPictures
from tests.mixed import WATCHER, MixedCounting

CFG = type("Cfg", (), {"env_frameskip": None})


class InTeams(CountingEnv, PlaysInTeams):
    """Agents 0, 2 and 4 play against 1 and 3."""

    def __init__(self, teams=(0, 1, 0, 1, 0)):
        super().__init__(num_agents=5)
        self._teams = teams

    def teams(self):
        return self._teams


def viewed(own_env, with_actions=False):
    """Returns an adapted env with a view of the team."""
    env = adapt(own_env)
    info = env_info(env, CFG)
    return view_of_team(info.kinds, info.teams, with_actions).wrap(env, EnvConfig(0, 0, 0))


def steps_of(env, num_steps=40):
    """Yields the rows after each step, the actions before it and which agents act after it."""
    rows = ObservationRows.allocate(env.kinds)
    active = env.reset(0, rows)
    active = np.ones(env.num_agents, bool) if active is None else active
    random = np.random.default_rng(0)
    width = max(action_layout(spaces.action).num_action_values for spaces in env.kinds.spaces)
    for _ in range(num_steps):
        actions = random.integers(1, 5, (env.num_agents, width)).astype(np.float32)
        actions[~active] = 0  # as in training
        result = env.step(actions, rows)
        ended = np.array(result.terminated) | np.array(result.truncated)
        active = np.ones(env.num_agents, bool) if result.active is None else result.active
        yield rows, np.where(ended[:, None], 0, actions), active


def test_each_agent_sees_the_others_in_order_and_the_absent_as_zeros():
    num_absent = 0
    env = viewed(CountingEnv(num_agents=3, first_sleeper=1), with_actions=True)
    for rows, actions, active in steps_of(env):
        for agent in range(3):
            others = [other for other in range(3) if other != agent]
            seen = rows.view(agent)
            own = [rows.view(other)["obs"] * active[other] for other in others]
            assert (seen["others/obs"] == np.concatenate(own)).all()
            assert (seen["others/present"] == active[others]).all()
            # Of a mate that is back again: the action of the step before, in which it did not act, is 0.
            assert (seen["others/action"] == actions[others, 0] * active[others]).all()
            num_absent += (~active[others]).sum()
    assert num_absent > 0


@pytest.mark.parametrize(
    ("shape", "shape_of_two"),
    [(CHW, (2, *CHW)), (HWC, (2, *HWC)), (PLANE, (2, 1, *PLANE)), (STACK, (4, *STACK[1:]))],
)
def test_images_of_the_others_are_a_stack(shape, shape_of_two):
    for rows, _, _ in steps_of(viewed(CountingPictures(shape, num_agents=3))):
        seen = rows.view(1)["others/picture"]
        assert seen.shape == shape_of_two
        assert (seen.reshape(2, *shape) == [rows.view(other)["picture"] for other in (0, 2)]).all()


def test_only_team_mates_are_seen_and_places_without_a_mate_are_zeros():
    for rows, _, _ in steps_of(viewed(InTeams())):
        first, second = rows.view(2), rows.view(3)
        assert (first["others/obs"] == np.concatenate([rows.view(i)["obs"] for i in (0, 4)])).all()
        assert (second["others/obs"] == np.concatenate([rows.view(1)["obs"], np.zeros(4)])).all()
        assert second["others/present"].tolist() == [1, 0]


class Jointed(CountingEnv):
    """Its actions have discrete and continuous parts."""

    action_space = spaces.Tuple((spaces.MultiDiscrete([9, 9]), spaces.Box(-9, 9, (2,)), spaces.Discrete(9)))

    def step(self, actions):
        return super().step([0] * len(actions))


def test_actions_of_several_parts_are_seen_as_choices_and_values():
    env = viewed(Jointed(num_agents=2), with_actions=True)
    for rows, actions, _ in steps_of(env):
        seen = rows.view(0)
        assert (seen["others/action"] == actions[1, [0, 1, 4]]).all()
        assert (seen["others/action_values"] == actions[1, 2:4]).all()


def test_agents_of_every_kind_are_seen():
    env = viewed(MixedCounting(), with_actions=True)
    watcher, walker = (kind.observation for kind in env.kinds.spaces)
    assert watcher["others_0/action"] == Indices([1000]) and walker["others_0/where"].shape == (8,)
    assert "others_1/obs" not in walker.spaces, "there is only one walker"
    for rows, actions, _ in steps_of(env):
        for agent, kind in enumerate(MixedCounting.kind_of_agent):
            watchers = [other for other in (0, 2) if other != agent]
            seen = rows.view(agent)
            assert (seen["others_0/where"].reshape(-1, 4) == [rows.view(i)["where"] for i in watchers]).all()
            assert (seen["others_0/action"] == actions[watchers, 0]).all()
            if kind == WATCHER:
                assert (seen["others_1/obs"] == rows.view(1)["obs"]).all()
                assert (seen["others_1/action_values"] == actions[1]).all()


class WithState(Scripted):
    """Its state is the time."""

    state_space = spaces.Box(0, 1000, (2,), np.float64)

    def state(self):
        return np.array([self.time, self.episode])


def test_the_state_of_a_pettingzoo_env_is_seen_by_all_agents():
    env = adapt(WithState([Turn("abc"), Turn("ab"), Turn("", "abc")]))
    info = env_info(env, CFG)
    env = view_of_state(info.kinds, info.state_space).wrap(env, EnvConfig(0, 0, 0))
    for rows, _, _ in steps_of(env, 7):
        assert all((rows.view(agent)["others/state"] == env.env.state()).all() for agent in range(3))


@pytest.mark.parametrize(
    ("own_env", "error", "message"),
    [
        (CountingEnv(), ConfigError, "play together"),
        (SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3), ConfigError, "play together"),
        (InTeams(range(5)), ConfigError, "play together"),
        (InTeams((0, 1)), EnvContractError, "teams"),
    ],
)
def test_agents_that_play_alone_and_teams_of_a_wrong_number_are_refused(own_env, error, message):
    with pytest.raises(error, match=message):
        viewed(own_env)


@pytest.mark.parametrize("space", [None, spaces.Discrete(5)])
def test_a_state_that_is_no_array_is_refused(space):
    with pytest.raises(ConfigError, match="state_space"):
        view_of_state(env_info(adapt(Scripted([])), CFG).kinds, space)


def test_a_state_that_does_not_fit_its_space_is_named():
    own_env = WithState([Turn("abc")] * 9)
    info = env_info(adapt(own_env), CFG)
    env = view_of_state(info.kinds, spaces.Box(0, 1000, (3,), np.float32)).wrap(
        adapt(own_env), EnvConfig(0, 0, 0)
    )
    with pytest.raises(EnvContractError, match="others/state"):
        env.reset(0, ObservationRows.allocate(env.kinds))


def test_an_env_with_an_observation_of_such_a_name_is_refused():
    taken = viewed(CountingEnv(num_agents=2)).kinds
    with pytest.raises(ConfigError, match="others/obs"):
        view_of_team(taken, (0, 0))
