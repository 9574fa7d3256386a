"""The flags and the env of evaluations during training: those of the training, changed by --eval_flags."""

import shlex
from typing import NamedTuple

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import with_flags
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import EnvFamily, UnknownEnvError, resolve_family


class EvaluationPlan(NamedTuple):
    """The flags of the evaluations of a run, the env that they play, and the size of a recurrent state."""

    config: Config
    family: EnvFamily
    info: EnvInfo
    state_size: int


def with_eval_flags(plan: EvaluationPlan) -> EvaluationPlan:
    """Returns the plan with the flags in --eval_flags. Raises ConfigError for wrong ones."""
    config = plan.config
    text = config.monitoring.eval_flags
    try:
        changed = with_flags(config, shlex.split(text), resolve_family)
        is_other = changed.env_name != config.env_name
        family = resolve_family(changed.env_name) if is_other else plan.family
    except (ConfigError, UnknownEnvError, ValueError) as error:
        raise ConfigError(f"--eval_flags={text}: {error}") from None
    return plan._replace(config=changed, family=family)
