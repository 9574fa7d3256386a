"""The process of an evaluation during training: all workers take turns in it."""

import logging
import shlex
from dataclasses import replace

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import with_flags
from sample_factory.envs.env_registry import EnvFamily, UnknownEnvError, resolve_family
from sample_factory.evaluation.eval_frameskip import with_eval_frameskip
from sample_factory.evaluation.parallel import SerialEvaluation, sampling_only
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.result_statistics import MeanAndStd
from sample_factory.exchange.messages import Snapshot
from sample_factory.exchange.run_plan import RunPlan
from sample_factory.launch.checks import probe_env
from sample_factory.launch.plan import plan_run
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.supervisor import StopSignals

log = logging.getLogger("sample_factory")


class Evaluator:
    """In the child: plays --eval_episodes episodes with a snapshot of a policy, in one thread.

    Its heartbeats are those of the workers, so an env that hangs ends them. It is ready when the envs are.
    """

    def __init__(self, plan: RunPlan, snapshot: Snapshot, context: ChildContext):
        """plan: of the evaluation."""
        log.setLevel(logging.WARNING)  # of the run's own log, this would be the largest part
        context.beat()  # loading the libraries does not count as the start of the envs
        assert snapshot.path is not None, "without a file there is no evaluation"
        choice = PolicyChoice(snapshot.policy_id, snapshot.path)
        self._evaluation = SerialEvaluation(plan, choice, context)

    def run(self) -> dict[str, MeanAndStd]:
        """Returns the statistics of the episodes by name. Raises InterruptedError if a signal ends it."""
        with StopSignals() as signals:
            evaluation = self._evaluation.play(signals)
        if evaluation.is_partial:
            raise InterruptedError("a signal ended it; the mean of the episodes that end first is biased")
        return evaluation.statistics


def plan_evaluation(plan: RunPlan) -> RunPlan | None:
    """Returns the plan of the evaluations during a training; None without --eval_every_env_steps.

    plan: of the training, whose flags and env --eval_flags changes. Raises ConfigError.
    """
    monitoring = plan.config.monitoring
    if not monitoring.eval_every_env_steps:
        return None
    kinds = plan.info.kinds
    if len(kinds.spaces) > 1:
        raise ConfigError(
            "--eval_every_env_steps: one policy plays all agents in an evaluation during training, but the "
            "agents of this env have different spaces; leave it out, and measure with sample_factory.eval"
        )
    config, family, info = plan.config, plan.family, plan.info
    if monitoring.eval_flags:
        config, family = _with_eval_flags(config, family)
        info = probe_env(config, family)
    if info.kinds.spaces != kinds.spaces:
        raise ConfigError(
            f"--eval_flags={monitoring.eval_flags}: the env of the evaluations has other spaces than that of "
            f"the training, so that the policy cannot play it: {info.kinds}, not {kinds}"
        )
    config, family = with_eval_frameskip(_in_one_process(config), family)
    num_episodes = config.evaluation.eval_episodes
    return plan_run(sampling_only(config, info), family, num_episodes, info, plan.state_size)


def _with_eval_flags(config: Config, family: EnvFamily) -> tuple[Config, EnvFamily]:
    """Returns the flags with those in --eval_flags, and the family of their env. Raises ConfigError."""
    text = config.monitoring.eval_flags
    try:
        changed = with_flags(config, shlex.split(text), resolve_family)
        is_other = changed.env_name != config.env_name
        return changed, resolve_family(changed.env_name) if is_other else family
    except (ConfigError, UnknownEnvError, ValueError) as error:
        raise ConfigError(f"--eval_flags={text}: {error}") from None


def _in_one_process(config: Config) -> Config:
    """Returns the flags of an evaluation with as many envs as one rollout worker has."""
    sampling = replace(config.sampling, serial_mode=True, num_workers=1, inline_samplers=0)
    return replace(config, sampling=sampling, run=replace(config.run, device="cpu"))
