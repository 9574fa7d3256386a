"""What observers see of a run, and the values that they send to its envs."""

import pickle
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle

from sample_factory.config.config import Config
from sample_factory.exchange.channels import LatestMessages, send
from sample_factory.exchange.messages import MilestoneRequest, NewTrainingInfo, Report, TrainReport
from sample_factory.monitoring.policy_progress import PolicyProgress
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.runtime.clock import Every
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.log import log
from sample_factory.runtime.queues import Queue

SEND_FRAMES_SECONDS = 5.0  # as in version 2
MAX_INFO_BYTES = 100_000  # pickled; half of what a message may have


class TrainingInfoSubscriber(Subscriber):
    """In the main process: sends values to the envs with the ability TrainingInfo: the number of env frames
    so far, under the name that version 2 uses, and the values that observers have set."""

    def __init__(self, env_frames: list[int], to_workers: LatestMessages, is_serial: bool):
        """Queues the first values for all envs.
        env_frames: frames that each policy was trained on in earlier runs of the experiment.
        is_serial: whether to send env frames whenever they change, rather than from time to time: the
            messages of a serial run must not depend on time, since the run must be repeatable."""
        self._values: list[dict[str, Any]] = [{} for _ in env_frames]
        self._env_frames = env_frames
        self._to_workers = to_workers
        self._is_serial = is_serial
        self._with_new_frames: set[int] = set()  # policies
        self._time_to_send_frames = Every(SEND_FRAMES_SECONDS, at_first=True)
        for policy_id in range(len(env_frames)):
            self._send(policy_id)

    def update(self, values: Mapping[str, Any], policy_id: int | None = None) -> None:
        """Sends values to the envs of a policy; to all envs if `policy_id` is None. Earlier values under
        other names stay. Raises TypeError if a value cannot be pickled, ValueError if the values are too
        large; then nothing is sent."""
        policies = range(len(self._values)) if policy_id is None else [policy_id]
        merged = {policy: _copied({**self._values[policy], **values}) for policy in policies}
        for policy, copied in merged.items():
            self._values[policy] = copied
            self._send(policy)

    def handle(self, report: Report) -> None:
        if isinstance(report, TrainReport):
            self._env_frames[report.policy_id] = report.env_frames
            self._with_new_frames.add(report.policy_id)

    def tick(self) -> None:
        if self._is_serial or (self._with_new_frames and self._time_to_send_frames()):
            for policy_id in sorted(self._with_new_frames):
                self._send(policy_id)
            self._with_new_frames = set()

    def _send(self, policy_id: int) -> None:
        training_info = {
            "policy_id": policy_id,
            "approx_total_training_steps": self._env_frames[policy_id],
            **self._values[policy_id],
        }
        self._to_workers.update(NewTrainingInfo(policy_id, cloudpickle.dumps(training_info)))


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a deep copy of the values, since the observer may change its objects later. Raises TypeError if
    they cannot be pickled, ValueError if they are too large."""
    try:
        pickled = cloudpickle.dumps(values)
        copied: dict[str, Any] = pickle.loads(pickled)
    except Exception as error:  # any error of a user's class
        raise TypeError(
            f"send_to_envs({reprlib.repr(dict(values))}): the values should be numbers, texts or other "
            f"objects that can be pickled, but {one_line(error)}"
        ) from error
    if len(pickled) > MAX_INFO_BYTES:
        raise ValueError(
            f"send_to_envs: the values have {len(pickled):,} bytes, at most {MAX_INFO_BYTES:,} can be sent; "
            "large data should be in a file whose name is sent"
        )
    return copied


class ObservedRun:
    """In the main process: shows observers the state of a run; they can stop it and send values to its envs.

    For example `run.policies[0].episodes.mean("reward", at_least=10)`, in a method of an `Observer`.

    Attributes:
        cfg: All flags, as attributes.
        folder: Folder of the experiment; observers may write files there.
        policies: A PolicyProgress for each policy, with counters, e.g. `env_frames`, and the last episodes.
        stop_reason: The reason that was given to `stop`; empty if it was not called.
    """

    def __init__(
        self,
        config: Config,
        policies: Sequence[PolicyProgress],
        training_info: TrainingInfoSubscriber | None,
        learners: Sequence[Queue],
    ):
        """Prepares the view of the run of `config` that observers get.
        training_info: subscriber that sends values to envs; None if no env receives any. learners: inboxes
            of the learners, by policy."""
        self.cfg = config.namespace()
        self.folder = config.experiment_dir
        self.policies = policies
        self.stop_reason = ""
        self._training_info = training_info
        self._learners = learners
        self._has_warned = False

    @property
    def num_policies(self) -> int:
        """Number of policies that are trained."""
        return len(self.policies)

    @property
    def env_frames(self) -> int:
        """Env frames that all policies together were trained on, in all runs of the experiment."""
        return sum(policy.env_frames for policy in self.policies)

    def stop(self, reason: str) -> None:
        """Ends the run as done: checkpoints are saved, and the reason is logged. Only the first call has an
        effect.

        Args:
            reason: One line that says why.

        Raises:
            TypeError: The reason is not a text.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise TypeError(f"stop({reason!r}): the reason should be a text, e.g. stop('solved')")
        if not self.stop_reason:
            self.stop_reason = " ".join(reason.split())
            log.info("Stopping early: %s", self.stop_reason)

    def keep_milestone(self, policy_id: int = 0) -> bool:
        """Requests a milestone, a checkpoint that is never deleted; the learner saves it after its next
        iteration.

        Args:
            policy_id: Index of the policy.

        Returns:
            Whether the request was sent. False, with a line in the log, if the learner does not read its
                messages.
        """
        return send(self._learners[policy_id], MilestoneRequest())

    def send_to_envs(self, values: Mapping[str, Any], policy_id: int | None = None) -> None:
        """Sends values to the envs with the ability TrainingInfo, which receive them before their next
        episode. Earlier values under other names stay.

        Args:
            values: Name -> number, text or other small object that can be pickled.
            policy_id: Index of the policy whose envs receive the values; None: all envs.

        Raises:
            TypeError: `values` is not a mapping from texts, or a value cannot be pickled.
            ValueError: The values are too large, or there is no such policy.
        """
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise TypeError(f"send_to_envs({values!r}): the values should be a mapping, e.g. {{'level': 2}}")
        if policy_id is not None and policy_id not in range(self.num_policies):
            raise ValueError(f"send_to_envs: policy_id={policy_id} should be below {self.num_policies}")
        if self._training_info is not None:
            self._training_info.update(values, policy_id)
        elif not self._has_warned:
            self._has_warned = True
            log.warning(
                "send_to_envs has no effect: %s has no set_training_info; its class should also inherit from "
                "sample_factory.envs.abilities.TrainingInfo",
                self.cfg.env,
            )
