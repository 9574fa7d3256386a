"""The sections of monitoring a run and of the commands that play with its policies."""

from dataclasses import dataclass

from sample_factory.config.flags import NEVER, flag


@dataclass(frozen=True)
class MonitoringFlags:
    """Stopping, checkpoints, reports."""

    train_for_env_steps: int = flag(
        NEVER, "stop when every policy has trained on this many env frames (frameskip counted)", at_least=1
    )
    train_for_seconds: int = flag(NEVER, "stop after this many seconds of training in this run", at_least=1)
    save_every_sec: int = flag(120, "seconds between checkpoints", at_least=1)
    keep_checkpoints: int = flag(3, "number of newest checkpoints that are kept", at_least=1)
    save_milestones_sec: int = flag(
        -1, "seconds between checkpoints that are never deleted; -1: none", at_least=-1
    )
    save_best_every_sec: int = flag(5, "seconds between tests for a new best policy", at_least=1)
    save_best_metric: str = flag("reward", "statistic of the episodes by which the best policy is found")
    save_best_after: int = flag(
        100_000, "env frames before the search for the best policy starts", at_least=0
    )
    load_checkpoint_kind: str = flag("latest", "kind of checkpoint to load", choices=("latest", "best"))
    stats_avg: int = flag(100, "number of episodes in running averages", at_least=1, at_most=1_000_000)
    status_interval: float = flag(
        5.0, "seconds between log lines about progress and speed", at_least=0.1, at_most=86_400
    )
    experiment_summaries_interval: int = flag(20, "seconds between summaries of the experiment", at_least=1)
    flush_summaries_interval: int = flag(30, "seconds between flushes of TensorBoard files", at_least=1)
    summaries_use_frameskip: bool = flag(True, "report env frames (frameskip counted) rather than env steps")
    heartbeat_reporting_interval: int = flag(
        180,
        "a component without progress for this many seconds is stuck: its stacks are printed; a rollout "
        "worker is replaced, any other component ends the run",
        at_least=3,
    )
    log_to_file: bool = flag(True, "write sf_log.txt in the experiment folder")
    figures_file: str | None = flag(
        None,
        "file for the figures of the run, to be read by programs: JSON lines, one object every "
        "status_interval; sample_factory/monitoring/figures.py describes the fields",
    )


@dataclass(frozen=True)
class EvaluationFlags:
    """Watching a trained policy."""

    fps: int = flag(0, "frames shown per second; 0: as fast as possible", at_least=0, at_most=10_000)
    render_action_repeat: int | None = flag(
        None, "number of times that each action is repeated; None: env_frameskip", at_least=1, at_most=10_000
    )
    no_render: bool = flag(False, "do not open a window")
    policy_index: tuple[int, ...] = flag(
        (0,), "id of the policy to play; or several, one for each agent", at_least=0, at_most=1000
    )
    checkpoint: tuple[str, ...] = flag(
        (),
        "checkpoint of that policy: latest, best, milestone:VERSION or the path of a file; or several, one "
        "for each agent; empty: --load_checkpoint_kind",
    )
    eval_deterministic: bool = flag(
        False, "take the most likely action (the mean of a Gaussian) instead of sampling"
    )
    continuous_actions_sample: bool = flag(True, "sample continuous actions; False takes their mean")
    save_video: bool = flag(False, "write an mp4 into the experiment folder")
    video_frames: int = flag(-1, "maximum number of frames in the video; -1: no limit", at_least=-1)
    video_name: str = flag("replay.mp4", "file name of the video")
    max_num_frames: int = flag(NEVER, "stop after this many env frames", at_least=1)
    max_num_episodes: int = flag(NEVER, "stop after this many episodes", at_least=1)
