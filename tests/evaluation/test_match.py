"""The `match` command, between policies with known choices."""

import json
import math
import os
import signal

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.__main__ import command
from sample_factory.config.command import PLAYS
from sample_factory.config.parsing import parse_config
from sample_factory.envs import env_registry
from sample_factory.envs.abilities import PlaysInTeams
from sample_factory.envs.env_registry import register_env, resolve_family
from sample_factory.evaluation.match import run_match
from sample_factory.evaluation.match_command import COMMAND
from sample_factory.launch.command_line import parse
from tests.evaluation.conftest import SMALL, always, save_choosing
from tests.evaluation.playable_envs import Cards, CardsWithBots, Undrawable, UnevenAgents

made: list[Cards] = []


@pytest.fixture(autouse=True)
def cards(registry):
    register("cards")
    yield
    made.clear()


def register(name, **settings):
    """Registers an env; made[-1] is the newest instance."""

    def make_env(full_env_name, cfg, env_config):
        made.append(Cards(**settings))
        return made[-1]

    register_env(name, make_env)


@pytest.fixture
def play(tmp_path):
    """Returns play(*flags), which plays matches of experiment "tiny"."""

    def run(*typed):
        identity = ["--experiment=tiny", f"--train_dir={tmp_path}", "--serial_mode=True"]
        return run_match(parse(COMMAND, [*identity, *typed]))

    return run


def objectives(series):
    return [(result.objective, result.opponent_objective) for result in series.results]


def test_the_worse_policy_loses_and_equal_ones_draw(choosing, play):
    choosing("cards", 3)
    choosing("cards", 4, policy=1)
    choosing("cards", 3, policy=2)
    assert play("--opponent_policy_index=1", "--num_matches=3").tally == (0, 0, 3)
    draws = play("--opponent_policy_index=2", "--num_matches=3")
    assert draws.tally == (0, 3, 0)
    assert draws.win_rate.value == 0.0 and draws.win_rate_without_draws is None


def test_the_better_policy_wins_every_match_and_the_sides_are_swapped_after_each(choosing, play):
    choosing("cards", 3)
    choosing("cards", 1, "worse")
    series = play("--opponent_experiment=worse", "--num_matches=3")
    assert series.tally == (3, 0, 0) and objectives(series) == [(3.0, 1.0)] * 3
    assert [found[:2] for found in series.objectives] == [(3.0, 0.0), (1.0, 0.0)]
    ours_first = [[3, 1]] * 2  # a match has two rounds
    theirs_first = [[1, 3]] * 2
    assert made[-1].cards == [*ours_first, *theirs_first, *ours_first]
    assert [result.has_first_half for result in series.results] == [True, False, True]


def test_a_policy_plays_a_scripted_player_of_the_env_from_both_sides(choosing, play, tmp_path):
    register_env("cards_bots", lambda full_env_name: made.append(CardsWithBots()) or made[-1])
    choosing("cards_bots", 3)
    figures = tmp_path / "figures.json"
    series = play("--opponent_player=low", "--num_matches=2", f"--json={figures}")
    assert series.tally == (2, 0, 0) and objectives(series) == [(3.0, 0.0)] * 2
    assert made[-1].cards == [[3, 0], [3, 0], [0, 3], [0, 3]]
    assert "against the player low of the env" in series.summary()
    assert json.loads(figures.read_text())["contestants"][1] == {"player": "low"}
    assert play("--opponent_player=high", "--num_matches=2").tally == (0, 0, 2)


def test_a_team_is_half_of_the_agents_and_is_judged_by_its_mean(choosing, play):
    register("cards_four", num_agents=4, bonuses=[4.0, 0.0, 0.0, 0.0])
    choosing("cards_four", 1)
    choosing("cards_four", 2, policy=1)
    series = play("--opponent_policy_index=1", "--num_matches=2")
    assert made[-1].cards == [[1, 1, 2, 2]] * 2 + [[2, 2, 1, 1]] * 2
    assert objectives(series) == [(1.0 + 4.0 / 2, 2.0), (1.0, 2.0 + 4.0 / 2)]
    assert series.tally == (1, 0, 1)


@pytest.mark.parametrize("teams", [[0, 0, 1, 1], [0, 1, 0, 1], [5, 2, 2, 5], [1, 0, 0, 1]])
def test_each_policy_plays_a_whole_team_of_the_env_in_turn(choosing, play, teams):
    class Teams(Cards, PlaysInTeams):
        def teams(self):
            return teams

    register_env("cards_teams", lambda full_env_name: made.append(Teams(4, [0.4, 0.3, 0.2, 0.1])) or made[-1])
    choosing("cards_teams", 1)
    choosing("cards_teams", 2, policy=1)
    series = play("--opponent_policy_index=1", "--num_matches=3")
    is_first = np.equal(teams, teams[0])
    orders = [np.where(is_first, 1, 2), np.where(is_first, 2, 1)]
    assert made[-1].cards == [orders[number % 2].tolist() for number in (0, 0, 1, 1, 2, 2)]
    bonuses = [np.mean(made[-1]._bonuses, where=is_own) for is_own in (is_first, ~is_first)]
    assert [list(result) for result in objectives(series)] == [
        pytest.approx([1 + bonuses[number % 2], 2 + bonuses[1 - number % 2]]) for number in range(3)
    ]
    assert [result.has_first_half for result in series.results] == [True, False, True]


def test_teams_of_equal_objectives_draw_in_any_order_of_the_agents(choosing, play):
    register("cards_six", num_agents=6, bonuses=[0.1, 0.2, 0.3, 0.3, 0.2, 0.1])
    choosing("cards_six", 0)
    choosing("cards_six", 0, policy=1)
    assert play("--opponent_policy_index=1", "--num_matches=2").tally == (0, 2, 0)


def test_an_agent_whose_episode_ends_early_waits_for_the_end_of_the_match(choosing, play):
    register("cards_early", leaves_early=1)
    choosing("cards_early", 3)
    choosing("cards_early", 1, policy=1)
    series = play("--opponent_policy_index=1", "--num_matches=4")
    assert objectives(series) == [(3.0, 1.0)] * 4
    assert made[-1].cards == ([[3, 1], [3, 0], [1, 3], [1, 0]]) * 2, "an inactive agent's action is 0"


def test_past_plays_against_present(choosing, play, tmp_path):
    checkpoints = choosing("cards", 3)
    config = parse_config(["--experiment=tiny", f"--train_dir={tmp_path}"], resolve_family, PLAYS)
    checkpoints.save_milestone(always(config, 2), 12345, 8)
    checkpoints.save_snapshot(always(config, 4), "best_000020000_9_reward_1.000.pth")
    assert objectives(play("--opponent_checkpoint=milestone:12345", "--num_matches=1")) == [(3.0, 2.0)]
    assert objectives(play("--opponent_checkpoint=milestone:000012345", "--num_matches=1")) == [(3.0, 2.0)]
    best_against_past = ("--checkpoint=best", "--opponent_checkpoint=milestone:12345")
    assert objectives(play(*best_against_past, "--num_matches=1")) == [(4.0, 2.0)]
    file = checkpoints.milestones()[0]
    assert objectives(play(f"--checkpoint={file}", "--num_matches=1")) == [(2.0, 3.0)]


def test_the_result_is_written(choosing, play, tmp_path):
    register("cards_uneven", bonuses=[1.0, 0.0])
    choosing("cards_uneven", 3)
    choosing("cards_uneven", 2, policy=1)
    file = tmp_path / "matches.json"
    play("--opponent_policy_index=1", "--num_matches=4", f"--json={file}")
    figures = json.loads(file.read_text())
    assert (figures["env"], figures["wins"], figures["draws"], figures["losses"]) == ("cards_uneven", 2, 2, 0)
    assert figures["win_rate"]["value"] == 0.5 and figures["win_rate_without_draws"]["value"] == 1.0
    assert figures["matches"][1] == {"objective": 3.0, "opponent_objective": 3.0, "has_first_half": False}
    assert [contestant["policy_index"] for contestant in figures["contestants"]] == [0, 1]


def test_a_seed_determines_the_matches(saved_experiment, choosing, play):
    saved_experiment("cards", *SMALL)  # untrained weights choose at random
    choosing("cards", 2, policy=1)
    flags = ("--opponent_policy_index=1", "--num_matches=20")
    first, same, other = (objectives(play(*flags, f"--seed={seed}")) for seed in (1, 1, 2))
    assert first == same != other


def test_the_frameskip_of_evaluations_holds_and_actions_are_repeated_instead(registry, choosing, play):
    seen = []

    def make_env(full_env_name, cfg, env_config):
        seen.append(cfg.env_frameskip)
        made.append(Cards())
        return made[-1]

    register_env("cards_fast", make_env)
    choosing("cards_fast", 3)
    choosing("cards_fast", 1, policy=1)
    play("--opponent_policy_index=1", "--num_matches=1", "--env_frameskip=2", "--eval_env_frameskip=1")
    assert seen[-1] == 1 and made[-1].cards == [[3, 1], [3, 1]]


def register_faulty():
    """Registers envs, most of which cannot be played as a match."""
    register_env("cards_bots", lambda full_env_name: CardsWithBots())
    register_env("alone", lambda full_env_name: gym.vector.SyncVectorEnv([Undrawable] * 2))
    register("cards_one", num_agents=1)
    register("cards_three", num_agents=3)
    register("cards_nan", bonuses=[0.0, float("nan")])
    register_env("uneven", lambda full_env_name, cfg, env_config: UnevenCards())
    register_env("drifting", lambda full_env_name, cfg, env_config: DriftingCards())
    register_env("paid_nan", lambda full_env_name, cfg, env_config: PaidNan())
    register_env("cards_one_against_three", lambda full_env_name: OneAgainstThree(4))


@pytest.fixture(scope="module")
def saved_contestants(tmp_path_factory):
    """Returns the train_dir of two experiments, of which "tiny" has two policies and two milestones."""
    folder = tmp_path_factory.mktemp("contestants")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(env_registry, "_FAMILIES", dict(env_registry._FAMILIES))
        register("cards")
        register_faulty()
        checkpoints = save_choosing(folder, "cards", 3)
        for version in (7, 12):
            checkpoints.save_milestone({}, version, 8)
        save_choosing(folder, "cards", 1, policy=1)
        save_choosing(folder, "cards_one", 1, "elsewhere")
    return folder


@pytest.fixture
def contestants(saved_contestants):
    register_faulty()
    return saved_contestants


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--opponent_experiment=nothing"], "nothing"),
        ([], "--opponent_experiment"),
        (["--opponent_experiment=tiny"], "--opponent_experiment"),
        (["--opponent_policy_index=4"], "--policy_index may be 0 or 1"),
        (["--opponent_checkpoint=best"], "latest, milestone:7, milestone:12"),
        (["--opponent_checkpoint=milestone:7", "--opponent_policy_index=1"], "checkpoint_p1 has latest"),
        (["--opponent_experiment=elsewhere"], "--env"),
        (["--opponent_policy_index=1", "--env=cards_one"], "--env=cards_one has 1 agent"),
        (["--opponent_policy_index=1", "--env=alone"], "its 2 agents are copies"),
        (["--env=gym_CartPole-v1", "--vector_env_copies=2"], "--vector_env_copies=2 has no effect"),
        (["--opponent_policy_index=1", "--env=cards_three"], "--env=cards_three has 3 agents"),
        (["--opponent_policy_index=1", "--env=cards_one_against_three"], "the teams (0, 0, 0, 1)"),
        (["--opponent_policy_index=1", "--env=uneven"], "do not end together"),
        (["--opponent_policy_index=1", "--env=drifting"], "do not end together"),
        (["--opponent_policy_index=1", "--env=cards_nan"], "[3.0, nan]"),
        (["--opponent_policy_index=1", "--env=paid_nan"], "the reward nan"),
        (["--opponent_policy_index=1", "--num_matches=0"], "--num_matches=0"),
        (["--opponent_policy_index=1", "--json=nowhere/a.json"], "--json=nowhere/a.json"),
        (["--opponent_policy_index=1", "--save_video"], "--save_video"),
        (["--opponent_player=low"], "--opponent_player=low"),
        (["--opponent_player=mid", "--env=cards_bots"], "it has low, high"),
        (["--opponent_player=low", "--opponent_checkpoint=best"], "--opponent_checkpoint"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(contestants, refused_by, flags, words):
    identity = ["--experiment=tiny", f"--train_dir={contestants}", "--num_matches=2", "--serial_mode=True"]
    assert words in refused_by(command("match"), *identity, *flags, may_log=True)


class UnevenCards(UnevenAgents):
    """Its two agents end their episodes at different times."""

    action_space = Cards.action_space


class OneAgainstThree(Cards, PlaysInTeams):
    def teams(self):
        return [0, 0, 0, 1]


class DriftingCards(UnevenCards):
    """The episodes of agent 0 have 3 steps, those of agent 1 have 4; both always act."""

    def step(self, actions):
        self._steps = [step + 1 for step in self._steps]
        ended = [self._steps[0] % 3 == 0, self._steps[1] % 4 == 0]
        return [np.zeros(3, np.float32)] * 2, [1.0, 1.0], ended, [False, False], [{}, {}]


class PaidNan(UnevenCards):
    """A step is an episode, and its reward is not a number."""

    def step(self, actions):
        return [np.zeros(3, np.float32)] * 2, [math.nan, 1.0], [True, True], [False, False], [{}, {}]


def test_a_damaged_or_foreign_checkpoint_is_one_line_and_exit_code_1(choosing, tmp_path, capsys):
    milestone = choosing("cards", 3).save_milestone({"model": {}}, 7, 8)
    argv = ["--experiment=tiny", f"--train_dir={tmp_path}", "--opponent_checkpoint=milestone:7"]
    for words, is_serial in {"does not fit the model": True, "cannot use checkpoint": False}.items():
        assert command("match")([*argv, f"--serial_mode={is_serial}"]) == 1
        last_line = capsys.readouterr().err.splitlines()[-1]
        assert last_line.startswith("error: ") and words in last_line
        milestone.write_bytes(b"")


def test_a_signal_ends_the_series_and_the_matches_so_far_count(choosing, play):
    class Interrupting(Cards):
        def step(self, actions):
            if len(self.cards) == 4:  # in the third match
                os.kill(os.getpid(), signal.SIGINT)
            return super().step(actions)

    register_env("cards_interrupting", lambda full_env_name, cfg, env_config: Interrupting())
    choosing("cards_interrupting", 3)
    choosing("cards_interrupting", 1, policy=1)
    series = play("--opponent_policy_index=1", "--num_matches=100")
    assert series.tally == (2, 0, 0) and "PARTIAL: stopped before 100 matches" in series.summary()


class DyingCards(Cards):
    """Its process dies in the second match of the second env, unless a process did before."""

    def __init__(self, env_id, marker):
        super().__init__()
        self._is_mortal = env_id == 1
        self._marker = marker

    def step(self, actions):
        if self._is_mortal and len(self.cards) == 2 and not os.path.exists(self._marker):
            open(self._marker, "w").close()
            os._exit(1)
        return super().step(actions)


def test_parallel_matches_of_different_networks_are_all_played_though_a_worker_dies(choosing, play, tmp_path):
    marker = str(tmp_path / "died")
    register_env("cards_dying", lambda full_env_name, cfg, env_config: DyingCards(env_config.env_id, marker))
    recurrent = ("--use_rnn=True", "--rnn_type=lstm", "--rnn_num_layers=2")
    choosing("cards_dying", 3, flags=recurrent)
    choosing("cards_dying", 1, "worse", flags=("--encoder_mlp_layers", "4", "4"))
    flags = ["--serial_mode=False", "--num_workers=2", "--num_envs_per_worker=2"]
    series = play("--opponent_experiment=worse", "--num_matches=9", *flags)
    assert os.path.exists(marker)
    assert series.tally == (9, 0, 0) and objectives(series) == [(3.0, 1.0)] * 9
    first_halves = [result.has_first_half for result in series.results]
    assert abs(first_halves.count(True) - first_halves.count(False)) == 1
