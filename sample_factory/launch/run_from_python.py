"""Training as a function call: sample_factory.run."""

from typing import Any

from sample_factory.config.flags import ConfigError
from sample_factory.config.keywords import in_words_of_python
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import UnknownEnvError, resolve_family
from sample_factory.launch.run import train_experiment
from sample_factory.mainloop.run_result import FAILED, RunResult, TrainingFailed
from sample_factory.runtime.log import restored_logging


def run(env: str | None = None, experiment: str | None = None, **flags: Any) -> RunResult:
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
    named = {"env": env, "experiment": experiment}
    keywords = {**{name: value for name, value in named.items() if value is not None}, **flags}
    try:
        config = parse_config([], resolve_family, keywords=keywords)
        family = resolve_family(config.env_name)
        with restored_logging():
            result = train_experiment(config, family, keeps_process=True)
    except (ConfigError, UnknownEnvError) as error:
        raise in_words_of_python(error) from None
    if result.status == FAILED:
        raise TrainingFailed(result)
    return result
