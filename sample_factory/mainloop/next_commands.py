"""Commands to use after a run: to watch its policy, continue it and see its curves."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER
from sample_factory.config.sections import RunFlags
from sample_factory.envs.env_registry import is_found_by_all_commands
from sample_factory.envs.packages import is_installed
from sample_factory.models.network_registry import are_found_without_script


def next_commands(
    config: Config, is_done: bool, least_frames: int = 0, environment: Mapping[str, str] = os.environ
) -> list[tuple[str, str]]:
    """Returns (purpose, command) pairs to log at the end of a run, such as ("watch", "python -m ...").

    is_done: whether the run has reached a limit of its flags.
    least_frames: env frames of the policy with the fewest. The command to continue a finished run doubles the
        larger of this number and --train_for_env_steps, since the last iteration may go far beyond the flag.
    """
    if config.sampling.sampler_only or config.sampling.benchmark:
        return []
    flags = _flags_to_watch(config, environment)
    watch = f"python -m sample_factory.enjoy {shlex.join(flags)}"
    if not (are_found_without_script(config.model) and is_found_by_all_commands(config.env_name)):
        watch = f"sample_factory.enjoy.main({flags}) in the program that registers env and network"
    folder = shlex.quote(relative_path(config.experiment_dir))
    commands = [("watch", watch), ("continue", _continue(config, is_done, least_frames))]
    if is_installed("matplotlib"):  # of the extra `plot`
        commands.append(("curves", f"python -m sample_factory plot_curves {folder} --out=curves.png"))
    return [*commands, ("tensorboard", f"tensorboard --logdir={folder} --load_fast=false")]


def _flags_to_watch(config: Config, environment: Mapping[str, str]) -> list[str]:
    run = config.run
    flags = [f"--experiment={run.experiment}"]
    if run.train_dir != RunFlags().train_dir:
        flags.append(f"--train_dir={run.train_dir}")
    if run.experiments_root:
        flags.append(f"--experiments_root={run.experiments_root}")
    has_display = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    if not has_display:
        flags += ["--save_video", "--no_render"]
    return flags


def _continue(config: Config, is_done: bool, least_frames: int) -> str:
    """Returns a text that says how to continue this run: by the same command without --restart_behavior, and
    with a larger --train_for_env_steps if the limit is reached."""
    limit = config.monitoring.train_for_env_steps
    changes = []
    if config.run.restart_behavior != "resume":
        changes.append("without --restart_behavior")
    if is_done and limit < NEVER:
        changes.append(f"with --train_for_env_steps={2 * max(limit, least_frames)}")
    return " ".join(["the same command", *changes])


def relative_path(folder: Path) -> str:
    """Returns the path relative to the working directory if the folder is inside, else the absolute path."""
    try:
        return str(folder.relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):  # not inside; the working directory was deleted during the run
        return str(folder)
