"""When a node gets new weights (--weights_sync), and counts of the traffic with all nodes, for summaries."""

import time
from collections import Counter

from sample_factory.cluster.packing import Packed
from sample_factory.config.sampling_flags import DIVERGENCE, LAG, ClusterFlags
from sample_factory.exchange.messages import StatsReport
from sample_factory.exchange.policy_weights import Stamp

MB = 1e6


def are_weights_due(
    flags: ClusterFlags, max_policy_lag: int, held: Stamp | None, newest: Stamp, diverged: int
) -> bool:
    """Returns whether to send the newest weights of a policy to a node now, by --weights_sync.

    max_policy_lag: lag in SGD steps beyond which samples are not trained on.
    held: stamp of the weights with which the node acts; None if it has received none.
    newest: stamp of the learner's weights.
    diverged: newest version from which the learner's policy has diverged, see
        learning.learner.newest_diverged.
    """
    if held is None or held.generation != newest.generation:
        return True
    lag = newest.version - held.version
    max_lag = max_policy_lag // 2
    if flags.weights_sync == LAG:
        return lag > min(flags.threshold or 0.0, max_lag)
    if flags.weights_sync == DIVERGENCE:
        return lag > 0 and (diverged >= held.version or lag > max_lag)
    return lag != 0


class Traffic:
    """Counts trajectories received from nodes and weights sent to them, for summaries."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._received: Counter[str] = Counter()  # since the last report
        self._lags: list[int] = []  # since the last report
        self._weights: Counter[str] = Counter()  # since the start of the run

    def received(self, packed: Packed, raw_bytes: int) -> None:
        """Counts received trajectories. raw_bytes: their size after unpacking."""
        self._received["trajectories"] += packed.num_trajectories
        self._received["bytes"] += packed.data.nbytes
        self._received["raw_bytes"] += raw_bytes

    def offered(self, num_bytes: int, newest: Stamp, held: Stamp | None, is_sent: bool) -> None:
        """Counts a decision whether to send new weights to a node.

        num_bytes: size of the weights. newest: their stamp. held: stamp of the weights that the node has.
        is_sent: whether the new weights are sent.
        """
        if held is not None:
            self._lags.append(newest.version - held.version)
        self._weights["fetches" if is_sent else "fetches_saved"] += 1
        self._weights["fetched_bytes" if is_sent else "saved_bytes"] += num_bytes

    def take_report(self) -> StatsReport:
        """Returns rates and lags since the last call, and counts of weights since the start of the run."""
        seconds = time.monotonic() - self._since
        received = self._received
        stats = {
            "trajectories_per_second": received["trajectories"] / seconds,
            "mb_per_second": received["bytes"] / MB / seconds,
            "weights_fetches": float(self._weights["fetches"]),
            "weights_fetched_mb": self._weights["fetched_bytes"] / MB,
            "weights_fetches_saved": float(self._weights["fetches_saved"]),
            "weights_saved_mb": self._weights["saved_bytes"] / MB,
        }
        if received["bytes"]:
            stats["compression"] = received["raw_bytes"] / received["bytes"]
        if self._lags:
            stats["weights_lag"] = sum(self._lags) / len(self._lags)
            stats["weights_lag_max"] = float(max(self._lags))
        self._since = time.monotonic()
        self._received = Counter()
        self._lags = []
        return StatsReport("nodes", 0, stats)
