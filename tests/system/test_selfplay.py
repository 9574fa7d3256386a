"""Whole runs in which policies play against their past selves."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from sample_factory.checkpoints.milestones import find_milestones
from tests.system import running
from tests.system.running import SMALL, run, scalars
from tests.system.selfplay_game import ENV, HigherNumber, register

FLAGS = ["--selfplay_past_share=1", "--selfplay_snapshot_env_steps=500", "--seed=3", *SMALL]
FLAGS += ["--learning_rate=0.003", "--selfplay_max_opponents=50"]


def train(train_dir, name, *flags, frames=3000):
    """Trains in this process; returns the contents of the last checkpoint."""
    register()
    HigherNumber.num_steps = 0
    identity = [f"--env={ENV}", f"--experiment={name}", "--serial_mode=True"]
    sizes = [f"--train_for_env_steps={frames}", "--decorrelate_envs_on_one_worker=False"]
    return running.train(train_dir, *identity, *FLAGS, *sizes, *flags)


def train_in_processes(train_dir, frames, *flags):
    """Trains, or resumes training, as a command with its processes."""
    identity = ["--experiment=a", f"--train_for_env_steps={frames}", "--serial_mode=False"]
    done = run("selfplay_game.py", train_dir, *identity, *FLAGS, *flags)
    assert done.returncode == 0, done.stdout


def milestones(folder, policy=0):
    return sorted((folder / f"checkpoint_p{policy}" / "milestones").iterdir())


def test_half_of_the_steps_played_against_past_selves_are_trained_on(tmp_path):
    state = train(tmp_path, "a")
    # All steps before the first milestone are; some of the last ones come too late.
    assert 0.35 < state["samples"] / HigherNumber.num_steps < 0.65
    state = train(tmp_path, "b", "--selfplay_past_share=0", frames=1500)
    assert state["samples"] / HigherNumber.num_steps > 0.8
    assert (
        not (tmp_path / "b" / "league.json").exists()
        and not (tmp_path / "b" / "checkpoint_p0" / "milestones").exists()
    )


@pytest.mark.parametrize("algo", ["IMPACT", "VMPO"])
def test_other_algorithms_learn_from_their_steps_in_matches_against_past_selves(tmp_path, algo):
    state = train(tmp_path, "a", f"--algo={algo}", frames=2000)
    league = json.loads((tmp_path / "a" / "league.json").read_text())
    assert len(league["past_selves"]) >= 2
    assert league["policies"][0]["elo"] > 1000, "the policy learns, so it beats its past"
    assert 0.35 < state["samples"] / HigherNumber.num_steps < 0.75 and state["skipped_steps"] == 0


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """An experiment of a run with processes."""
    train_dir = tmp_path_factory.mktemp("train_dir")
    train_in_processes(train_dir, 5000)
    return train_dir / "a"


def past_selves(folder):
    """Returns the records of the league about them, by the names of their files."""
    return json.loads((folder / "league.json").read_text())["past_selves"]


def num_matches(past_self):
    return past_self["against"].get("0", {"matches": 0})["matches"]


def test_results_are_in_the_folder_and_in_tensorboard(played):
    league = json.loads((played / "league.json").read_text())
    assert len(league["past_selves"]) == len(milestones(played)) >= 4
    assert league["policies"][0]["elo"] > 1000, "the policy learns, so it beats its past"
    curves = scalars(played)
    num_met = sum(num_matches(past_self) > 0 for past_self in past_selves(played).values())
    assert num_met >= 2 and 1 <= curves["zz_selfplay/num_opponents"][-1][1] <= num_met
    assert curves["zz_selfplay/win_rate"][-1][1] > 0.5


def test_a_resumed_run_continues_with_the_results_and_new_past_selves_play_in_inline_samplers_too(
    played, tmp_path
):
    shutil.copytree(played, tmp_path / "a")
    train_in_processes(tmp_path, 7000, "--inline_samplers=1")
    first, second = past_selves(played), past_selves(tmp_path / "a")
    assert all(num_matches(second[name]) >= num_matches(past) for name, past in first.items())
    new = [past for name, past in second.items() if name not in first]
    assert new and any(map(num_matches, new))


def test_a_damaged_milestone_is_an_incident_and_leaves_the_league_when_it_is_drawn(played, tmp_path):
    folder = tmp_path / "a"
    shutil.copytree(played, folder)
    victims = milestones(folder)
    for victim in victims:
        victim.write_bytes(victim.read_bytes()[:100])
    train(tmp_path, "a", frames=8000)
    log = (folder / "sf_log.txt").read_text()
    drawn = {victim.name for victim in victims if f"no longer: cannot use {victim}" in log}
    left = {Path(name).name for name in past_selves(folder)}
    assert len(drawn) > 2 and left == {path.name for path in milestones(folder)} - drawn
    assert scalars(folder)["health/lost_opponents"][-1][1] == len(drawn)


def test_an_experiment_that_continues_with_past_selves_has_one_at_once(tmp_path):
    train(tmp_path, "a", "--selfplay_past_share=0", frames=500)
    train(tmp_path, "a", "--selfplay_snapshot_env_steps=1000000", frames=1000)
    (first,) = find_milestones(tmp_path / "a", 0)
    assert first.env_frames >= 500


@pytest.mark.parametrize("extra", [["--use_rnn=True"], ["--num_policies=2", "--use_rnn=False"]])
def test_with_prioritized_opponents_a_run_is_still_bit_for_bit_repeatable(tmp_path, extra):
    flags = ["--selfplay_sampling=prioritized", "--selfplay_max_opponents=3", "--selfplay_past_share=0.5"]
    flags.append("--selfplay_snapshot_env_steps=250")
    first, second = (train(tmp_path, name, *flags, *extra, frames=1250)["model"] for name in ("a", "b"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (tmp_path / "a" / "league.json").read_text() == (tmp_path / "b" / "league.json").read_text()


def test_with_alternation_the_learner_gets_its_trajectories_of_past_selves_too(tmp_path):
    state = train(tmp_path, "a", "--async_rl=False", "--worker_num_splits=1", "--batch_size=256")
    assert state["train_step"] > 5 and state["skipped_steps"] == 0
