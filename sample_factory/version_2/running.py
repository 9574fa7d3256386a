"""Version 2's `run_rl` and `enjoy`: they run the cfg of `parse_full_cfg`, with the changes of the script."""

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sample_factory.config.config import Config, FlagNamespace
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import as_arguments, parse_config
from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
from sample_factory.hub.hub_flags import EnjoyHubFlags
from sample_factory.launch.exit_codes import run_command
from sample_factory.runtime.log import restored_logging, setup_logging

if TYPE_CHECKING:
    from sample_factory.evaluation.results import Evaluation


class ExperimentStatus(enum.IntEnum):
    """The values that `run_rl` returns. A run that was interrupted is a success here: it has saved."""

    SUCCESS = 0
    FAILURE = 1
    INTERRUPTED = 2


def run_rl(cfg: Any, train: Callable[[Config], int]) -> int:
    """Trains; returns the exit code: 0 done or stopped, 1 failed, 2 bad input. Prints expected errors.

    train: trains with flags, and returns the exit code.
    """

    def train_cfg(_: Any) -> int:
        with restored_logging():
            return train(config_of(cfg, "run_rl", evaluation=False))

    return run_command(train_cfg, [])


def enjoy(cfg: Any) -> tuple[int, float]:
    """Plays; returns (0, mean of the true objectives). Raises what `evaluate` raises."""
    from sample_factory.hub.push import play_and_push

    config = config_of(cfg, "enjoy", evaluation=True)
    with restored_logging():
        setup_logging("enjoy")
        result: Evaluation = play_and_push(config, resolve_family(config.env_name))
    return int(ExperimentStatus.SUCCESS), result.true_objective.mean


def config_of(cfg: Any, function: str, evaluation: bool) -> Config:
    """Returns the Config of a cfg, which the script may have changed since. Raises ConfigError.

    function: that was called with it.
    """
    if not isinstance(cfg, FlagNamespace) or "cli_args" not in cfg:
        raise ConfigError(
            f"{function}(cfg): cfg is a {type(cfg).__name__}; it should be the result of parse_full_cfg, or "
            "call sample_factory.run(env=..., experiment=..., **flags)"
        )
    resolve = resolve_trained_family if evaluation else resolve_family
    typed = cfg.cli_args
    own = {"hub": EnjoyHubFlags} if evaluation else None
    parsed = parse_config(as_arguments(typed), resolve, extra_sections=own).namespace()  # as parse_full_cfg
    changed = {name: value for name, value in vars(cfg).items() if name in parsed and value != parsed[name]}
    unset = {name: "None" for name, value in changed.items() if value is None}
    return parse_config(as_arguments({**typed, **changed, **unset}), resolve, evaluation, own)
