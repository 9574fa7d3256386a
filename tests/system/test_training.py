"""Whole runs of the train command, with processes."""

import json
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import NamedTuple

import pytest

from sample_factory.enjoy import main as enjoy
from sample_factory.monitoring.tensorboard_pages import LEGEND
from tests.system.running import (
    FOREVER,
    SMALL,
    assert_all_gone,
    child,
    descendants,
    kill_started,
    newest_state,
    run,
    scalars,
    start,
    stop,
    wait_for_frames,
    wait_for_line,
    wait_for_progress,
)

CARTPOLE = ["--env=gym_CartPole-v1", "--experiment=a", *SMALL]


class Resumed(NamedTuple):
    """A run that was stopped by Ctrl+C, and the same command once more, which ended by itself.

    before, after: the newest checkpoints of both. output: of the second run.
    """

    before: dict
    after: dict
    output: str
    env_frames: int  # after which the second run was to end


@pytest.fixture(scope="module")
def train_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("train_dir")


@pytest.fixture(scope="module")
def resumed(train_dir):
    # The second run is to have a full window of episodes, before which a resumed policy writes no means.
    flags = [*CARTPOLE, "--lr_schedule=kl_adaptive_minibatch", "--stats_avg=20"]
    try:
        process = start("train", train_dir, *flags, FOREVER)
        wait_for_frames(process, 0)
        family = descendants(process)
        assert len(family) >= 4
        stop(process)
        assert_all_gone(family)
    finally:
        kill_started()  # a fixture of the module is set up before the one that does this after each test
    before = newest_state(train_dir / "a")
    more = before["env_steps"] + 2000
    done = run("train", train_dir, *flags, f"--train_for_env_steps={more}")
    assert done.returncode == 0, done.stdout
    return Resumed(before, newest_state(train_dir / "a"), done.stdout, more)


def test_a_run_ends_by_itself_and_leaves_a_checkpoint_its_flags_a_log_and_summaries(resumed, train_dir):
    experiment = train_dir / "a"
    assert resumed.after["env_steps"] >= resumed.env_frames
    saved = json.loads((experiment / "cfg.json").read_text())
    assert saved["batch_size"] == 128 and saved["cli_args"]["env"] == "gym_CartPole-v1"
    assert "tensorboard --logdir" in (experiment / "sf_log.txt").read_text(), "the log is complete"
    tags = set(scalars(experiment))
    assert {"0_aux/_fps", "0_aux/avg_reward", "train/loss", "train/entropy"} <= tags
    explained = [tag for row in LEGEND for tag in row.split(", ") if tag != "train/*"]
    assert {tag for tag in tags if not any(fnmatchcase(tag, pattern) for pattern in explained)} == set()


def test_the_same_command_resumes_where_ctrl_c_stopped_it(resumed, train_dir):
    before, after = resumed.before, resumed.after
    assert before["env_steps"] > 0
    assert f"{before['train_step']} SGD steps, {before['env_steps']} env frames" in resumed.output
    assert after["train_step"] > before["train_step"]
    steps = [float(state["step"]) for state in after["optimizer"]["state"].values()]
    assert steps == [after["train_step"]] * len(steps), "Adam continues to count"
    first_report = min(x for x, _ in scalars(train_dir / "a")["train/loss"])
    assert first_report <= before["env_steps"]


@pytest.mark.skipif(find_spec("envpool") is None, reason="needs the extra envpool")
def test_hundreds_of_copies_that_step_in_the_background_learn_and_one_of_them_is_filmed(tmp_path):
    flags = ["--env=envpool_CartPole-v1", "--experiment=a", *SMALL, "--num_workers=1", "--inline_samplers=1"]
    flags += ["--num_envs_per_worker=2", "--vector_env_copies=200", "--batch_size=3200"]
    done = run("train", tmp_path, *flags, "--train_for_env_steps=10_000")
    assert done.returncode == 0, done.stdout
    assert newest_state(tmp_path / "a")["env_steps"] >= 10_000
    assert scalars(tmp_path / "a")["0_aux/avg_len"][-1][1] > 5
    place = [f"--train_dir={tmp_path}", "--experiment=a"]
    assert enjoy([*place, "--no_render", "--save_video", "--max_num_episodes=1"]) == 0
    assert (tmp_path / "a" / "replay.mp4").is_file()


def test_inline_samplers_share_the_workers_and_need_no_others_and_a_dead_one_is_replaced(tmp_path):
    flags = ["--vector_env_copies=3", "--inline_samplers=2", "--num_workers=3"]
    process = start("train", tmp_path, *CARTPOLE, *flags)
    wait_for_frames(process, 0)
    family = descendants(process)
    assert {child.name() for child in family} - {"template"} == {"learner_0", "sampler_0", "sampler_1"}
    child(family, "sampler_0").kill()
    wait_for_line(process, "sampler_0 died")
    assert "of sampler_0" in wait_for_line(process, "Reclaimed ")
    wait_for_line(process, "worker 2: envs are ready")
    wait_for_progress(process)
    successors = descendants(process)
    assert child(successors, "template").memory_info().rss < 50 << 20, "it has unloaded torch"
    stop(process)
    assert_all_gone([*family, *successors])
    assert scalars(tmp_path / "a")["health/worker_restarts"][-1][1] == 1


def test_a_network_that_raises_in_an_inline_sampler_ends_the_run_and_is_named(tmp_path):
    """It would raise again in a successor, unlike an env."""
    flags = ["--env=unbalanced", "--encoder_custom=raises_in_acting", *CARTPOLE[1:], "--inline_samplers=2"]
    done = run("unbalanced.py", tmp_path, *flags)
    assert done.returncode == 1, done.stdout
    assert ": computing actions raised ValueError: a broken layer (unbalanced.py:" in done.stdout
    assert "is replaced" not in done.stdout


@pytest.mark.skipif(find_spec("faster_fifo") is None, reason="faster-fifo has no wheel for this Python")
def test_acting_and_training_agree_between_processes_with_the_other_queue_transport(tmp_path):
    """With alternation and fp32, the probability ratio of the first pass over each batch is exactly 1.

    test_serial_mode.py has the same for other models.
    """
    flags = [
        "--queue=faster_fifo",
        "--async_rl=False",
        "--train_for_env_steps=1500",
        "--ppo_epochs=1",
        "--num_batches_per_iteration=1",
    ]
    flags += ["--use_rnn=True", "--rnn_type=lstm", "--recurrence=4"]
    done = run("train", tmp_path, *CARTPOLE, *flags)
    assert done.returncode == 0, done.stdout
    numbers = scalars(tmp_path / "a")
    assert max(value for _, value in numbers["train/version_diff_max"]) == 0
    assert max(value for _, value in numbers["train/ratio_mean"]) < 1e-5
