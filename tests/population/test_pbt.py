import json
from dataclasses import replace

import numpy as np
import pytest

from sample_factory.config.config import Change, Resumed
from sample_factory.config.experiment_folder import write_atomically
from sample_factory.config.flags import ConfigError
from sample_factory.config.learning_flags import LearningFlags
from sample_factory.config.population_flags import PbtFlags
from sample_factory.launch import resources
from sample_factory.population import pbt
from sample_factory.population.pbt import Member, Population, tuned_hyperparameters
from tests.counting import CountingEnv, make_config, make_plan

DEFAULT = Member({"learning_rate": 1e-4, "ppo_clip_ratio": 0.1}, {"delta": {"HEALTH": [0.01, -0.01]}})
FLAGS = {"with_pbt": True, "pbt_start_mutation": 100, "pbt_period_env_steps": 50, "pbt_mutation_rate": 1.0}


@pytest.fixture
def make_population(tmp_path):
    def make(num_policies=4, seed=1, **flags):
        flags = PbtFlags(**{**FLAGS, **flags})
        return Population(flags, DEFAULT, LearningFlags(), tmp_path, num_policies, seed)

    return make


def test_the_first_policy_starts_with_the_defaults_and_every_other_with_a_mutation(make_population):
    members = make_population().members
    assert members[0] == DEFAULT
    rates = {member.hyperparameters["learning_rate"] for member in members}
    assert len(rates) == 4
    assert all(member.shaping != DEFAULT.shaping for member in members[1:])


def test_a_decision_is_due_after_the_first_mutation_and_then_once_a_period(make_population):
    population = make_population(num_policies=2)
    assert population.due([99, 99]) is None
    assert population.due([100, 99]) == 0
    population.accept(population.decide(0, [1.0, 0.0]), 100)
    assert population.due([149, 99]) is None and population.due([150, 99]) == 0
    assert population.due([150, 120]) == 1, "the one that has waited for longer"


def test_nothing_is_decided_before_every_policy_has_an_objective(make_population):
    population = make_population(num_policies=2)
    assert population.decide(0, [1.0, None]) is None
    assert population.decide(0, [1.0, float("nan")]) is None


def test_the_best_are_left_alone_the_middle_explores_and_the_worst_take_over(make_population):
    population = make_population(num_policies=4)
    objectives = [5.0, 10.0, 1.0, 9.0]  # 0.3 * 4, rounded up: two of each
    best = population.decide(3, objectives)
    assert best.donor is None and best.member == population.members[3]
    worst = population.decide(2, objectives)
    assert worst.donor in (1, 3)
    assert worst.member != population.members[worst.donor], "mutated"
    middle = make_population(num_policies=4, pbt_replace_fraction=0.25).decide(3, objectives)
    assert middle.donor is None and middle.member != population.members[3]


def test_the_first_policy_copies_without_mutation(make_population):
    population = make_population(num_policies=2)
    decision = population.decide(0, [0.0, 10.0])
    assert decision.donor == 1 and decision.member == population.members[1]


@pytest.mark.parametrize(
    ("own", "other", "replaced"),
    [
        (9.5, 10.0, False),
        (8.0, 10.0, True),
        (-10.0, -9.5, False),
        (-10.0, -8.0, True),
        (-1e-9, 1e-9, False),
        (-0.5, 0.001, True),
        (0.0, 0.0, False),
    ],
)
def test_the_necessary_gap_is_a_fraction_of_the_larger_objective_whatever_its_sign(
    make_population, own, other, replaced
):
    decision = make_population(num_policies=2).decide(0, [own, other])
    assert (decision.donor == 1) == replaced


def test_a_decision_changes_nothing_before_it_is_accepted(make_population):
    population = make_population(num_policies=2)
    decision = population.decide(1, [10.0, 0.0])
    assert make_population(num_policies=2, seed=2).members == population.members
    population.accept(decision, 120)
    assert population.members[1] == decision.member


def test_settings_and_the_time_of_the_last_decision_survive(make_population, tmp_path):
    population = make_population(num_policies=2)
    population.accept(population.decide(1, [10.0, 0.0]), 120)
    again = make_population(num_policies=2, seed=7)
    assert again.members == population.members
    assert again.due([120, 169]) == 0 and again.due([0, 170]) == 1
    assert {path.name for path in tmp_path.iterdir()} == {
        "policy_00_cfg.json",
        "policy_00_reward_shaping.json",
        "policy_01_cfg.json",
        "policy_01_reward_shaping.json",
        "pbt_progress.json",
    }


def test_discount_and_batch_size_evolve_if_flags_say_so():
    usual = tuned_hyperparameters(PbtFlags(), "APPO")
    assert "learning_rate" in usual and "gamma" not in usual and "batch_size" not in usual
    both = tuned_hyperparameters(PbtFlags(pbt_optimize_gamma=True, pbt_optimize_batch_size=True), "APPO")
    assert set(both) - set(usual) == {"gamma", "batch_size"}


def test_settings_that_no_mutation_changes_are_named_once(tmp_path, caplog):
    values = {"learning_rate": 1e-4, "exploration_loss_coeff": 0.0, "gamma": 1.0}
    population = Population(PbtFlags(**FLAGS), Member(values, {}), LearningFlags(), tmp_path, 3, seed=1)
    (line,) = caplog.messages
    for name, value in values.items():
        found = [member.hyperparameters[name] for member in population.members]
        assert (found == pytest.approx([value] * 3, abs=1e-6, rel=0)) == (f"--{name}=" in line)
    caplog.clear()
    Population(PbtFlags(**FLAGS), DEFAULT, LearningFlags(), tmp_path, 3, seed=1)
    assert caplog.messages == []


def test_a_file_that_cannot_be_read_is_refused_by_name(make_population, tmp_path):
    make_population()
    (tmp_path / "policy_01_cfg.json").write_text("{")
    with pytest.raises(ConfigError, match="policy_01_cfg.json.*repair it, or delete it"):
        make_population()


def test_missing_settings_have_their_default_and_unknown_ones_are_ignored(make_population, tmp_path):
    make_population()
    (tmp_path / "policy_00_cfg.json").write_text('{"learning_rate": 0.5, "gone": 1}')
    (tmp_path / "policy_00_reward_shaping.json").write_text("{}")
    member = make_population().members[0]
    assert member == Member({"learning_rate": 0.5, "ppo_clip_ratio": 0.1}, DEFAULT.shaping)


def test_a_full_disk_is_logged_and_does_not_end_the_run(make_population, tmp_path, monkeypatch, caplog):
    population = make_population(num_policies=2)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pbt, "write_atomically", full)
    population.accept(population.decide(1, [10.0, 0.0]), 120)
    assert "could not save the policies' settings" in caplog.text and "No space left" in caplog.text


class Killed(BaseException):
    """Imitates the end of the process."""


@pytest.mark.parametrize("num_written", range(4))
def test_a_run_that_is_killed_while_it_writes_decides_again(
    make_population, tmp_path, monkeypatch, num_written
):
    population = make_population(num_policies=2)
    former, decision, written = population.members[1], population.decide(1, [10.0, 0.0]), []

    def write(path, text):
        if len(written) == num_written:
            raise Killed
        written.append(write_atomically(path, text))

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(pbt, "write_atomically", write)
        population.accept(decision, 120)
    again = make_population(num_policies=2)
    assert again.due([0, 120]) == 1
    for found, *either in zip(again.members[1], former, decision.member):
        assert found in either, "whole files"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("policy_01_cfg.json", '{"learning_rate": "fast"}', "learning_rate = 'fast'"),
        ("policy_01_cfg.json", '{"learning_rate": NaN}', "learning_rate = nan"),
        ("policy_01_cfg.json", '{"learning_rate": true}', "learning_rate = True"),
        ("policy_01_cfg.json", '{"learning_rate": -0.1}', "learning_rate=-0.1"),
        ("policy_01_reward_shaping.json", '{"delta": 1}', "delta = 1"),
        ("policy_01_reward_shaping.json", '{"delta": {"HEALTH": [1]}}', r"HEALTH = \[1\]"),
        ("pbt_progress.json", '{"0": "never"}', "0 = 'never'"),
    ],
)
def test_settings_that_the_command_line_would_refuse_are_refused_in_one_line(
    make_population, tmp_path, name, content, message
):
    make_population()
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=f"{name}.*{message}.*repair it, or delete it") as refusal:
        make_population()
    assert "\n" not in str(refusal.value)


def test_a_batch_from_a_file_has_whole_rollouts_and_fits_into_memory(tmp_path):
    learning, default = LearningFlags(rollout=64, batch_size=1024), Member({"batch_size": 1024}, {})
    for saved, loaded in ((1248, 1216), (4096, 1536), (1, 64)):
        (tmp_path / "policy_00_cfg.json").write_text(f'{{"batch_size": {saved}}}')
        (tmp_path / "policy_00_reward_shaping.json").write_text("{}")
        members = Population(PbtFlags(**FLAGS), default, learning, tmp_path, 2, seed=1).members
        assert members[0].hyperparameters == {"batch_size": loaded}


def test_among_equal_policies_none_is_replaced_and_none_is_its_own_donor(make_population):
    population = make_population(num_policies=3, pbt_replace_fraction=0.5)  # the middle one is best and worst
    for policy in range(3):
        assert population.decide(policy, [5.0, 5.0, 5.0]).donor is None
    for objectives in ([1.0, 5.0, 9.0], [9.0, 1.0, 5.0], [-1.0, -5.0, -9.0]):
        donors = [population.decide(policy, objectives).donor for policy in range(3)]
        worst = objectives.index(min(objectives))
        assert donors[worst] not in (None, worst)
        assert [donor for policy, donor in enumerate(donors) if policy != worst] == [None, None]


@pytest.mark.parametrize("resumed_at", [1, 110, 499, 500, 600])
def test_a_policy_is_due_a_period_after_its_last_decision_or_after_the_earlier_state_it_resumes_from(
    make_population, resumed_at, caplog
):
    population = make_population(num_policies=2)
    population.accept(population.decide(1, [10.0, 0.0]), 500)
    again = make_population(num_policies=2)
    assert again.due([0, 0]) is None, "the learners have not reported yet"
    frames = range(resumed_at, 1000)
    first = next(number for number in frames if again.due([0, number]) == 1)
    assert first == max(min(500, resumed_at) + FLAGS["pbt_period_env_steps"], 100, resumed_at)
    lines = [line for line in caplog.messages if "resumes at" in line]
    earlier = f"PBT: policy 1 resumes at {resumed_at} env frames, with the settings of its decision at 500"
    assert lines == ([earlier] if resumed_at < 500 else [])


def test_each_file_in_the_folder_counts_without_its_counterpart(make_population, tmp_path):
    (tmp_path / "policy_00_cfg.json").write_text('{"learning_rate": 0.5}')
    (tmp_path / "policy_01_reward_shaping.json").write_text('{"delta": {"HEALTH": [1, 2]}}')
    members = make_population(num_policies=2).members
    assert members[0] == Member({"learning_rate": 0.5, "ppo_clip_ratio": 0.1}, DEFAULT.shaping)
    assert members[1].shaping == {"delta": {"HEALTH": [1, 2]}}
    assert make_population(num_policies=2, seed=5).members == members


def test_numpys_numbers_in_the_reward_shaping_are_kept_as_numbers_and_anything_else_is_refused():
    given = {"a": np.float32(0.5), "b": (np.int64(2), True), "c": {"d": [1.5]}}
    found = pbt.numbers_of(given)
    assert json.loads(json.dumps(found)) == {"a": 0.5, "b": [2, True], "c": {"d": [1.5]}}
    for value in ("text", None, np.zeros(2), float("nan")):
        with pytest.raises(ConfigError, match="reward_shaping.*speed is .* needs a number"):
            pbt.numbers_of({"all": {"speed": value}})


def test_a_typed_setting_is_reported_if_the_population_continues_with_its_own(tmp_path, caplog):
    def resume(rate):
        """Returns the warnings of a start with another learning rate and discount factor than before."""
        config = make_config(
            with_pbt=True, num_policies=2, train_dir=str(tmp_path), experiment="a", learning_rate=rate
        )
        config.experiment_dir.mkdir(exist_ok=True)
        changed = Resumed((Change("learning_rate", 0.1, rate), Change("gamma", 0.9, 0.99)))
        caplog.clear()
        resources.make_population(make_plan(replace(config, resumed=changed), CountingEnv(0, 2)))
        return caplog.messages

    assert resume(0.2) == [], "the population begins with it"
    assert resume(0.2) == []
    (line,) = resume(0.3)
    assert line.startswith("--learning_rate=0.3 has no effect: the population continues with")
