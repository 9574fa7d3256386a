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
    """Returns whether a node is to be sent the newest weights of a policy.

    held: stamp of the weights with which the node acts; None before the first.
    max_policy_lag: SGD steps; older samples are not trained on.
    diverged: the newest version from which the learner's policy has diverged, see
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
    """Counts trajectories and weights that are exchanged with nodes. Rates are means since the last
    report."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._received: Counter[str] = Counter()  # since the last report
        self._lags: list[int] = []  # since the last report
        self._weights: Counter[str] = Counter()  # since the start of the run

    def received(self, packed: Packed, raw_bytes: int) -> None:
        """Counts trajectories of an answer. raw_bytes: their size, unpacked."""
        self._received["trajectories"] += packed.num_trajectories
        self._received["bytes"] += packed.data.nbytes
        self._received["raw_bytes"] += raw_bytes

    def offered(self, num_bytes: int, newest: Stamp, held: Stamp | None, is_sent: bool) -> None:
        """Counts new weights, once for each node. is_sent: whether the node gets them."""
        if held is not None:
            self._lags.append(newest.version - held.version)
        self._weights["fetches" if is_sent else "fetches_saved"] += 1
        self._weights["fetched_bytes" if is_sent else "saved_bytes"] += num_bytes

    def take_report(self) -> StatsReport:
        """Returns the counts, and the means since the last call."""
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
