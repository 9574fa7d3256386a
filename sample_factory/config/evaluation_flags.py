"""The section of playing with trained policies."""

from dataclasses import dataclass

from sample_factory.config.flags import NEVER, flag


@dataclass(frozen=True)
class EvaluationFlags:
    """Watching a trained policy."""

    fps: int = flag(0, "frames shown per second; 0: as fast as possible", at_least=0, at_most=10_000)
    render_action_repeat: int | None = flag(
        None, "repeat each action this often; None: env_frameskip", at_least=1, at_most=10_000
    )
    no_render: bool = flag(False, "do not draw")
    policy_index: tuple[int, ...] = flag(
        (0,), "which policy of the population; or several, one for each agent", at_least=0, at_most=1000
    )
    checkpoint: tuple[str, ...] = flag(
        (),
        "which of its checkpoints: latest, best, milestone:VERSION or the path of a file; or several, one "
        "for each agent; empty: --load_checkpoint_kind",
    )
    eval_deterministic: bool = flag(False, "most likely action (mean of a Gaussian) instead of a sample")
    continuous_actions_sample: bool = flag(True, "sample continuous actions; False takes their mean")
    save_video: bool = flag(False, "write an mp4 into the experiment folder")
    video_frames: int = flag(-1, "most frames in the video; -1: all of them", at_least=-1)
    video_name: str = flag("replay.mp4", "file name of the video")
    max_num_frames: int = flag(NEVER, "stop after this many env frames", at_least=1)
    max_num_episodes: int = flag(NEVER, "stop after this many episodes", at_least=1)
