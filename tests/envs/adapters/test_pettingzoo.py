"""PettingZoo's envs: agents that die, join and are away; games with turns."""

import numpy as np
import pettingzoo
import pytest
from pettingzoo.classic import connect_four_v3, tictactoe_v3
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

from sample_factory.envs.abilities import RewardShaping, TrainingInfo, find_ability
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import EnvContractError, ObservationRows
from sample_factory.envs.random_actions import RandomActions
from tests.envs.parallel_envs import Alternating, Scripted, Turn


class Driven:
    """An adapted env with rows of its own, which hold the observations of the coming step."""

    def __init__(self, env, seed=None):
        self.env = env
        self.adapted = adapt(env)
        self.rows = ObservationRows.allocate(self.adapted.kinds)
        self.rows.arrays["obs"][:] = -1
        self._active = self.adapted.reset(seed, self.rows)

    def step(self, actions=(0, 1, 2)):
        result = self.adapted.step(np.array(actions, np.float32)[:, None], self.rows)
        self._active = result.active
        return result

    @property
    def observations(self):
        return [tuple(map(int, row)) for row in self.rows.arrays["obs"][:, 0]]

    @property
    def active(self):
        return [True] * self.adapted.num_agents if self._active is None else self._active.tolist()


ABSENT = (0, 0, 0)


def test_agents_are_numbered_as_in_possible_agents_and_act_in_their_own_space():
    driven = Driven(Scripted([Turn("cba")] * 2))
    assert driven.adapted.num_agents == 3
    assert driven.observations == [(1, 0, 1), (2, 0, 1), (3, 0, 1)]
    result = driven.step()
    assert driven.env.actions == [{"a": 10, "b": 11, "c": 12}]
    assert result.rewards == [1.0, 2.0, 3.0] and driven.active == [True] * 3


def test_an_agent_that_ended_is_inactive_until_the_episode_of_the_env_is_over():
    turns = [Turn("ac", terminated="b"), Turn("ac"), Turn("a", truncated="c"), Turn("", terminated="a")]
    driven = Driven(Scripted(turns))
    first = driven.step()
    assert first.terminated == [False, True, False] and first.rewards == [1.0, 2.0, 3.0]
    assert driven.active == [True, False, True] and driven.observations[1] == ABSENT
    second = driven.step()
    assert second.terminated == [False] * 3 and second.rewards == [1.0, 0.0, 3.0]
    assert driven.active == [True, False, True]
    third = driven.step()
    assert third.truncated == [False, False, True] and driven.active == [True, False, False]
    last = driven.step()
    assert last.terminated == [True, False, False] and last.truncated == [False] * 3
    assert driven.observations == [(1, 0, 2), (2, 0, 2), (3, 0, 2)], "the first of the next episode"
    assert driven.active == [True] * 3
    assert [sorted(actions) for actions in driven.env.actions] == [
        ["a", "b", "c"], ["a", "c"], ["a", "c"], ["a"],
    ]  # fmt: skip


def test_an_ended_agent_stays_inactive_even_if_the_env_keeps_listing_it():
    driven = Driven(Scripted([Turn("abc", terminated="b"), Turn("abc", terminated="ab"), Turn("abc", "c")]))
    driven.step()
    assert driven.active == [True, False, True]
    assert driven.step().terminated == [True, False, False], "agent b has ended before"
    driven.step()
    assert driven.env.episode == 2 and driven.active == [True] * 3, "all had ended: a new episode"


def test_an_agent_that_joins_is_active_from_its_first_observation():
    driven = Driven(Scripted([Turn("a"), Turn("ab"), Turn("ab")], begin="a"))
    assert driven.active == [True, False, False] and driven.observations[1:] == [ABSENT] * 2
    driven.step()
    assert driven.active == [True, False, False]
    driven.step()
    assert driven.active == [True, True, False] and driven.observations[1] == (2, 2, 1)


def test_an_agent_that_is_away_for_a_while_has_no_end():
    driven = Driven(Scripted([Turn("ac"), Turn("abc"), Turn("abc")]))
    results = [driven.step()]
    assert driven.active == [True, False, True] and driven.observations[1] == ABSENT
    results.append(driven.step())
    assert driven.active == [True] * 3
    assert not any(any(result.terminated) or any(result.truncated) for result in results)


def test_an_agent_that_is_away_or_has_no_end_when_the_episode_is_over_is_truncated():
    driven = Driven(Scripted([Turn("ac"), Turn("", terminated="a")]))
    driven.step()
    result = driven.step()
    assert result.terminated == [True, False, False] and result.truncated == [False, True, True]


def test_an_agent_that_never_took_part_has_no_end():
    driven = Driven(Scripted([Turn("", terminated="abc")], begin="ab"))
    result = driven.step()
    assert result.terminated == [True, True, False] and result.truncated == [False] * 3


def test_the_infos_of_an_end_are_those_of_the_step_also_where_the_env_is_reset():
    driven = Driven(Scripted([Turn("abc"), Turn("ab", terminated="c"), Turn("", terminated="ab")]))
    assert driven.step().end_infos == {}
    assert driven.step().end_infos == {2: {"time": 2}}
    assert driven.step().end_infos == {0: {"time": 3}, 1: {"time": 3}}


def test_an_env_may_say_itself_that_a_living_agent_does_not_act():
    driven = Driven(Scripted([Turn("abc"), Turn("", terminated="abc")]))
    usual = driven.env.step

    def stunned(actions):
        *rest, infos = usual(actions)
        infos["b"]["is_active"] = False
        return *rest, infos

    driven.env.step = stunned
    driven.step()
    assert driven.active == [True, False, True] and driven.observations[1] == (2, 1, 1)
    driven.step()
    assert driven.active == [True] * 3, "the info belonged to the former episode"


def test_only_the_first_reset_is_seeded():
    driven = Driven(Scripted([Turn("", terminated="abc")]), seed=7)
    driven.step()
    driven.step()
    assert driven.env.seeds == [7, None, None]


def test_rendering_and_closing_reach_the_env():
    driven = Driven(Scripted([]))
    assert driven.adapted.render().shape == (8, 8, 3)
    driven.adapted.close()
    assert driven.env.is_closed


class Shaped(RewardShaping):
    def get_default_reward_shaping(self):
        return {"x": 1.0}


class ShapedEnv(Scripted, Shaped):
    pass


class ShapedGame(Alternating, Shaped):
    pass


class ShapedWrapper(pettingzoo.utils.BaseParallelWrapper, Shaped):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: pettingzoo.utils.BaseParallelWrapper(ShapedEnv([])),
        lambda: pettingzoo.utils.BaseParallelWrapper(ShapedWrapper(Scripted([]))),
        lambda: pettingzoo.utils.aec_to_parallel(pettingzoo.utils.parallel_to_aec(ShapedEnv([]))),
        lambda: pettingzoo.utils.OrderEnforcingWrapper(ShapedGame()),
    ],
    ids=["env", "wrapper", "converted", "turn-based"],
)
def test_reward_shaping_is_found_in_and_inside_pettingzoos_wrappers(make):
    assert find_ability(adapt(make()).env, RewardShaping).get_default_reward_shaping() == {"x": 1.0}


class Informed(Scripted, TrainingInfo):
    """Notes the level at each reset."""

    def reset(self, seed=None, options=None):
        self.levels = [*vars(self).get("levels", ()), self.training_info.get("level")]
        return super().reset(seed, options)


def test_values_of_the_run_arrive_before_the_reset_of_the_next_episode():
    driven = Driven(Informed([Turn("abc"), Turn("", "abc")]))
    driven.adapted.training_info.put({"level": 2})
    driven.step()
    assert driven.env.training_info == {}, "an episode is not changed while it is played"
    driven.step()
    assert driven.env.levels == [None, 2]


@pytest.mark.parametrize(
    ("turns", "begin", "message"),
    [
        ([Turn("abd")], "abc", r"env.agents is \['a', 'b', 'd'\], but env.possible_agents only \['a', 'b'"),
        ([], "", "env.agents is empty after reset"),
    ],
)
def test_agents_that_cannot_be_are_refused(turns, begin, message):
    with pytest.raises(EnvContractError, match=message):
        Driven(Scripted(turns, begin)).step()


def test_a_living_agent_without_an_observation_is_refused():
    env = Scripted([Turn("abc")])
    env._observe = lambda agents: {}
    with pytest.raises(EnvContractError, match="'a' is in env.agents, but the env returned no observation"):
        Driven(env)


@pytest.mark.parametrize(
    "convert", [lambda env: env, turn_based_aec_to_parallel], ids=["as it is", "converted"]
)
def test_in_a_turn_based_game_only_the_player_whose_turn_it_is_acts(convert):
    game = Alternating()
    driven = Driven(convert(game))
    assert driven.adapted.takes_turns and driven.active == [True, False]
    results = [driven.step((action, action + 1)) for action in range(4)]
    assert game.actions == [("a", 0), ("b", 2), ("a", 2), ("a", 3)], "the second game begins with a, too"
    assert [result.active.tolist() for result in results] == [
        [False, True], [True, False], [True, False], [False, True],
    ]  # fmt: skip
    assert [result.rewards for result in results[:3]] == [[1, 10], [10, 1], [2, 20]]
    assert results[2].terminated == [True, True] and not any(results[1].terminated + results[3].terminated)
    assert results[2].end_infos == {0: {"turn": 3}, 1: {"turn": 3}}


@pytest.mark.parametrize(("game", "num_turns"), [(tictactoe_v3, 9), (connect_four_v3, 42)])
def test_the_mask_of_pettingzoos_board_games_allows_the_legal_moves_of_the_player_that_acts(game, num_turns):
    env = adapt(game.env())
    rows = ObservationRows.allocate(env.kinds)
    draw = RandomActions(env.kinds, seed=0)
    active = env.reset(0, rows)
    rewards, lengths = [], [0]
    while len(lengths) <= 20:
        assert rows.arrays["action_mask"][:, 0].any(axis=1).tolist() == active.tolist()
        result = env.step(draw(rows), rows)
        active = result.active
        lengths[-1] += 1
        assert active.sum() == 1 and not any(result.truncated), "an illegal move would truncate, too"
        if any(result.terminated):
            assert result.terminated == [True, True] and lengths[-1] <= num_turns
            rewards.append(tuple(result.rewards))
            lengths.append(0)
    assert set(rewards) <= {(1, -1), (-1, 1), (0, 0)} and {(1, -1), (-1, 1)} <= set(rewards)
