"""The sections of monitoring a run and of the commands that play with its policies."""

import functools
from dataclasses import dataclass

from sample_factory.config.flags import NEVER, AtLeast, Not, flag

EVALUATED = "eval_"  # before the name of a statistic in --save_best_metric
_wandb_flag = functools.partial(flag, only_with={"with_wandb": (True,)})
_repeated_flag = functools.partial(flag, only_with={"eval_every_env_steps": Not((0,))})


@dataclass(frozen=True)
class MonitoringFlags:
    """Stopping, checkpoints, reports."""

    train_for_env_steps: int = flag(
        NEVER,
        "stop when every policy has trained on this many env frames (steps times frameskip)",
        at_least=1,
    )
    train_for_seconds: int = flag(
        NEVER, "stop after this many seconds of training, counted from this start", at_least=1
    )
    save_every_sec: int = flag(120, "seconds between checkpoints, from which a run is resumed", at_least=1)
    keep_checkpoints: int = flag(3, "number of checkpoints to keep: the newest ones", at_least=1)
    save_milestones_sec: int = flag(
        -1, "seconds between milestones, checkpoints that are never deleted; -1: none", at_least=-1
    )
    save_best_every_sec: int = flag(5, "seconds between searches for a new best policy", at_least=1)
    save_best_metric: str = flag(
        "reward",
        "statistic that the best policy is chosen by; eval_NAME: its mean in evaluations during training",
        metavar="NAME",
        only_with={"train_for_env_steps": AtLeast(("save_best_after",))},
    )
    save_best_after: int = flag(
        100_000, "env frames before the search for the best policy starts", at_least=0
    )
    load_checkpoint_kind: str = flag(
        "latest",
        "checkpoint to load: the latest, or the one with the best episodes",
        choices=("latest", "best"),
    )
    eval_every_env_steps: int = flag(
        0,
        "play --eval_episodes whenever a policy has trained on this many more env frames; 0: never",
        at_least=0,
        only_with={"train_for_env_steps": AtLeast(("eval_every_env_steps",))},
    )
    eval_flags: str = _repeated_flag(
        "",
        "flags in which evaluations during training differ, in one text, e.g. '--eval_deterministic=True'",
        metavar="TEXT",
    )
    eval_timeout_seconds: float = _repeated_flag(
        3600.0, "seconds after which an evaluation during training fails: some episodes never end", at_least=1
    )
    stats_avg: int = flag(
        100, "number of episodes over which rewards and lengths are averaged", between=(1, 1_000_000)
    )
    status_interval: float = flag(5.0, "seconds between reports of progress and speed", between=(0.1, 86_400))
    experiment_summaries_interval: int = flag(20, "seconds between summaries for TensorBoard", at_least=1)
    flush_summaries_interval: int = flag(
        30, "seconds between writes of the TensorBoard files to the disk", at_least=1
    )
    summaries_use_frameskip: bool = flag(
        True, "report progress in env frames (frameskip counted) rather than in env steps"
    )
    heartbeat_reporting_interval: int = flag(
        180,
        "seconds without progress after which a process counts as stuck: a worker is replaced, any other one "
        "ends the run",
        at_least=3,
        only_with=({"serial_mode": (False,)}, {"eval_every_env_steps": Not((0,))}),
    )
    log_to_file: bool = flag(True, "write the log to sf_log.txt in the folder of the run")
    figures_file: str | None = flag(
        None,
        "file for the figures of the run as JSON lines; monitoring/figures.py describes the fields",
        is_output=True,
    )
    jsonl_summaries: bool = flag(
        False, "also write the summaries as JSON lines: summaries.jsonl in the folder of the run"
    )
    with_wandb: bool = flag(
        False,
        "also send the summaries to Weights & Biases, after `wandb login` (offline: WANDB_MODE=offline)",
    )
    wandb_user: str | None = _wandb_flag(
        None, "user or team on W&B; your default one if left out", metavar="NAME"
    )
    wandb_project: str = _wandb_flag("sample_factory", "project on W&B", metavar="NAME")
    wandb_group: str | None = _wandb_flag(
        None, "group of runs on W&B; the name of the env if left out", metavar="NAME"
    )
    wandb_job_type: str = _wandb_flag("SF", "type of the job on W&B", metavar="NAME")
    wandb_tags: tuple[str, ...] = _wandb_flag((), "tags of the run on W&B")
    wandb_dir: str | None = _wandb_flag(
        None, "folder for the files of W&B; the current one if left out", metavar="FOLDER"
    )


@dataclass(frozen=True)
class EvaluationFlags:
    """Evaluating trained policies."""

    fps: int = flag(
        0,
        "env frames shown per second; 0: as the env says",
        between=(0, 10_000),
        only_with=({"save_video": (True,)}, {"no_render": (False,)}),
    )
    render_action_repeat: int | None = flag(
        None, "how often each action is repeated; --env_frameskip if left out", between=(1, 10_000)
    )
    no_render: bool = flag(False, "open no window")
    policy_index: tuple[int, ...] = flag(
        (0,), "policy to play, in a run with several; or numbers, one for each agent", between=(0, 1000)
    )
    checkpoint: tuple[str, ...] = flag(
        (),
        "checkpoint to play: latest, best, milestone:VERSION or a file; or several, one for each agent; for "
        "`eval` also milestones, which means all of them; "
        "--load_checkpoint_kind if left out",
        metavar="FILE",
    )
    eval_deterministic: bool = _repeated_flag(
        False, "take the most likely action (the mean of continuous ones), not a random one"
    )
    continuous_actions_sample: bool = flag(
        True,
        "draw continuous actions at random; False: take their mean",
        only_with={"eval_every_env_steps": Not((0,)), "actions": ("continuous",)},
    )
    save_video: bool = flag(False, "write a video (mp4) into the folder of the run")
    overlay: bool = flag(
        False,
        "write the policy, the reward and the action on videos and windows",
        only_with=({"save_video": (True,)}, {"no_render": (False,)}),
    )
    video_frames: int = flag(
        -1,
        "largest number of frames in the video; -1: no limit",
        at_least=-1,
        only_with={"save_video": (True,)},
    )
    video_name: str = flag(
        "replay.mp4",
        "file name of the video; numbered if it exists",
        metavar="FILE",
        only_with={"save_video": (True,)},
    )
    max_num_frames: int = flag(NEVER, "stop after this many env frames", at_least=1)
    max_num_episodes: int = flag(NEVER, "stop after this many episodes", at_least=1)
    eval_episodes: int = _repeated_flag(
        100,
        "number of episodes, in each level, that `eval` plays with each checkpoint, and an evaluation during "
        "training",
        aliases=("sample_env_episodes",),
        between=(1, 10_000_000),
    )
    eval_env_frameskip: int | None = _repeated_flag(
        None,
        "frameskip of the env in evaluations; actions repeat, so that the policy acts as in training",
        between=(1, 10_000),
    )

    @property
    def has_limit(self) -> bool:
        """Whether a number of episodes or of frames ends the evaluation."""
        return min(self.max_num_episodes, self.max_num_frames) < NEVER
