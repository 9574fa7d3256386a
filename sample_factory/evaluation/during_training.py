"""The process of an evaluation during training: all workers take turns in it."""

import logging
from dataclasses import replace

from sample_factory.config.config import Config
from sample_factory.evaluation.eval_frameskip import with_eval_frameskip
from sample_factory.evaluation.parallel import evaluate_checkpoint, sampling_only
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.result_statistics import MeanAndStd
from sample_factory.exchange.messages import Snapshot
from sample_factory.experiment.checks import Probed
from sample_factory.experiment.evaluation_plan import EvaluationPlan
from sample_factory.runtime.child_side import ChildContext
from sample_factory.runtime.supervisor import StopSignals

log = logging.getLogger("sample_factory")


class Evaluator:
    """In the child: plays --eval_episodes episodes with a snapshot of a policy, in one thread."""

    def __init__(self, plan: EvaluationPlan, snapshot: Snapshot, context: ChildContext):
        log.setLevel(logging.WARNING)  # of the run's own log, this would be the largest part
        self._plan = plan
        self._snapshot = snapshot

    def run(self) -> dict[str, MeanAndStd]:
        """Returns the statistics of the episodes by name."""
        config, family = with_eval_frameskip(_in_one_process(self._plan.config), self._plan.family)
        info = self._plan.info
        config = sampling_only(config, len(info.kinds.spaces), info.num_agents)
        probed = Probed(info, self._plan.state_size)
        assert self._snapshot.path is not None, "without a file there is no evaluation"
        choice = PolicyChoice(self._snapshot.policy_id, self._snapshot.path)
        with StopSignals() as signals:
            return evaluate_checkpoint(config, family, probed, choice, signals).statistics


def _in_one_process(config: Config) -> Config:
    """Returns the flags of an evaluation with as many envs as one rollout worker has."""
    sampling = replace(config.sampling, serial_mode=True, num_workers=1, inline_samplers=0)
    return replace(config, sampling=sampling, run=replace(config.run, device="cpu"))
