"""Populations in real runs. Policy 0 is better because of its reward shaping, so policy 1 takes it over."""

import json
import signal
from typing import NamedTuple

import pytest
import torch

from sample_factory.config.learning_flags import LearningFlags
from tests.system import running
from tests.system.running import (
    FOREVER,
    SMALL,
    assert_all_gone,
    child,
    descendants,
    kill,
    kill_started,
    newest_state,
    run,
    scalars,
    start,
    stop,
    train,
    wait_for_line,
)

SCRIPT = "population_of_two.py"
PERIOD = 1500  # env frames of a policy before it is decided on for the first time, and then again
FLAGS = ["--env=bonus", "--experiment=a", "--num_policies=2", "--with_pbt=True", "--seed=1", *SMALL]
FLAGS += ["--pbt_start_mutation=0", f"--pbt_period_env_steps={PERIOD}", "--pbt_mutation_rate=1"]
FLAGS += ["--save_every_sec=1", "--keep_checkpoints=1000"]
FLAGS += ["--traj_buffers_excess_ratio=30"]  # while one learner is suspended, the other needs buffers
BONUSES = (2.0, 1.0)
TAKES_OVER = "PBT: policy 1 takes over policy 0"
CONTINUES = "PBT: policy 1 continues with learning_rate"
KEPT = "donation.pth"  # a link to the donated weights, beside the experiment, which deletes them after use


def prepare(experiment):
    """Writes the flags and the reward shaping with which the policies start."""
    experiment.mkdir()
    for policy, bonus in enumerate(BONUSES):
        (experiment / f"policy_{policy:02d}_cfg.json").write_text("{}")
        shaping = json.dumps({"bonus": bonus})
        (experiment / f"policy_{policy:02d}_reward_shaping.json").write_text(shaping)


class State(NamedTuple):
    """The files about policy 1."""

    hyperparameters: dict
    bonus: float
    decided_at: int


def state_of(experiment) -> State:
    """Reads the files; fails if one is not whole."""
    settings, shaping, progress = (
        json.loads((experiment / name).read_text())
        for name in ("policy_01_cfg.json", "policy_01_reward_shaping.json", "pbt_progress.json")
    )
    return State(settings, shaping["bonus"], progress["1"])


def checkpoints(experiment, policy):
    """Returns the contents of all checkpoints, oldest first."""
    return [torch.load(path, weights_only=True) for path in running.checkpoints(experiment, policy)]


def takeover_checkpoint(experiment, donation):
    """Returns the receiver's first checkpoint that holds the donated weights.

    It may have another: an SGD step on a batch whose samples are all of the replaced weights changes nothing.
    """
    return next(
        state for state in checkpoints(experiment, 1) if same_tensors(state["model"], donation["model"])
    )


def suspend_takeover(process, experiment):
    """Waits for a takeover, and suspends the receiver's learner when the donor has saved its weights. Returns
    all processes of the run, and the receiver's learner."""
    wait_for_line(process, "policy 1   ")
    family = descendants(process)
    donor, receiver = child(family, "learner_0"), child(family, "learner_1")
    donor.suspend()
    wait_for_line(process, TAKES_OVER)
    receiver.suspend()
    donor.resume()
    while not (experiment / "checkpoint_p0" / "donation.pth").exists():
        wait_for_line(process, "[main] INFO ")
    return family, receiver


def donation_of(experiment):
    return torch.load(experiment.parent / KEPT, weights_only=True)


def same_tensors(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


@pytest.fixture(scope="module", params=[0, 1], ids=["separate processes", "an inline sampler"])
def taken_over(tmp_path_factory, request):
    """An experiment in which policy 1 took over policy 0 and trained on, until the run was stopped."""
    experiment = tmp_path_factory.mktemp("train_dir") / "a"
    prepare(experiment)
    try:
        process = start(SCRIPT, experiment.parent, *FLAGS, FOREVER, f"--inline_samplers={request.param}")
        family, receiver = suspend_takeover(process, experiment)
        (experiment.parent / KEPT).hardlink_to(experiment / "checkpoint_p0" / "donation.pth")
        receiver.resume()
        wait_for_line(process, CONTINUES)
        for _ in range(2):  # at 500 frames a second at most, this is before the next decision
            wait_for_line(process, "checkpoint_p1/checkpoint_")
        while same_tensors(newest_state(experiment, 1)["model"], donation_of(experiment)["model"]):
            wait_for_line(process, "checkpoint_p1/checkpoint_")
        stop(process, signal.SIGTERM)
        assert_all_gone(family)
    finally:
        kill_started()  # a fixture of the module is set up before the one that does this after each test
    return experiment


def test_the_receiver_continues_with_the_donors_weights_and_moments_and_with_its_own_counters(taken_over):
    donation = donation_of(taken_over)
    received = takeover_checkpoint(taken_over, donation)
    for key, moments in donation["optimizer"]["state"].items():
        assert same_tensors(received["optimizer"]["state"][key], moments)
    assert received["env_steps"] != donation["env_steps"] and received["samples"] != donation["samples"]
    assert not same_tensors(newest_state(taken_over, 1)["model"], donation["model"]), "it trains on"


def test_samples_of_the_replaced_weights_are_counted_and_not_trained_on(taken_over):
    first = takeover_checkpoint(taken_over, donation_of(taken_over))
    last = newest_state(taken_over, 1)
    assert first["env_steps"] == first["samples"], "before the takeover all was trained on"
    rejected = last["env_steps"] - last["samples"]
    assert 0 < rejected < last["env_steps"] - first["env_steps"], "and not all that came after it"
    donor = newest_state(taken_over, 0)
    assert donor["env_steps"] == donor["samples"]


def test_the_summaries_have_the_takeover_with_what_it_changed(taken_over):
    numbers, state = scalars(taken_over, policy=1), state_of(taken_over)
    ((x, donor),) = numbers["zz_pbt/replaced_by"]
    assert donor == 0 and x >= PERIOD
    assert [value for _, value in numbers["zz_pbt/rew_bonus"]] == pytest.approx([1.0, state.bonus])
    assert state.bonus not in BONUSES and 2 / 1.5 <= state.bonus <= 3, "the donor's, mutated"
    rewards = [value for x, value in numbers["0_aux/avg_reward"]]
    assert rewards[0] < 1.01 and rewards[-1] > (1.0 + state.bonus) / 2, "it reaches the envs"
    assert "zz_pbt/replaced_by" not in scalars(taken_over, policy=0)


def test_a_resumed_run_has_the_settings_and_decides_when_it_is_due(taken_over):
    before, frames = state_of(taken_over), newest_state(taken_over, 1)["env_steps"]
    assert PERIOD <= before.decided_at < frames
    # Without the memory of the last decision, the next one would be due at once.
    more = [f"--pbt_period_env_steps={frames}", f"--train_for_env_steps={frames + 500}"]
    done = run(SCRIPT, taken_over.parent, *FLAGS, *more, "--serial_mode=True")
    assert done.returncode == 0, done.stdout
    last = newest_state(taken_over, 1)
    assert last["env_steps"] - before.decided_at < frames, "or the run was too long to show anything"
    assert state_of(taken_over) == before
    assert (
        "policy_01_cfg.json" in done.stdout
        and "PBT: policy 1 " not in done.stdout.split("envs are ready")[-1]
    )
    rate = before.hyperparameters["learning_rate"]
    assert last["curr_lr"] == pytest.approx(rate) and rate != LearningFlags().learning_rate


@pytest.mark.parametrize("victim", ["the receiver's learner", "the main process"])
def test_a_run_killed_during_a_takeover_has_changed_nothing_and_decides_again(tmp_path, victim):
    experiment = tmp_path / "a"
    prepare(experiment)
    flags = [*FLAGS, FOREVER, "--pbt_period_env_steps=1000"]
    process = start(SCRIPT, tmp_path, *flags)
    family, receiver = suspend_takeover(process, experiment)
    if victim == "the main process":
        process.kill()
        kill(receiver)
        assert process.wait(timeout=running.LIMIT_SECONDS) == -signal.SIGKILL
    else:
        kill(receiver)
        output, _ = process.communicate(timeout=running.LIMIT_SECONDS)
        assert process.returncode == 1 and "learner_1: ended by signal 9" in output
    assert_all_gone(family)
    state = state_of(experiment)
    assert (state.bonus, state.decided_at) == (1.0, 0), "nothing has changed"
    if victim != "the main process":
        return  # the files are the same
    process = start(SCRIPT, tmp_path, *flags)
    wait_for_line(process, TAKES_OVER)
    wait_for_line(process, CONTINUES)
    stop(process)
    state = state_of(experiment)
    assert state.bonus not in BONUSES and state.decided_at >= 1000


def test_batch_size_and_discount_evolve_during_a_run(tmp_path):
    prepare(tmp_path / "a")
    more = ["--pbt_optimize_batch_size=True", "--pbt_optimize_gamma=True", "--train_for_env_steps=1500"]
    done = run(SCRIPT, tmp_path, *FLAGS, *more, "--pbt_period_env_steps=300", "--serial_mode=True")
    assert done.returncode == 0, done.stdout
    numbers = [scalars(tmp_path / "a", policy) for policy in (0, 1)]
    sizes = {value for found in numbers for _, value in found["zz_pbt/cfg_batch_size"]}
    discounts = {value for found in numbers for _, value in found["zz_pbt/cfg_gamma"]}
    assert len(sizes) > 1 and all(size % 16 == 0 and 16 <= size <= 192 for size in sizes)
    assert len(discounts) > 1 and all(0.9 < gamma < 1 for gamma in discounts)
    for policy in (0, 1):
        last = newest_state(tmp_path / "a", policy)
        assert last["env_steps"] >= 1500 and last["samples"] > 500


@pytest.mark.parametrize(("objective", "num_warnings"), [("frags", 1), ("true_reward", 0)])
def test_an_objective_that_no_policy_reports_is_one_warning_with_those_that_are_reported(
    tmp_path, capfd, objective, num_warnings
):
    flags = ["--env=gym_CartPole-v1", "--experiment=a", "--serial_mode=True", *SMALL]
    flags += ["--num_policies=2", "--with_pbt=True", "--train_for_env_steps=1000"]
    train(tmp_path, *flags, f"--pbt_target_objective={objective}")
    warning = f"no episode has reported --pbt_target_objective={objective}"
    log_file = (tmp_path / "a" / "sf_log.txt").read_text()
    for text in (log_file, capfd.readouterr().err):
        lines = [line for line in text.splitlines() if warning in line]
        assert len(lines) == num_warnings
        assert all("of the reported statistics: reward, true_objective, len" in line for line in lines)
