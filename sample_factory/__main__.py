"""Runs a command: python -m sample_factory COMMAND [flags]. Without one, lists the commands."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from sample_factory.launch.exit_codes import run_command

# The module of each command below `sample_factory`, and what the command does. The module has a `main`, and a
# COMMAND: the declaration, which may be imported from where the code is.
COMMANDS: Mapping[str, str] = {
    "train": "train agents; the same command resumes a run that was stopped",
    "enjoy": "watch a trained policy, or write a video of it",
    "eval": "measure checkpoints over many episodes, with many envs in parallel",
    "evaluation.check": "play an env with random actions, and report what it does and what is wrong with it",
    "record": "record games of a trained policy as a Minari data set",
    "export": "write a trained policy as an ONNX file, which plays without this package and torch",
    "plotting.plot_curves": "draw the learning curves of one or several runs",
    "plotting.plot_population": "draw objective and settings of every policy of a population (--with_pbt)",
    "runner.run": "run a grid of experiments: as processes, on Slurm or on Ray",
    "runner.search": "search the flags that learn best, with Optuna: as processes, on Slurm or on Ray",
    "tb": "start TensorBoard on the experiments that match masks",
    "match": "let two policies play against each other, and report which one is better",
    "imitate": "train a policy to play like an env's bots, or as in recorded games, as a start for training",
    "play_doom": "play Doom yourself, alone or in a match with trained agents",
    "hub.push_to_hub": "push an experiment to the Hugging Face Hub, with results and a video",
    "hub.load_from_hub": "load an experiment from the Hugging Face Hub",
    "hub.convert": "convert an experiment of Sample Factory 1 or 2",
    "benchmark": "measure the speed of simulation, sampling and training, and advise which flag to change",
    "dummy_sampler": "step envs with random actions, and report the speed",
    "run_algorithm": "train, or step with random actions, by the command of version 1",
}
FIRST_STEPS = ("train", "enjoy", "plotting.plot_curves")  # commands whose examples show how to begin


def dispatch(argv: Sequence[str]) -> int:
    """Runs the command that the first argument names; returns its exit code. Raises ConfigError."""
    from sample_factory import __version__
    from sample_factory.config.flags import ConfigError
    from sample_factory.config.help import overview, show
    from sample_factory.runtime.registry import did_you_mean

    modules = {module.rpartition(".")[2]: module for module in COMMANDS}
    if not argv or argv[0] in ("-h", "--help", "--help=all", "help"):
        what = {name: COMMANDS[module] for name, module in modules.items()}
        show(overview(__version__, what, [_module(name).COMMAND for name in FIRST_STEPS]))
        return 0
    if argv[0] == "--version":
        show(__version__)
        return 0
    name = argv[0].rpartition(".")[2]  # also where the package is named: plotting.plot_curves
    if name.startswith("-"):
        raise ConfigError(f"a command is missing before {name}, e.g. python -m sample_factory train {name}")
    if name not in modules:
        raise ConfigError(
            f"unknown command {name}{did_you_mean(name, modules) or '.'} Known: {', '.join(modules)}"
        )
    code: int = _module(modules[name]).main(argv[1:])
    return code


def _module(name: str) -> Any:
    return importlib.import_module(f"sample_factory.{name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that the first argument names; returns its exit code, 2 if there is none."""
    return run_command(dispatch, argv)


if __name__ == "__main__":
    sys.exit(main())
