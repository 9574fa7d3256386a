"""A whole run over two levels of a Gymnasium env: its curves, its milestone, and the state that it saves."""

import json

import sample_factory
from sample_factory.checkpoints.milestones import find_milestones

LEVELS = ["max_episode_steps=8", "max_episode_steps=16"]
TINY = {"num_workers": 1, "num_envs_per_worker": 4, "rollout": 16, "batch_size": 64, "device": "cpu"}


def test_a_sequence_of_levels_has_curves_of_each_and_a_milestone_between_them(tmp_path):
    result = sample_factory.run(
        "gym_CartPole-v1",
        "levels",
        train_dir=tmp_path,
        levels=LEVELS,
        level_choice="sequence",
        train_for_env_steps=512,
        serial_mode=True,
        ppo_epochs=1,
        stats_avg=4,
        **TINY,
    )
    metrics = sample_factory.read_metrics(result.experiment_dir)
    short, long = (metrics[metrics.tag == f"levels/{level}/len"].value.iloc[-1] for level in LEVELS)
    assert short <= 8 < long
    (milestone,) = find_milestones(result.experiment_dir, 0)
    assert 256 <= milestone.env_frames < 512
    assert json.loads((result.experiment_dir / "levels.json").read_text())["levels"] == LEVELS
