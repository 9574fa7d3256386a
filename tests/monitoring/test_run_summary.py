from types import SimpleNamespace

from sample_factory.exchange.messages import EpisodeReport, TrainReport
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.run_summary import short_summary_lines, summary_lines


def policy(reward: float, episodes: int = 100) -> PolicyProgress:
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


def test_the_end_says_whether_the_run_is_finished_and_how_fast_and_good_it_was():
    assert short_summary_lines(summary(policy(0.78)), "finished") == [
        "finished: 450k frames in 6 min 12 s, 1,224 FPS on average",
        "reward 0.78; best mean reward 0.80 at 412k frames",
    ]
    assert summary_lines(summary(policy(0.78)), "finished")[1] == (
        "Policy 0: 450,000 env frames, reward 0.780, length 96 frames (100 episodes); best mean reward 0.80 "
        "at 412k frames"
    )


def test_a_run_that_is_not_finished_says_how_far_it_has_come():
    assert summary_lines(summary(policy(0.78)), "stopped")[0].startswith(
        "stopped at 31 %: 450,000 env frames"
    )
    assert short_summary_lines(summary(policy(0.78)), "failed")[0].startswith("failed at 31 %: 450k frames")


def test_frames_of_earlier_runs_are_added_up():
    assert (
        "450k frames (900k in all) in"
        in short_summary_lines(summary(policy(0.7), total_frames=900_000), "")[0]
    )


def test_of_several_policies_the_best_is_named():
    lines = short_summary_lines(summary(policy(0.1), policy(0.78), policy(0.3)), "finished")
    assert lines[1] == "the best is policy 1: reward 0.78; best mean reward 0.80 at 412k frames"


def test_incidents_are_counted():
    found = summary(policy(0.78), incidents={"worker_restarts": 2, "env_rebuilds": 1000, "broken_numbers": 0})
    line = "incidents: 2 worker restarts, 1,000 env rebuilds; see sf_log.txt"
    assert line in summary_lines(found, "finished") and line in short_summary_lines(found, "finished")
