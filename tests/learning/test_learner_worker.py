"""The process around a Learner, its two threads driven by hand."""

import copy
import functools
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.checkpoints.file_format import read_state, write_state
from sample_factory.checkpoints.milestones import find_checkpoints
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_info import probe_env_info
from sample_factory.envs.env_registry import resolve_family
from sample_factory.exchange import topology
from sample_factory.exchange.channels import Channels, make_progress
from sample_factory.exchange.messages import (
    ComponentReady,
    Snapshot,
    SnapshotRequest,
    StatsReport,
    Trajectories,
    reports_in,
)
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers
from sample_factory.launch.plan import plan_run
from sample_factory.launch.resources import allocate
from sample_factory.launch.workers import training_specs
from sample_factory.learning import trainer
from sample_factory.learning.algorithms.ppo import PPO
from sample_factory.learning.batch import Batcher
from sample_factory.learning.gradient_descent import NumericalError
from sample_factory.learning.learner_args import LearnerArgs
from sample_factory.learning.learner_worker import LearnerWorker
from sample_factory.learning.receiver import Handover, Receiver
from sample_factory.runtime.child_side import ChildContext
from tests.counting import ThreadQueue, counts

FLAGS = ["--env=gym_CartPole-v1", "--serial_mode=True", "--num_workers=1", "--num_envs_per_worker=8"]
FLAGS += ["--rollout=4", "--batch_size=16", "--device=cpu", "--experiment=a"]
PATIENCE = 60.0


class Parts(NamedTuple):
    """Arguments of a LearnerWorker."""

    buffers: TrajectoryBuffers
    channels: Channels
    args: LearnerArgs


@pytest.fixture
def parts(tmp_path):
    return make_parts(tmp_path)


@functools.cache
def info_of_env():
    config = parse_config(FLAGS, resolve_family)
    return probe_env_info(resolve_family(config.run.env), config.namespace())


def make_parts(tmp_path, *flags):
    config = parse_config([*FLAGS, f"--train_dir={tmp_path}", *flags], resolve_family)
    plan = plan_run(config, resolve_family(config.run.env), info=info_of_env())
    resources = allocate(plan.sampling)
    [args] = training_specs(plan, resources, "module:Ingest")[0].args
    return Parts(resources.buffers, resources.channels._replace(learners=[ThreadQueue()]), args)


def hand_over(parts, agents):
    """Buffers with zeros for the learner, as a rollout worker would hand them over."""
    buffers = parts.buffers
    taken = buffers.acquire(0, agents)
    buffers.policy_ids[taken] = 0
    buffers.hand_over(0, taken, agents, np.ones((len(agents), 1), bool))
    parts.channels.learners[0].put(Trajectories(taken.tolist()))


def hand_over_and_die(parts):
    """Hands buffers over as a rollout worker does that dies before it sends their tickets."""
    hand_over(parts, np.arange(4))
    parts.channels.learners[0].get_many(0.0)
    parts.buffers.reclaim(0)


def test_the_first_batch_is_announced_once(parts):
    worker = LearnerWorker(parts.args, parts.buffers, parts.channels, ChildContext("learner"))
    for agents in ([0, 1, 2], [3], [4, 5, 6, 7]):  # a batch is of four
        hand_over(parts, np.array(agents))
        worker.step(timeout=0.0)
    texts = [
        report.text
        for report in parts.channels.reports.get_many(timeout=0.0)
        if isinstance(report, ComponentReady)
    ]
    announced = [text for text in texts if "first batch" in text]
    assert announced == ["policy 0: the first batch is ready"]


def test_the_next_batch_is_made_as_soon_as_the_trainer_has_taken_one_even_without_a_message(parts):
    worker = LearnerWorker(parts.args, parts.buffers, parts.channels, ChildContext("learner"))
    hand_over(parts, np.arange(2 * parts.buffers.topology.trajectories_per_batch))
    assert worker.step(timeout=0.0)  # the first batch, which leaves no room for the second
    trainer = threading.Timer(0.2, worker.train_once, [PATIENCE])
    started = time.monotonic()
    trainer.start()
    assert worker.step(timeout=PATIENCE), "the second batch"
    assert time.monotonic() - started < PATIENCE / 2
    trainer.join()
    assert counts(parts.buffers)[2] == 0, "both batches have been copied and released"


@pytest.mark.parametrize(
    "has_gpu, flags, num_ahead",
    [(False, [], 0), (True, [], 1), (False, ["--num_batches_to_accumulate=3"], 2)],
)
def test_batches_are_copied_ahead_for_a_gpu_or_by_a_flag_and_otherwise_once_the_trainer_waits(
    tmp_path, monkeypatch, has_gpu, flags, num_ahead
):
    monkeypatch.setattr(topology, "may_have_gpu", lambda device: has_gpu)
    parts = make_parts(tmp_path, "--serial_mode=False", *flags)
    worker = LearnerWorker(parts.args, parts.buffers, parts.channels, ChildContext("learner"))
    for _ in range(2):
        hand_over(parts, np.arange(8))
    for _ in range(5):  # as many steps as there are batches, and one for the messages
        worker.step(timeout=0.0)
    assert counts(parts.buffers)[2] == 16 - 4 * num_ahead
    trainer = threading.Timer(0.2, worker.train_once, [PATIENCE])
    trainer.start()
    assert worker.step(timeout=PATIENCE), "the trainer waits, or has taken a batch"
    trainer.join()
    worker.step(timeout=0.0)
    assert counts(parts.buffers)[2] == 16 - 4 * (num_ahead + 1)


def test_an_iteration_of_training_is_reported_while_it_goes_on(parts, monkeypatch):
    monkeypatch.setattr(trainer, "REPORT_SECONDS", 1e-9)
    worker = LearnerWorker(parts.args, parts.buffers, parts.channels, ChildContext("learner"))
    has_begun, may_end = threading.Event(), threading.Event()
    train = worker._learner.train

    def train_for_long(*args, **kwargs):
        has_begun.set()
        may_end.wait(PATIENCE)
        return train(*args, **kwargs)

    monkeypatch.setattr(worker._learner, "train", train_for_long)
    hand_over(parts, np.arange(4))
    worker.step(timeout=0.0)
    training = threading.Thread(target=worker.train_once, args=[PATIENCE])
    training.start()
    assert has_begun.wait(PATIENCE)
    worker.step(timeout=0.05)  # reports what came before, too
    worker.step(timeout=0.05)
    reports = reports_in(parts.channels.reports.get_many(timeout=0.0))
    *_, last = [report.stats for report in reports if isinstance(report, StatsReport)]
    may_end.set()
    training.join()
    assert last["train"] == pytest.approx(1.0) and last["wait"] == 0.0


def test_shares_of_other_learners_are_held_until_they_are_copied_when_a_rollout_worker_dies(parts):
    second = ThreadQueue()
    of_two = replace(parts.buffers.topology, learners_per_policy=2)
    channels = parts.channels._replace(other_learners={0: [second]}, progress=make_progress(of_two))
    batcher = Batcher(parts.buffers, 0, torch.device("cpu"))
    handover = Handover(of_two.max_ready_batches)
    receiver = Receiver(0, parts.buffers, batcher, channels, handover, lambda ready: None)
    hand_over(parts, np.arange(4))
    assert receiver.step(4, timeout=0.0)
    assert handover.take_batch(0.0).rewards.shape == (4, 2), "half of the trajectories of 4 steps"
    [share] = second.get_many(0.0)
    assert counts(parts.buffers)[2] == len(share.buffer_indices) == 2
    hand_over_and_die(parts)
    receiver.receive(0.0)
    assert counts(parts.buffers)[2] == 2, "the share"
    batcher.next_batch(share.buffer_indices)
    # The buffers of the share are free, and the next ones to be filled, before the share counts as copied.
    hand_over_and_die(parts)
    receiver.receive(0.0)
    assert counts(parts.buffers)[2] == 2, "they could still be the share"
    channels.progress["copied"][0, 0] += 1
    receiver.receive(0.0)
    assert counts(parts.buffers)[2] == 0


def trained_with(parts, path, experiment="a", **args):
    """Returns the learner of a new experiment that starts with the weights of a file."""
    config = parts.args.config
    config = replace(config, run=replace(config.run, experiment=experiment))
    args = parts.args._replace(transfer_from=path, config=config, **args)
    return LearnerWorker(args, parts.buffers, parts.channels, ChildContext("a"))


def test_a_new_experiment_starts_with_transferred_weights_and_an_existing_one_with_its_own(parts, tmp_path):
    old = trained_with(parts, None)
    hand_over(parts, np.arange(parts.buffers.topology.trajectories_per_batch))
    assert old.step(timeout=0.0) and old.train_once(PATIENCE)
    old.save()
    [path] = (tmp_path / "a" / "checkpoint_p0").glob("*.pth")
    trained = read_state(path)
    assert trained["train_step"] > 0 and trained["env_steps"] > 0
    write_state({**trained, "optimizer": "not used"}, path, tmp_path / "temporary")
    new = trained_with(parts, path, experiment="b")
    new.save()
    [started] = (tmp_path / "b" / "checkpoint_p0").glob("*.pth")
    state = read_state(started)
    assert (state["train_step"], state["env_steps"]) == (0, 0)
    assert state["model"].keys() == trained["model"].keys()
    assert all(torch.equal(state["model"][name], tensor) for name, tensor in trained["model"].items())
    path.unlink()
    trained_with(parts, path, experiment="b")  # resumes, and reads no other file


def test_weights_that_do_not_fit_are_refused_with_what_differs_first(parts, tmp_path):
    trained_with(parts, None).save()
    [path] = (tmp_path / "a" / "checkpoint_p0").glob("*.pth")
    policy = parts.args.policy
    policy = policy._replace(flags=replace(policy.flags, encoder_mlp_layers=(8,)))
    difference = r"--transfer_from: cannot use .*: it is of another network or version: .*weight is of shape "
    with pytest.raises(CheckpointError, match=difference):
        trained_with(parts, path, experiment="b", policy=policy)


class WithTarget(PPO):
    """Has a frozen copy of the network, made at its construction."""

    def __init__(self, flags, policy, rng):
        super().__init__(flags, policy, rng)
        self._target = copy.deepcopy(policy.model).requires_grad_(False)

    @property
    def modules(self):
        return {**super().modules, "target": self._target}


def test_an_algorithm_that_copies_the_network_copies_the_transferred_one(parts, tmp_path):
    trained_with(parts, None).save()
    [path] = (tmp_path / "a" / "checkpoint_p0").glob("*.pth")
    trained_with(parts, path, experiment="b", algorithm=WithTarget, seed=99).save()
    [started] = (tmp_path / "b" / "checkpoint_p0").glob("*.pth")
    state = read_state(started)
    assert all(
        torch.equal(state["target"][name], tensor) for name, tensor in read_state(path)["model"].items()
    )


def test_a_learner_that_has_learned_nothing_saves_nothing_at_its_end(parts, tmp_path):
    context = ChildContext("learner")
    context.stopping.set()
    LearnerWorker(parts.args, parts.buffers, parts.channels, context).run()
    assert not list(tmp_path.rglob("*.pth"))


def test_a_snapshot_is_written_even_if_the_run_ends(parts):
    context = ChildContext("learner")
    worker = LearnerWorker(parts.args, parts.buffers, parts.channels, context)
    hand_over(parts, np.arange(4))
    assert worker.step(timeout=0.0) and worker.train_once(PATIENCE)
    context.stopping.set()
    parts.channels.learners[0].put(SnapshotRequest("best_evaluated.pth"))
    worker.run()
    reports = reports_in(parts.channels.reports.get_many(timeout=PATIENCE))
    [snapshot] = [report for report in reports if isinstance(report, Snapshot)]
    assert read_state(Path(snapshot.path))["train_step"] == snapshot.version > 0


def test_without_learning_no_snapshot_is_written(tmp_path):
    parts = make_parts(tmp_path, "--sampler_only=True")
    context = ChildContext("learner")
    worker = LearnerWorker(parts.args, parts.buffers, parts.channels, context)
    parts.channels.learners[0].put(SnapshotRequest("best_evaluated.pth"))
    context.stopping.set()
    worker.run()
    assert not list(tmp_path.rglob("*.pth"))


def test_only_the_thread_that_trains_computes_with_several_threads(parts):
    def stop(_):
        seen.append(torch.get_num_threads())
        context.stopping.set()

    seen = []
    context = ChildContext("learner", stop)  # it is called in the trainer thread
    before = torch.get_num_threads()
    LearnerWorker(parts.args._replace(num_threads=2), parts.buffers, parts.channels, context).run()
    here = torch.get_num_threads()
    torch.set_num_threads(before)
    assert seen == [2] and here == 1


def test_a_learner_that_has_failed_by_its_numbers_saves_nothing_at_its_end(parts, tmp_path, monkeypatch):
    def fail(*_, **__):
        learner.descent.newest_is_finite = False
        raise NumericalError("not finite")

    worker = LearnerWorker(parts.args, parts.buffers, parts.channels, ChildContext("learner"))
    learner = worker._learner
    hand_over(parts, np.arange(4))
    assert worker.step(timeout=0.0) and worker.train_once(PATIENCE)
    monkeypatch.setattr(learner, "train", fail)
    hand_over(parts, np.arange(4, 8))
    for name in ("evaluated.pth", "best_evaluated.pth", "donation.pth"):
        parts.channels.learners[0].put(SnapshotRequest(name))
    with pytest.raises(NumericalError):
        worker.run()
    assert worker.save(), "as a serial run calls it"
    assert not [path for path in tmp_path.rglob("*.pth") if read_state(path)["train_step"] != learner.version]
    assert not find_checkpoints(tmp_path / "a", 0, "latest")


def test_a_snapshot_holds_the_weights_and_frames_of_its_moment_and_is_no_checkpoint(parts, tmp_path):
    worker = trained_with(parts, None)
    hand_over(parts, np.arange(parts.buffers.topology.trajectories_per_batch))
    assert worker.step(timeout=0.0) and worker.train_once(PATIENCE)
    parts.channels.learners[0].put(SnapshotRequest("evaluated.pth"))
    worker.step(timeout=0.0)
    worker.train_once(0.0)
    reports = reports_in(parts.channels.reports.get_many(timeout=PATIENCE))
    [snapshot] = [report for report in reports if isinstance(report, Snapshot)]
    state = read_state(Path(snapshot.path))
    assert (snapshot.version, snapshot.env_frames) == (state["train_step"], state["env_steps"])
    assert snapshot.env_frames > 0
    assert find_checkpoints(tmp_path / "a", 0, "latest") == []
