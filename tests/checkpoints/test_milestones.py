from pathlib import Path

from sample_factory.checkpoints.milestones import (
    RETRY_SECONDS,
    Milestone,
    MilestoneSchedule,
    find_milestones,
)


def test_milestones_on_disk_are_found_by_version_and_other_files_are_ignored(tmp_path):
    saved = [Milestone(1, 999_999_999, 7), Milestone(1, 1_000_000_001, 8), Milestone(0, 3, 9)]
    for milestone in saved:
        path = milestone.path(tmp_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in ("mine.pth.milestone", "checkpoint_5_6.pth.milestone", "checkpoint_000000005_6.pth"):
        (tmp_path / "checkpoint_p1" / "milestones" / name).touch()
    assert find_milestones(tmp_path, 1) == saved[:2]
    assert find_milestones(tmp_path, 0) == saved[2:] and find_milestones(tmp_path, 2) == []


def test_the_path_in_no_folder_is_relative_to_the_experiment():
    path = Milestone(2, 5, 640).path(Path())
    assert str(path) == "checkpoint_p2/milestones/checkpoint_000000005_640.pth.milestone"


def saved(schedule, *env_frames):
    """Whether a milestone was due, and saved, at each of these."""
    return [attempt(schedule, frames, is_saved=True) for frames in env_frames]


def attempt(schedule, env_frames, is_saved):
    """Whether a milestone was due. is_saved: whether saving it works."""
    is_due = schedule.is_due(env_frames)
    if is_due:
        schedule.record(env_frames, is_saved)
    return is_due


def test_a_milestone_is_due_at_once_and_then_whenever_a_multiple_has_been_passed():
    schedule = MilestoneSchedule(-1, 100, env_frames=0, has_milestone=False)
    assert saved(schedule, 30, 60, 99, 105, 199, 200, 520, 599) == [1, 0, 0, 1, 0, 1, 1, 0]


def test_a_resumed_run_continues_with_the_next_multiple():
    schedule = MilestoneSchedule(-1, 100, env_frames=250, has_milestone=True)
    assert saved(schedule, 260, 299, 301) == [False, False, True]


def test_a_resumed_run_without_a_milestone_saves_one_at_once():
    schedule = MilestoneSchedule(-1, 100, env_frames=250, has_milestone=False)
    assert saved(schedule, 260, 299, 301) == [True, False, True]


def test_without_an_interval_no_milestone_is_due():
    schedule = MilestoneSchedule(-1, 0, env_frames=0, has_milestone=False)
    assert saved(schedule, 10, 10**9) == [False, False]


def test_a_milestone_that_could_not_be_saved_is_due_again_after_a_while():
    seconds = [0.0]
    schedule = MilestoneSchedule(1000, 100, 0, has_milestone=True, now=lambda: seconds[0])
    assert attempt(schedule, 110, is_saved=False)
    assert saved(schedule, 120) == [False], "the disk is still full"
    seconds[0] = RETRY_SECONDS + 1
    assert saved(schedule, 130, 140) == [True, False]
    seconds[0] = 1001.0
    assert attempt(schedule, 150, is_saved=False)
    seconds[0] += RETRY_SECONDS + 1
    assert saved(schedule, 160, 170) == [True, False], "an interval that has passed is not forgotten"
