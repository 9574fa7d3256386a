"""Trains agents: python -m sample_factory.train --env=doom_battle --experiment=my_experiment"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sample_factory.config.commands import TRAIN, Command
from sample_factory.launch.exit_codes import FAILED, run_command

if TYPE_CHECKING:
    from sample_factory.config.config import Config
    from sample_factory.mainloop.run_result import RunResult


def train(argv: Sequence[str], command: Command = TRAIN) -> int:
    """Runs the experiment that the flags describe; returns its exit code. command: what the help says."""
    from sample_factory.config.parsing import parse_config
    from sample_factory.envs.env_registry import resolve_family

    config = parse_config(argv, resolve_family, command=command)
    return exit_code(train_config(config))


def train_config(config: "Config", keeps_process: bool = False) -> "RunResult":
    """Trains until the run is done, is stopped by a signal, or has failed; returns the result, and writes it
    to the experiment folder.

    keeps_process: a second Ctrl+C raises KeyboardInterrupt instead of ending this process.

    Raises as `plan_training` and `run_training`.
    """
    from sample_factory.envs.env_registry import resolve_family
    from sample_factory.evaluation.during_training import Evaluations
    from sample_factory.evaluation.measure import plan_evaluation
    from sample_factory.launch.run import plan_training, run_training
    from sample_factory.launch.start_from import describe_last_checkpoints
    from sample_factory.mainloop.run_result import RunResult, write_result
    from sample_factory.runtime.supervisor import StopSignals

    family = resolve_family(config.env_name)
    with StopSignals(lambda: describe_last_checkpoints(config), keeps_process) as signals:
        planned = plan_training(config, family, plan_evaluation, signals)
        if isinstance(planned, RunResult):
            result = planned
        else:
            result = run_training(planned, Evaluations, "sample_factory.cluster.ingest:Ingest", signals)
    write_result(result)
    return result


def exit_code(result: "RunResult") -> int:
    """Returns 1 for a run that has failed, and 0 for one that is done or was stopped."""
    return FAILED if result.status == "failed" else 0


def run(env: str | None = None, experiment: str | None = None, **flags: Any) -> "RunResult":
    """Trains agents, and returns when the run is done or stopped; the same call resumes it.

    For example `run(env="gym_CartPole-v1", experiment="cartpole", train_for_env_steps=200_000)`.

    env: full name of the env; may be left out to resume an experiment.
    experiment: name of the run and of its folder in `train_dir`.
    flags: any flag of `python -m sample_factory.train --help=all`, or of the env's family. The values are
        ints, floats, bools and texts; lists or tuples for flags with several values; dicts for flags with
        JSON, such as `env_kwargs`. None is the same as leaving an optional flag out.

    Envs, encoders and algorithms that were registered before, in a script or a notebook too, reach the
    worker processes. Ctrl+C, or the button of a notebook that interrupts, saves and stops; then `status` of
    the result is "stopped". A second one, more than a second later, raises KeyboardInterrupt without saving.
    While it runs in the main thread, it handles SIGINT, SIGTERM and SIGHUP.

    Returns a RunResult: status, reason, experiment_dir, env_frames, fps, seconds, reward, policies.

    Raises ConfigError (a ValueError) for a wrong keyword or value, before anything is created; ImportError
    for an env whose package is not installed; TrainingFailed if the run fails, whose `result` has what was
    reached. With `serial_mode=True`, an exception of an env or a network propagates as it is.
    """
    from sample_factory.config.flags import ConfigError
    from sample_factory.config.parsing import as_arguments, in_words_of_python, parse_config
    from sample_factory.envs.env_registry import UnknownEnvError, resolve_family
    from sample_factory.mainloop.run_result import TrainingFailed
    from sample_factory.runtime.log import restored_logging

    named = {"env": env, "experiment": experiment}
    keywords = {**{name: value for name, value in named.items() if value is not None}, **flags}
    try:
        config = parse_config(as_arguments(keywords), resolve_family)
        with restored_logging():
            result = train_config(config, keeps_process=True)
    except (ConfigError, UnknownEnvError) as error:
        raise in_words_of_python(error) from None
    if exit_code(result) == FAILED:
        raise TrainingFailed(result)
    return result


def run_rl(cfg: Any) -> int:
    """Trains with the cfg of version 2's `parse_full_cfg`; returns the exit code."""
    from sample_factory.version_2.running import run_rl

    return run_rl(cfg, lambda config: exit_code(train_config(config)))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done or stopped, 1 failed, 2 bad input."""
    return run_command(train, argv)


def __getattr__(name: str) -> Any:
    """Raises ImportError, with what to write, for a name of version 2 that is not here."""
    from sample_factory.version_2.finder import find_old_name

    return find_old_name("train", name)


if __name__ == "__main__":
    sys.exit(main())
