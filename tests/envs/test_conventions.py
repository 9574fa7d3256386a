"""Tests the table of conventions of other packages, its page, and how adapters apply it."""

import types
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import sample_factory
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.adapters.adapter import _warn_of_both_ends
from sample_factory.envs.adapters.simulator import SimulatorVectorEnv
from sample_factory.envs.conventions import (
    AUTO,
    CONVENTIONS,
    RSL_RL,
    TERMINATED,
    TRUNCATED,
    UNKNOWN,
    convention_of,
)
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import make_adapted_env
from sample_factory.envs.protocol import EnvConfig, EnvContractError
from sample_factory.runtime.log import log
from tests.envs.adapters.countdown import Countdown, drive
from tests.envs.made import cfg_of
from tests.envs.parallel_envs import Scripted, Turn
from tests.envs.simulators import TorchCrowd

PAGE = Path(sample_factory.__file__).parent / "envs" / "SUITES.md"


def as_row(row):
    """Returns a row as the page shows it."""
    parts = [
        row.autoreset and f"autoreset {row.autoreset.name}",
        row.both_ends != TERMINATED and f"both ends at once: {row.both_ends}",
        row.repeats_first_states and "a copy begins all episodes in one state",
        row.stands_still and "copies stand still while one is reset",
        row.batches_action_space and "`action_space` is of all envs",
        row.has_index_columns and "takes indices of actions as a column",
        row.cannot_close and "`close` fails",
        row.is_functional and "[functions of a state](BATCHED.md#functional-envs-of-jax)",
        row.remarks,
    ]
    return f"| {row.package} | {'; '.join(filter(None, parts))} |"


def test_the_page_shows_the_table():
    shown = PAGE.read_text().partition("## What other packages do")[2].partition("## ")[0]
    rows = [line for line in shown.splitlines() if line.startswith("|")][2:]
    assert rows == [*map(as_row, CONVENTIONS)]


def test_each_row_says_what_was_seen_in_which_version_and_where():
    for row in CONVENTIONS:
        assert any(part[0].isdigit() for part in row.package.split()[1:]) and row.source and row.classes
        assert row._replace(package="", classes=(), source="") != UNKNOWN


@pytest.mark.parametrize("module", ["navix.environments.environment", "gymnax.environments.x", "pgx.core"])
def test_an_env_that_is_a_function_of_a_state_is_refused_by_a_line_that_names_the_page(module):
    functional = type("Empty", (Countdown,), {"__module__": module})
    with pytest.raises(TypeError, match=r"^make_env returned Empty, .* see sample_factory/envs/BATCHED.md$"):
        adapt(functional())
    assert (PAGE.parent / "BATCHED.md").exists()


def test_an_env_that_a_package_has_made_of_a_function_of_a_state_is_adapted():
    """As jumanji's JumanjiToGymWrapper, `unwrapped` is the function."""
    functional = type("Empty", (), {"__module__": "jumanji.env"})()
    assert adapt(known("jumanji.wrappers", Countdown, unwrapped=functional)()).num_agents == 1


class BothAtLimit(Countdown):
    """An env that says terminated at every end, and also truncated where a time limit has cut the episode."""

    def __init__(self, alone=()):
        """alone: numbers of the episodes that are truncated alone."""
        super().__init__(length=2)
        self.alone = alone

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return (
            observation,
            reward,
            (terminated or truncated) and self.episode not in self.alone,
            truncated,
            info,
        )


def known(name, base=BothAtLimit, **attributes):
    """Returns a class like `base` whose module has this name."""
    return type("Env", (base,), {"__module__": name, **attributes})


def ends_of(env, both_ends=AUTO):
    """Returns (terminated, truncated) of the first two episodes of agent 0, which plays ten or more."""
    _, results = drive(adapt(env, both_ends), [0] * 30)
    ends = [(bool(result.terminated[0]), bool(result.truncated[0])) for result in results]
    return [end for end in ends if any(end)][:2]


# Countdown terminates its first episode, and truncates its second one.
AS_TERMINATED = [(True, False), (True, False)]
AS_TRUNCATED = [(True, False), (False, True)]


FORMS = {
    "single": lambda make: TimeLimit(make(), 100),
    "copies": lambda make: RecordEpisodeStatistics(SyncVectorEnv([lambda: TimeLimit(make(), 100)] * 2)),
}
FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@FORM
@pytest.mark.parametrize("module", ["vizdoom.gymnasium_wrapper.base_gymnasium_env", "hasard.envs.scenario"])
def test_both_ends_count_as_the_package_means_them_unless_a_flag_says_otherwise(form, module):
    make = known(module)
    assert ends_of(form(make)) == ends_of(form(make), TRUNCATED) == AS_TRUNCATED
    assert ends_of(form(make), TERMINATED) == ends_of(form(known("vizdoom_of_mine"))) == AS_TERMINATED


@FORM
def test_hasards_form_costs_in_every_step_also_in_a_last_one_and_is_cut_at_its_limit(form):
    class Costly(BothAtLimit):
        """Costs 1.5, as DoomEnv of hasard/envs/scenario.py in `cost`, with statistics beside it."""

        def step(self, action):
            *results, info = super().step(action)
            return *results, {**info, "cost": 1.5, "env_stats": {"episode_cost": 1.5 * self.time}}

    _, results = drive(adapt(form(known("hasard.envs.scenario", Costly))), [0] * 12)
    assert {bool(result.truncated[0]) for result in results} == {True, False}
    for result in results:
        is_step_of_episode = result.rewards[0] != 0  # NEXT_STEP: the others only reset
        assert result.costs is None or result.costs[0] == 1.5 * is_step_of_episode
        assert not is_step_of_episode or result.costs is not None


@FORM
def test_where_every_end_is_both_only_deaths_terminate(form):
    class EveryEnd(Countdown):
        def __init__(self):
            super().__init__(length=2)
            self.game = types.SimpleNamespace(is_player_dead=lambda: self.episode % 2 == 1)

        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, terminated or truncated, terminated or truncated, info

    make = known("levdoom.envs.base", EveryEnd)
    assert ends_of(form(make)) == AS_TRUNCATED
    for both_ends, is_cut in ((TERMINATED, False), (TRUNCATED, True)):
        assert ends_of(form(make), both_ends) == [(not is_cut, is_cut)] * 2


def test_copies_in_other_processes_are_known_by_the_entry_point_of_their_id():
    gym.register("OfVizdoom-v0", "vizdoom.gymnasium_wrapper.gymnasium_env_defns:VizdoomScenarioEnv")
    try:
        env = gym.vector.VectorEnv()
        env.spec = gym.spec("OfVizdoom-v0")
        assert convention_of(env).both_ends == TRUNCATED
        assert convention_of(gym.vector.VectorEnv()) is UNKNOWN
    finally:
        del gym.registry["OfVizdoom-v0"]


class Lists:
    """BothAtLimit as a multi-agent env of version 1, with two agents."""

    num_agents = 2
    is_multiagent = True
    observation_space = BothAtLimit().observation_space
    action_space = BothAtLimit().action_space

    def __init__(self):
        self.env = BothAtLimit()

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed)
        return [observation] * 2, [info] * 2

    def step(self, actions):
        observation, *results = self.env.step(actions[0])
        if results[1] or results[2]:
            observation, _ = self.env.reset()
        return [observation] * 2, *([result] * 2 for result in results)


def parallel():
    """Returns a PettingZoo env whose agents are always truncated and terminated together."""
    return Scripted([Turn("abc"), Turn("", terminated="abc", truncated="abc")])


@pytest.mark.parametrize("make", [BothAtLimit, lambda: SyncVectorEnv([BothAtLimit] * 2), Lists, parallel])
def test_both_ends_at_every_time_limit_are_warned_of_once_with_the_flag(make, caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    _warn_of_both_ends.cache_clear()
    assert ends_of(make()) == ends_of(make()) == AS_TERMINATED
    (record,) = [record for record in caplog.records if "--env_both_ends=truncated" in record.message]
    assert ends_of(make(), TRUNCATED)[1] == AS_TRUNCATED[1] and ends_of(make(), TERMINATED) == AS_TERMINATED
    assert [own for own in caplog.records if "env_both_ends" in own.message] == [record]


@FORM
def test_an_env_is_named_by_the_class_in_its_wrappers(form, caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    _warn_of_both_ends.cache_clear()
    ends_of(form(BothAtLimit))
    assert [record.message.partition(":")[0] for record in caplog.records] == ["BothAtLimit"]


def test_an_object_with_the_methods_of_rsl_rls_vecenv_follows_its_row():
    own = TorchCrowd(2)
    assert convention_of(own) is convention_of(SimulatorVectorEnv(own)) is RSL_RL
    own.episode_length_buf = None
    assert convention_of(own) is UNKNOWN


def test_an_env_with_an_episode_that_is_truncated_alone_is_not_warned_of(caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    assert ends_of(BothAtLimit(alone=(2,))) == AS_TRUNCATED
    assert not caplog.records


def test_a_vector_env_whose_copies_wait_for_each_others_resets_is_refused_but_not_its_single_envs():
    module = "gymnasium.envs.functional_jax_env"
    copies = type("FunctionalJaxVectorEnv", (gym.vector.VectorEnv,), {"__module__": module})()
    with pytest.raises(EnvContractError, match="leaves the others.*vectorization_mode='sync'"):
        adapt(gym.vector.VectorWrapper(copies))
    single = type("FunctionalJaxEnv", (Countdown,), {"__module__": module})
    assert adapt(SyncVectorEnv([single] * 2)).num_agents == 2


def test_the_flag_reaches_the_env_of_a_run():
    family = EnvFamily("mine", BothAtLimit, None, {})
    cfg = cfg_of("gym_CartPole-v1", env_both_ends="truncated")
    env = make_adapted_env(family, cfg, EnvConfig(0, 0, 0))
    assert any(result.truncated[0] for result in drive(env, [0] * 4)[1])
