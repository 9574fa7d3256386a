"""Flags and defaults of the VizDoom family."""

from dataclasses import dataclass
from typing import Any

from sample_factory.config.flags import flag


@dataclass(frozen=True)
class DoomFlags:
    """The command-line flags that only the `doom_` envs have."""

    num_agents: int = flag(
        -1, "learning players in a multiplayer game; 0 or less: as the env says", at_least=-1, at_most=16
    )
    num_humans: int = flag(
        0, "people for whom the match of enjoy waits; see play_doom", at_least=0, at_most=16
    )
    num_bots: int = flag(-1, "scripted opponents; less than 0: as the env says", at_least=-1, at_most=16)
    start_bot_difficulty: int | None = flag(
        None, "how good the bots are at the start, 0 to 150", at_least=0, at_most=150
    )
    timelimit: float | None = flag(
        None, "length of a match in minutes; None: as the env says", above=0, at_most=100_000
    )
    res_w: int = flag(128, "width of the observation in pixels", at_least=1, at_most=4096)
    res_h: int = flag(72, "height of the observation in pixels", at_least=1, at_most=4096)
    wide_aspect_ratio: bool = flag(False, "the engine renders 256x144 instead of 160x120")
    doom_scenarios_dir: str | None = flag(
        None, "folder in which .wad files are looked for first", is_folder=True
    )


CONTINUOUS_ENVS = ("doom_dm", "doom_dwango5")


def doom_defaults(env_name: str) -> dict[str, Any]:
    """Values of other flags that suit these envs better than the general defaults."""
    return {
        "encoder_custom": "vizdoom",
        "ppo_clip_value": 0.2,
        "learning_rate": 5e-4,
        "obs_subtract_mean": 0.0,
        "obs_scale": 255.0,
        "env_frameskip": 4,
        "fps": 35,
        # The distance to the uniform distribution exists for discrete actions only.
        "exploration_loss": "entropy" if env_name in CONTINUOUS_ENVS else "symmetric_kl",
        "exploration_loss_coeff": 0.001,
    }
