from pathlib import Path

from sample_factory.checkpoints.milestone_schedule import RETRY_SECONDS, MilestoneSchedule


def saved(schedule, *env_frames):
    """Whether a milestone was saved, at each of these."""
    return [schedule.save_if_due(frames, lambda: Path("a")) is not None for frames in env_frames]


def fails(schedule, env_frames):
    """Whether one was tried, which did not work."""
    tries = []
    assert schedule.save_if_due(env_frames, lambda: tries.append("none")) is None
    return bool(tries)


def test_a_milestone_is_due_at_once_and_then_whenever_a_multiple_has_been_passed():
    schedule = MilestoneSchedule(-1, 100, env_frames=0, has_milestone=False)
    assert saved(schedule, 30, 60, 99, 105, 199, 200, 520, 599) == [1, 0, 0, 1, 0, 1, 1, 0]


def test_a_resumed_run_goes_on_with_the_next_multiple():
    schedule = MilestoneSchedule(-1, 100, env_frames=250, has_milestone=True)
    assert saved(schedule, 260, 299, 301) == [False, False, True]


def test_a_resumed_run_without_a_milestone_has_one_at_once():
    schedule = MilestoneSchedule(-1, 100, env_frames=250, has_milestone=False)
    assert saved(schedule, 260, 299, 301) == [True, False, True]


def test_without_an_interval_no_milestone_is_due():
    schedule = MilestoneSchedule(-1, 0, env_frames=0, has_milestone=False)
    assert saved(schedule, 10, 10**9) == [False, False]


def test_one_that_could_not_be_saved_is_due_again_after_a_while():
    seconds = [0.0]
    schedule = MilestoneSchedule(1000, 100, 0, has_milestone=True, now=lambda: seconds[0])
    assert fails(schedule, 110)
    assert saved(schedule, 120) == [False], "the disk is still as full as it was"
    seconds[0] = RETRY_SECONDS + 1
    assert saved(schedule, 130, 140) == [True, False]
    seconds[0] = 1001.0
    assert fails(schedule, 150)
    seconds[0] += RETRY_SECONDS + 1
    assert saved(schedule, 160, 170) == [True, False], "an interval that has passed is not forgotten"
