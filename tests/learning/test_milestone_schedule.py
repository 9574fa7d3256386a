from sample_factory.learning.milestone_schedule import MilestoneSchedule


def due(schedule, *env_frames):
    return [schedule.is_due(frames) for frames in env_frames]


def test_a_milestone_is_due_at_once_and_then_whenever_a_multiple_has_been_passed():
    schedule = MilestoneSchedule(-1, 100, env_frames=0)
    assert due(schedule, 30, 60, 99, 105, 199, 200, 520, 599) == [1, 0, 0, 1, 0, 1, 1, 0]


def test_a_resumed_run_goes_on_with_the_next_multiple():
    schedule = MilestoneSchedule(-1, 100, env_frames=250)
    assert due(schedule, 260, 299, 301) == [False, False, True]


def test_without_an_interval_no_milestone_is_due():
    assert due(MilestoneSchedule(-1, 0, env_frames=0), 10, 10**9) == [False, False]
