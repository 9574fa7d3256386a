"""Commands to use after a run, ready to copy: to watch its policy, continue it and see its curves."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from sample_factory.config.config import Config
from sample_factory.config.flags import NEVER
from sample_factory.config.sections import RunFlags
from sample_factory.envs.env_registry import is_found_by_all_commands
from sample_factory.envs.packages import is_installed
from sample_factory.models.network_registry import are_found_without_script

INTERPRETER_FLAGS_WITH_VALUE = ("-W", "-X")


def next_commands(
    config: Config,
    command_line: Sequence[str],
    is_done: bool,
    least_frames: int = 0,
    environment: Mapping[str, str] = os.environ,
) -> list[tuple[str, str]]:
    """Returns (purpose, command) pairs to log at the end of a run, such as ("watch", "python -m ...").

    Leaves out commands that may not work after a user's own script, and plots if matplotlib is missing.

    command_line: the command line of this process, with the interpreter (`sys.orig_argv`).
    is_done: whether the run has reached a limit of its flags.
    least_frames: env frames of the policy with the fewest; a whole iteration may go far beyond the limit.
    """
    if config.sampling.sampler_only or config.sampling.benchmark:
        return []
    commands = []
    place, program = _program(command_line)
    is_script = program.endswith(".py")
    flags = _flags_to_watch(config, environment)
    is_console_script = os.path.basename(program).startswith("sample-factory")
    words = command_line[1 : place + 1]
    if program.split(".")[0] == "sample_factory" or is_console_script:
        commands.append(("watch", f"python -m sample_factory.enjoy {shlex.join(flags)}"))
    elif is_script and command_line[place + 1 : place + 2] == ["train"] and _mentions_enjoy(program):
        commands.append(("watch", f"python {shlex.join([*words, 'enjoy', *flags])}"))
    elif is_script and are_found_without_script(config.model) and is_found_by_all_commands(config.env_name):
        commands.append(("watch", f"python -m sample_factory.enjoy {shlex.join(flags)}"))
    elif is_script:  # only the script registers the env or a network
        call = f"sample_factory.enjoy.main({flags})"
        commands.append(("watch", f"{call}, called in {program} in place of the training"))
    typed = _continue(config, command_line, is_done, least_frames)
    if (commands or is_script) and typed is not None:
        commands.append(("continue", typed))
    folder = shlex.quote(relative_path(config.experiment_dir))
    if is_installed("matplotlib"):  # of the extra `plot`
        commands.append(("curves", f"python -m sample_factory plot_curves {folder} --out=curves.png"))
    return [*commands, ("tensorboard", f"tensorboard --logdir={folder} --load_fast=false")]


def _program(command_line: Sequence[str]) -> tuple[int, str]:
    """Returns the index and the name of the module or script that a command line runs; 0 and "" if it runs
    none."""
    place = 1
    while place < len(command_line):
        argument = command_line[place]
        if argument == "-c":
            break
        if argument == "-m":
            return place + 1, "".join(command_line[place + 1 : place + 2])
        if not argument.startswith("-"):
            return place, argument
        place += 2 if argument in INTERPRETER_FLAGS_WITH_VALUE else 1
    return 0, ""


def _mentions_enjoy(script: str) -> bool:
    """Returns whether the text of a script contains "enjoy": if it takes the argument `train`, it probably
    takes `enjoy` too, as our examples do."""
    try:
        return "enjoy" in Path(script).read_text(errors="replace")
    except OSError:  # e.g. the program has changed its working directory
        return False


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


def _continue(config: Config, command_line: Sequence[str], is_done: bool, least_frames: int) -> str | None:
    """Returns the command that continues this run: the same command line without --restart_behavior, and with
    a larger --train_for_env_steps if the limit is reached. None if the command would have to change flags
    that the user's script sets itself."""
    arguments = list(command_line[1:])
    limit = config.monitoring.train_for_env_steps
    needs_limit = is_done and limit < NEVER
    reads_flags = arguments[len(arguments) - len(config.argv) :] == list(config.argv)
    if not reads_flags and (needs_limit or config.run.restart_behavior != "resume"):
        return None
    arguments = _without(arguments, "--restart_behavior")
    if needs_limit:
        larger = f"--train_for_env_steps={2 * max(limit, least_frames)}"
        arguments = [*_without(arguments, "--train_for_env_steps"), larger]
    return f"python {shlex.join(arguments)}"


def _without(arguments: Sequence[str], flag: str) -> list[str]:
    """Returns the arguments without a flag and its value, given as "--flag=value" or as two arguments."""
    kept = []
    is_value = False
    for argument in arguments:
        if not is_value and argument != flag and not argument.startswith(f"{flag}="):
            kept.append(argument)
        is_value = argument == flag
    return kept


def relative_path(folder: Path) -> str:
    """Returns the path relative to the working directory if the folder is inside, else the absolute path."""
    try:
        return str(folder.relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):  # not inside; the working directory was deleted during the run
        return str(folder)
