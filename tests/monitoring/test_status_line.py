"""The status and the results of a run as lines of text."""

import math
from types import SimpleNamespace

import pytest

from sample_factory.exchange.messages import EpisodeReport, TrainReport
from sample_factory.monitoring.console import (
    MAX_WIDTH,
    StatusLine,
    clock_text,
    duration_text,
    policy_rows,
    short_count,
    short_number,
    summary_lines,
)
from sample_factory.monitoring.policy_progress import PolicyProgress


def policy(reward: float | None = 0.78, episodes: int = 100, objective: float | None = None, frames: int = 0):
    made = PolicyProgress(stats_avg=100)
    lag = {"version_diff_avg": 0.4, "version_diff_min": 0.0, "version_diff_max": 6.0}
    made.trained(TrainReport(0, 1, frames, 0, lag))
    for _ in range(episodes if reward is not None else 0):
        made.episodes.add(EpisodeReport(0, reward, 96, reward if objective is None else objective, {}))
    return made


def status(*policies: PolicyProgress, seconds_left: float | None = 292.0, fps: float = 1224.0, **changed):
    """Returns what a StatusLine reads of a RunProgress."""
    counts = {"total_frames": 182_400, "target": 450_000, "share_done": 0.41, "new_frames": 1}
    fields = {
        "policies": policies,
        "num_sampled": 1,
        "first_batch": 4096,
        "has_batch": False,
        **counts,
        **changed,
    }
    fields["frames_to_target"] = fields["total_frames"]
    return SimpleNamespace(steady_fps=lambda: fps, seconds_left=lambda: seconds_left, **fields)


def test_the_status_of_one_policy_is_a_line_of_aligned_columns():
    line = StatusLine()
    assert line.text(status(policy())) == (
        "182k / 450k   41 %   4:52 left   1,224 FPS   reward 0.78   lag 0.4"
    )
    later = line.text(status(policy(), total_frames=9_800, fps=950.0, share_done=0.02, seconds_left=9.0))
    assert later == "9.8k / 450k    2 %   0:09 left     950 FPS   reward 0.78   lag 0.4"
    assert line.text(status(policy(12.5))).endswith("   reward 12.5   lag 0.4")


def test_the_mean_cost_is_a_column_of_the_status_if_there_is_one():
    costly = policy()
    costly.episodes.add(EpisodeReport(0, 0.78, 96, 0.78, {"cost": 2.5}))
    assert StatusLine().text(status(costly)).endswith("  reward 0.78  cost 2.50")


@pytest.mark.parametrize("objective", [None, -12.25])
def test_a_line_never_exceeds_its_width(objective):
    wide = policy(-1234.5, episodes=99, objective=objective)
    widest = status(wide, total_frames=999_999_999, target=10**9, fps=99_999.0, seconds_left=1e5)
    assert len(StatusLine().text(widest)) <= MAX_WIDTH


def test_first_episodes_are_marked_because_short_ones_end_first():
    assert "reward 0.78 (first 7)" in StatusLine().text(status(policy(episodes=7)))
    assert "first" not in StatusLine().text(status(policy(episodes=100)))
    many_agents = PolicyProgress(stats_avg=100, num_agents=1000)
    for _ in range(999):
        many_agents.episodes.add(EpisodeReport(0, 0.78, 96, 0.78, {}))
    assert "reward 0.78 (first 100)" in StatusLine().text(status(many_agents))
    many_agents.episodes.add(EpisodeReport(0, 0.78, 96, 0.78, {}))
    assert "first" not in StatusLine().text(status(many_agents))


def test_before_the_first_batch_the_samples_are_shown():
    text = StatusLine().text(status(policy(None), new_frames=0, num_sampled=3072, fps=math.nan))
    assert text == "collecting the first batch: 3,072 of 4,096 samples"
    text = StatusLine().text(status(policy(None), new_frames=0, num_sampled=0, fps=math.nan))
    assert text == "collecting the first batch of 4,096 samples"


def test_unknown_values_are_left_out():
    unknown = {"target": None, "share_done": None, "seconds_left": None, "fps": math.nan}
    assert (
        StatusLine().text(status(policy(None), total_frames=512, **unknown))
        == "512   no episode ended yet   lag 0.4"
    )


def test_several_policies_show_the_best_in_the_line_and_at_most_eight_in_rows():
    policies = [policy(reward / 10, frames=1000 * reward) for reward in range(12)]
    assert StatusLine().text(status(*policies)).endswith("best reward 1.10 (policy 11)")
    rows = policy_rows(policies)
    assert len(rows) == 8
    assert rows[0] == "policy 0   0      reward 0      lag 0.4"
    assert rows[6] == "policy 6   6.0k   reward 0.60   lag 0.4"
    assert rows[-1] == "5 more: reward 0.70 to 1.10"


@pytest.mark.parametrize(
    "form, texts",
    [
        (
            short_count,
            {0: "0", 999: "999", 4096: "4.0k", 20_480: "20k", 1_820_000: "1.82M", 10**9: "1.00G"},
        ),
        (
            short_number,
            {0.0: "0", 0.784: "0.78", -1.6: "-1.60", 12.34: "12.3", 1754.0: "1,754", -2e39: "-2.00e+39"},
        ),
        (short_number, {0.0031: "0.0031"}),
        (clock_text, {9: "0:09", 292: "4:52", 3900: "1h05m", 95_000: "26h23m", 183_600: "2d03h"}),
        (duration_text, {0: "0 s", 59.4: "59 s", 59.6: "1 min 00 s", 61: "1 min 01 s", 3600: "1 h 00 min"}),
        (duration_text, {7505: "2 h 05 min", 86400 * 2 + 3600 * 3: "2 d 03 h"}),
    ],
)
def test_counts_numbers_and_durations_are_short(form, texts):
    assert {value: form(value) for value in texts} == texts


def trained(reward: float, episodes: int = 100) -> PolicyProgress:
    made = PolicyProgress(stats_avg=100)
    made.trained(TrainReport(0, 1, 450_000, 0, None))
    made.best_reward, made.best_at = 0.8, 412_000
    for _ in range(episodes):
        made.episodes.add(EpisodeReport(0, reward, 96, reward, {}))
    return made


def summary(*policies: PolicyProgress, total_frames: int = 450_000, incidents=None) -> SimpleNamespace:
    """Returns what the summaries read of a RunProgress."""
    counts = {"new_frames": 450_000, "total_frames": total_frames, "share_done": 0.317, "seconds": 372.0}
    return SimpleNamespace(policies=policies, incidents=incidents or {}, mean_fps=lambda: 1224.0, **counts)


def test_the_end_says_whether_the_run_is_finished_how_fast_and_good_it_was_and_how_often_it_was_healed():
    healed = {"worker_restarts": 2, "env_rebuilds": 1000, "broken_numbers": 0}
    assert summary_lines(summary(trained(0.78), incidents=healed), "finished") == [
        "finished: 450,000 env frames in 6 min 12 s, 1,224 FPS on average",
        "reward 0.78; best mean reward 0.80 at 412k frames",
        "incidents: 2 worker restarts, 1,000 env rebuilds; see sf_log.txt",
    ]


def test_the_end_says_that_every_reward_was_zero():
    none, some = trained(0.0), trained(0.0)
    some.episodes.add(EpisodeReport(0, 1.0, 96, 1.0, {}))
    for _ in range(100):
        some.episodes.add(EpisodeReport(0, 0.0, 96, 0.0, {}))  # the reward is no longer among the last ones
    assert "every episode had a reward of 0" in summary_lines(summary(none), "finished")[-1]
    for others in ((some,), (none, some), (trained(0.0, episodes=0),)):
        assert not any("reward of 0" in line for line in summary_lines(summary(*others), "finished"))


@pytest.mark.parametrize("outcome", ["stopped", "failed"])
def test_a_run_that_is_not_finished_says_how_far_it_has_come_with_the_frames_of_earlier_runs(outcome):
    first, *_ = summary_lines(summary(trained(0.78), total_frames=900_000), outcome)
    assert first.startswith(f"{outcome} at 31 %: 450,000 env frames (900,000 in all) in ")


def test_of_several_policies_each_has_a_row_and_the_best_is_named():
    _, *rows, best = summary_lines(summary(trained(0.1), trained(0.78), trained(0.3)), "finished")
    assert [row.split()[:5] for row in rows][1] == ["policy", "1", "450k", "reward", "0.78"]
    assert (
        len(rows) == 3 and best == "the best is policy 1: reward 0.78; best mean reward 0.80 at 412k frames"
    )
