"""Evaluation during training, and of its result, with processes."""

from tests.system.running import (
    FOREVER,
    SMALL,
    assert_all_gone,
    child,
    descendants,
    run,
    scalars,
    start,
    stop,
    wait_for_frames,
)
from tests.waiting import eventually

CARTPOLE = ["--env=gym_CartPole-v1", "--experiment=a", *SMALL, "--inline_samplers=1", "--use_rnn=False"]


def test_a_run_evaluates_its_policy_and_keeps_the_best_which_eval_measures(tmp_path):
    flags = ["--eval_every_env_steps=1500", "--eval_episodes=4", "--eval_flags=--eval_deterministic=True"]
    best = ["--save_best_metric=eval_length", "--save_best_after=0", "--train_for_env_steps=2000"]
    done = run("train", tmp_path, *CARTPOLE, *flags, *best)
    assert done.returncode == 0, done.stdout
    curves = scalars(tmp_path / "a")
    assert all(env_frames >= 1500 for env_frames, _ in curves["eval/reward"]) and curves["eval/reward"]
    (file,) = (tmp_path / "a" / "checkpoint_p0").glob("best_*_eval_length_*.pth")
    assert not list(file.parent.glob("*evaluated*"))
    measured = run("eval", tmp_path, "--experiment=a", "--checkpoint=best", "--eval_episodes=4")
    assert measured.returncode == 0, measured.stdout
    assert "policy 0, best: 4 episodes" in measured.stdout


def test_ctrl_c_ends_an_evaluation_with_the_run(tmp_path):
    flags = ["--eval_every_env_steps=1000", "--eval_episodes=1000000"]
    process = start("train", tmp_path, *CARTPOLE, *flags, FOREVER)
    wait_for_frames(process, 0)

    def is_evaluated():
        try:
            return child(descendants(process), "evaluation")
        except LookupError:
            return None

    assert eventually(is_evaluated, seconds=100)
    family = descendants(process)
    assert child(family, "template").memory_info().rss > 100 << 20, "evaluations are forked from it"
    stop(process)
    assert_all_gone(family)
    assert not list((tmp_path / "a" / "checkpoint_p0").glob("*evaluated*"))
