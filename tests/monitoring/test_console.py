import math
from types import SimpleNamespace

import pytest

from sample_factory.exchange.messages import EpisodeReport, TrainReport
from sample_factory.monitoring.console import duration_text, status_text
from sample_factory.monitoring.policy_progress import PolicyProgress


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (61, "1 min 01 s"),
        (3600, "1 h 00 min"),
        (7505, "2 h 05 min"),
        (86400 * 2 + 3600 * 3, "2 d 03 h"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(seconds, text):
    assert duration_text(seconds) == text


def state(policy, fps, seconds_left, **fields):
    """Returns what status_text reads of a RunProgress."""
    calls = {"shown_fps": lambda: fps, "seconds_left": lambda: seconds_left}
    return SimpleNamespace(policies=[policy], new_frames=1, **calls, **fields)


def test_the_status_of_one_policy_is_one_line():
    policy = PolicyProgress(stats_avg=100)
    lag = {"version_diff_avg": 3.25, "version_diff_min": 1.0, "version_diff_max": 7.0}
    policy.trained(TrainReport(0, 1, 0, 0, lag))
    policy.episodes.add(EpisodeReport(0, 0.81, 96, 0.81, {}))
    progress = state(policy, {10.0: 6120.4, 60.0: 6050.0}, 3725.0, total_frames=1_234_560, share_done=0.123)
    assert status_text(progress, "bottleneck: learner") == (
        "env frames 1,234,560 (12.3 %, 1 h 02 min left) | FPS 6,120 (10 s), 6,050 (60 s) | "
        "reward 0.810, length 96 frames (1 episode) | policy lag 3.2 (1 to 7) | bottleneck: learner"
    )


def test_unknown_values_are_left_out():
    progress = state(PolicyProgress(stats_avg=100), {10.0: math.nan}, None, total_frames=0, share_done=None)
    assert status_text(progress, "") == "env frames 0 | no episode has ended yet"
