"""Runs a command: python -m sample_factory COMMAND [flags]. Without one, lists the commands."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sample_factory.config.command import Command
from sample_factory.launch.command_line import main_of
from sample_factory.launch.exit_codes import run_command
from sample_factory.runtime.registry import resolve

# Command -> its declaration, which lies beside its code, or its main function; and what the command does.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "train": (
        "sample_factory.training.command:COMMAND",
        "train agents; the same command resumes a run that was stopped",
    ),
    "enjoy": ("sample_factory.hub:ENJOY", "watch a trained policy, or write a video of it"),
    "eval": (
        "sample_factory.evaluation.evaluate:EVAL",
        "measure checkpoints over many episodes, with many envs in parallel",
    ),
    "check": (
        "sample_factory.evaluation.check:COMMAND",
        "play an env with random actions, and report what it does and what is wrong with it",
    ),
    "record": (
        "sample_factory.imitation.record:RECORD",
        "record games of a trained policy as a Minari data set",
    ),
    "export": (
        "sample_factory.exporting:EXPORT",
        "write a trained policy as an ONNX file, which plays without this package and torch",
    ),
    "plot_curves": (
        "sample_factory.plotting.plot_curves:COMMAND",
        "draw the learning curves of one or several runs",
    ),
    "plot_population": (
        "sample_factory.plotting.plot_population:COMMAND",
        "draw objective and settings of every policy of a population (--with_pbt)",
    ),
    "run": (
        "sample_factory.runner.run:COMMAND",
        "run a grid of experiments: as processes, on Slurm or on Ray",
    ),
    "search": (
        "sample_factory.runner.search:COMMAND",
        "search the flags that learn best, with Optuna: as processes, on Slurm or on Ray",
    ),
    "tb": (
        "sample_factory.runner.start_tensorboard:TB",
        "start TensorBoard on the experiments that match masks",
    ),
    "match": (
        "sample_factory.evaluation.match_command:COMMAND",
        "let two policies play against each other, and report which one is better",
    ),
    "imitate": (
        "sample_factory.imitation.command:COMMAND",
        "train a policy to play like an env's bots, or as in recorded games, as a start for training",
    ),
    "play_doom": (
        "sample_factory.families.doom:PLAY_DOOM",
        "play Doom yourself, alone or in a match with trained agents",
    ),
    "push_to_hub": (
        "sample_factory.hub.push_to_hub:main",
        "push an experiment to the Hugging Face Hub, with results and a video",
    ),
    "load_from_hub": (
        "sample_factory.hub.load_from_hub:COMMAND",
        "load an experiment from the Hugging Face Hub",
    ),
    "convert": ("sample_factory.hub.convert:COMMAND", "convert an experiment of Sample Factory 1 or 2"),
    "benchmark": (
        "sample_factory.benchmarking.benchmark_flags:BENCHMARK",
        "measure the speed of simulation, sampling and training, and advise which flag to change",
    ),
    "dummy_sampler": (
        "sample_factory.benchmarking.random_sampler:DUMMY_SAMPLER",
        "step envs with random actions, and report the speed",
    ),
    "run_algorithm": (
        "sample_factory.version_2.run_algorithm:main",
        "train, or step with random actions, by the command of version 1",
    ),
}
FIRST_STEPS = ("train", "enjoy", "plot_curves")  # commands whose examples show how to begin


def dispatch(argv: Sequence[str], env: Callable[..., Any] | None = None) -> int:
    """Runs the command that the first argument names; returns its exit code.

    Without arguments, prints the list of commands. Raises ConfigError for an unknown command.

    env: a class of envs or a function that makes one, in place of --env.
    """
    from sample_factory import __version__
    from sample_factory.config.flags import ConfigError
    from sample_factory.config.help import overview, show
    from sample_factory.runtime.registry import did_you_mean

    if not argv or argv[0] in ("-h", "--help", "--help=all", "help"):
        what = {name: about for name, (_, about) in COMMANDS.items()}
        show(overview(__version__, what, list(map(declaration, FIRST_STEPS))))
        return 0
    if argv[0] == "--version":
        show(__version__)
        return 0
    name = argv[0]
    if name.startswith("-"):
        raise ConfigError(f"a command is missing before {name}, e.g. python -m sample_factory train {name}")
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS) or "."
        raise ConfigError(f"unknown command {name}{hint} Known: {', '.join(COMMANDS)}")
    return command(name)(argv[1:], env)


def declaration(name: str) -> Command:
    """Imports the module of a command and returns the command's declaration: its texts and flags."""
    found = resolve(COMMANDS[name][0])
    return found if isinstance(found, Command) else vars(sys.modules[found.__module__])["COMMAND"]


def command(name: str) -> Callable[..., int]:
    """Returns the function `main(argv=None, env=None)` of a command, which returns an exit code."""
    found = resolve(COMMANDS[name][0])
    return main_of(found) if isinstance(found, Command) else found


def main(argv: Sequence[str] | None = None, env: Callable[..., Any] | None = None) -> int:
    """Runs the command that the first argument names; returns its exit code, 2 for an unknown command. A
    user's script gets all commands by `sys.exit(main(env=MyEnv))`.

    argv: the arguments; None: the arguments of this process.
    env: a class of envs or a function that makes one, in place of --env.
    """
    return run_command(functools.partial(dispatch, env=env), argv)


if __name__ == "__main__":
    sys.exit(main())
