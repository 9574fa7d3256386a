"""Version 2's runner, its observers, and its launcher's seeds."""

import types

import numpy as np
import pytest
import torch
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.launcher.launcher_utils import seeds
from sample_factory.utils.utils import ensure_dir_exists, experiment_dir

from sample_factory import read_metrics, run
from sample_factory.train import make_runner
from sample_factory.version_2.runner import _Follower

FLAGS = ["--env=gym_CartPole-v1", "--experiment=a", "--serial_mode=True", "--num_workers=1", "--rollout=8",
         "--batch_size=64", "--train_for_env_steps=600", "--device=cpu"]  # fmt: skip


class Recorder(AlgoObserver):
    """Records the calls, and writes the mean length of the last episodes."""

    def __init__(self):
        self.calls = []

    def on_init(self, runner):
        self.calls.append("init")

    def on_connect_components(self, runner):
        self.calls.append("connect")

    def on_start(self, runner):
        self.calls.append("start")

    def on_training_step(self, runner, training_iteration_since_resume):
        self.calls.append(training_iteration_since_resume)
        self.env_steps = sum(runner.env_steps.values())

    def extra_summaries(self, runner, policy_id, writer, env_steps):
        writer.add_scalar("mine/len", np.mean(runner.policy_avg_stats["len"][policy_id]), env_steps)

    def on_stop(self, runner):
        self.calls.append("stop")


class Failing(AlgoObserver):
    def on_training_step(self, runner, training_iteration_since_resume):
        raise ValueError("no chart")


def failing_handler(runner, message, policy_id):
    raise ValueError("no table")


def test_a_runner_calls_its_observers_also_after_others_have_failed_and_writes_their_summaries(
    tmp_path, capsys
):
    argv = [*FLAGS, f"--train_dir={tmp_path}"]
    cfg, runner = make_runner(parse_full_cfg(parse_sf_args(argv)[0], argv))
    recorder = Recorder()
    messages = []
    runner.register_observer(Failing())
    runner.register_episodic_stats_handler(failing_handler)
    runner.register_observer(recorder)
    runner.register_episodic_stats_handler(lambda runner, message, policy_id: messages.append(message))
    assert runner.init() == ExperimentStatus.SUCCESS == runner.run()
    first, second, *steps, last = recorder.calls
    assert (first, second, last) == ("init", "connect", "stop") and "start" in steps
    iterations = [step for step in steps if step != "start"]
    assert iterations == list(range(1, len(iterations) + 1)) and recorder.env_steps >= 600
    assert all(message["episodic"]["reward"] == message["episodic"]["len"] for message in messages)
    metrics = read_metrics(experiment_dir(cfg), tags="mine/len")
    assert metrics["value"].iloc[-1] == pytest.approx(
        np.mean([message["episodic"]["len"] for message in messages])
    )
    failed = [line for line in capsys.readouterr().err.splitlines() if "is switched off" in line]
    assert len(failed) == 2, "each observer that raises is switched off, and no other"
    assert "observer 'Failing (1 of the runner)'" in failed[0] + failed[1]
    assert sum(runner.env_steps.values()) >= 600
    recorder.calls.clear()
    run("CartPole-v1", "later", train_dir=str(tmp_path), serial_mode=True, batch_size=64, rollout=8,
        train_for_env_steps=64, device="cpu")  # fmt: skip
    assert recorder.calls == [], "it follows the run of its runner only"


class Drawing(AlgoObserver):
    """Calls the writer in the ways in which that of TensorBoard can be called."""

    def extra_summaries(self, runner, policy_id, writer, env_steps):
        writer.add_scalar("a", policy_id)
        writer.add_scalar("b", torch.tensor(2.0), env_steps, 0.5)
        writer.add_scalar("c", np.float32(3), global_step=env_steps)
        writer.add_scalar(tag="d", scalar_value=4, walltime=0.5)
        writer.add_histogram("weights", torch.ones(3), global_step=env_steps)
        writer.add_text("note", "text")
        writer.flush()


def test_every_call_of_a_summary_writer_works_and_those_without_effect_are_reported_once(caplog):
    run = types.SimpleNamespace(policies=[types.SimpleNamespace(env_frames=7)] * 2)
    follower = _Follower(None, Drawing())
    for policy_id in (0, 1):
        scalars = {"a": policy_id, "b": 2, "c": 3, "d": 4}
        assert follower.extra_summaries(run, policy_id) == scalars
    warned = caplog.text
    assert warned.count("add_histogram") == warned.count("add_text") == 1 and "flush" not in warned


def test_an_extra_statistic_with_the_name_of_a_result_does_not_replace_it():
    _, runner = make_runner(None)
    episode = types.SimpleNamespace(
        policy_id=0, reward=5.0, length=1, true_objective=5.0, extra_stats={"reward": 70.0, "goals": 2.0}
    )
    runner.on_episode(types.SimpleNamespace(cfg=types.SimpleNamespace(stats_avg=5), num_policies=1), episode)
    found = {name: list(values[0]) for name, values in runner.policy_avg_stats.items()}
    assert found == {"reward": [5.0], "goals": [2.0], "len": [1], "true_objective": [5.0]}


def test_what_a_runner_does_not_have_says_where_to_look(tmp_path):
    argv = [*FLAGS, f"--train_dir={tmp_path}"]
    _, runner = make_runner(parse_full_cfg(parse_sf_args(argv)[0], argv))
    with pytest.raises(AttributeError, match=r"Runner\.event_loop is not in this version: see .*Observers"):
        _ = runner.event_loop


def test_seeds_are_different_numbers_and_folders_are_made(tmp_path):
    chosen = seeds(5)
    assert len(set(chosen)) == 5 and all(10**6 <= seed < 10**7 for seed in chosen)
    assert ensure_dir_exists(str(tmp_path / "b" / "c")) == str(tmp_path / "b" / "c")
    assert (tmp_path / "b" / "c").is_dir()
