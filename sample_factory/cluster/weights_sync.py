"""When a node gets new weights (--weights_sync)."""

from sample_factory.config.sampling_flags import DIVERGENCE, LAG, ClusterFlags
from sample_factory.exchange.policy_weights import Stamp


class SyncRule:
    """The rule of --weights_sync. For one run and all policies."""

    def __init__(self, flags: ClusterFlags, max_policy_lag: int):
        """max_policy_lag: in SGD steps; samples as old as that are not trained on."""
        self._kind = flags.weights_sync
        self._threshold = flags.threshold or 0.0
        self._max_lag = max_policy_lag // 2

    def is_due(self, held: Stamp | None, newest: Stamp, diverged: int) -> bool:
        """Returns whether a node that acts with the weights `held` gets the newest ones.

        diverged: the newest version that the learner's policy has left behind, see
            learning.learner.newest_diverged.
        """
        if held is None or held.generation != newest.generation:
            return True
        lag = newest.version - held.version
        if self._kind == LAG:
            return lag > min(self._threshold, self._max_lag)
        if self._kind == DIVERGENCE:
            return lag > 0 and (diverged >= held.version or lag > self._max_lag)
        return lag != 0
