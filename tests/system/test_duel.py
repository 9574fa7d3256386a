"""A duel of two policies with real engines, in which everything is killed once."""

import re

import pytest

from tests.system.running import (
    assert_all_gone,
    child,
    descendants,
    engines,
    kill,
    scalars,
    start,
    wait_for_frames,
    wait_for_line,
)

DUEL = ["--env=doom_duel", "--experiment=a", "--num_policies=2", "--train_for_env_steps=1000000000"]
DUEL += ["--num_workers=2", "--num_envs_per_worker=2", "--timelimit=0.1", "--rollout=16", "--batch_size=128"]
DUEL += [
    "--device=cpu",
    "--hidden_size=32",
    "--experiment_summaries_interval=1",
    "--status_interval=0.5",
    "--decorrelate_envs_on_one_worker=False",
]


MANY = r"\(\d\d+ episodes\)"  # enough for summaries


@pytest.mark.timeout(180)
def test_a_duel_of_two_policies_survives_engines_and_workers_and_ends_with_a_learner(tmp_path):
    process = start("train", tmp_path, *DUEL)
    frames = wait_for_frames(process, beyond=500)
    family = descendants(process)
    assert len([p for p in family if p.name() == "vizdoom"]) == 8, "an engine per player of four matches"

    kill(engines(child(family, "rollout_worker_0"))[1])
    wait_for_line(process, "(doom_duel) raised and is rebuilt")
    frames = wait_for_frames(process, beyond=frames + 500)

    kill(child(family, "rollout_worker_1"))
    wait_for_line(process, "rollout_worker_1 died")
    wait_for_frames(process, beyond=frames + 500)
    for policy in (0, 1):
        while not re.search(MANY, wait_for_line(process, f"policy {policy}: env frames")):
            pass

    family += descendants(process)
    kill(child(family, "learner_1"))
    wait_for_line(process, "learner_1 failed")
    assert process.wait(30) == 1
    assert_all_gone(family)
    for policy in (0, 1):
        assert scalars(tmp_path / "a", policy)["0_aux/avg_true_reward"], "matches have ended for both"
