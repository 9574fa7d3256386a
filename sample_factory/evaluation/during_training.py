"""The process of an evaluation during training: all workers take turns in it."""

import logging
from dataclasses import replace

from sample_factory.config.config import Config
from sample_factory.evaluation.eval_frameskip import with_eval_frameskip
from sample_factory.evaluation.parallel import SerialEvaluation, sampling_only
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.result_statistics import MeanAndStd
from sample_factory.exchange.messages import Snapshot
from sample_factory.launch.checks import Probed
from sample_factory.launch.evaluation_plan import EvaluationPlan
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.supervisor import StopSignals

log = logging.getLogger("sample_factory")


class Evaluator:
    """In the child: plays --eval_episodes episodes with a snapshot of a policy, in one thread.

    Its heartbeats are those of the workers, so an env that hangs ends them. It is ready when the envs are.
    """

    def __init__(self, plan: EvaluationPlan, snapshot: Snapshot, context: ChildContext):
        log.setLevel(logging.WARNING)  # of the run's own log, this would be the largest part
        context.beat()  # loading the libraries does not count as the start of the envs
        config, family = with_eval_frameskip(_in_one_process(plan.config), plan.family)
        config = sampling_only(config, len(plan.info.kinds.spaces), plan.info.num_agents)
        probed = Probed(plan.info, plan.state_size)
        assert snapshot.path is not None, "without a file there is no evaluation"
        choice = PolicyChoice(snapshot.policy_id, snapshot.path)
        self._evaluation = SerialEvaluation(config, family, probed, choice, context)

    def run(self) -> dict[str, MeanAndStd]:
        """Returns the statistics of the episodes by name. Raises InterruptedError if a signal ends it."""
        with StopSignals() as signals:
            evaluation = self._evaluation.play(signals)
        if evaluation.is_partial:
            raise InterruptedError("a signal ended it; the mean of the episodes that end first is biased")
        return evaluation.statistics


def _in_one_process(config: Config) -> Config:
    """Returns the flags of an evaluation with as many envs as one rollout worker has."""
    sampling = replace(config.sampling, serial_mode=True, num_workers=1, inline_samplers=0)
    return replace(config, sampling=sampling, run=replace(config.run, device="cpu"))
