"""Counts of the traffic between the learner's machine and the nodes, for summaries."""

import time

from sample_factory.cluster.packing import Packed, Unpacked
from sample_factory.exchange.messages import StatsReport
from sample_factory.exchange.policy_weights import Stamp

MB = 1e6


class Traffic:
    """Counts what is sent and received. Rates are means since the last report, over all nodes together."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._trajectories = 0
        self._bytes = 0
        self._raw_bytes = 0
        self._lags: list[int] = []
        self._fetches = 0  # this and the following ones count from the start of the run
        self._fetched_bytes = 0
        self._saved_fetches = 0
        self._saved_bytes = 0

    def received(self, packed: Packed, unpacked: Unpacked) -> None:
        """Counts trajectories."""
        self._trajectories += packed.num_trajectories
        self._bytes += packed.data.nbytes
        self._raw_bytes += unpacked.nbytes

    def offered(self, num_bytes: int, newest: Stamp, held: Stamp | None, is_sent: bool) -> None:
        """Counts new weights, once for each node, and whether the node gets them."""
        if held is not None:
            self._lags.append(newest.version - held.version)
        if is_sent:
            self._fetches += 1
            self._fetched_bytes += num_bytes
        else:
            self._saved_fetches += 1
            self._saved_bytes += num_bytes

    def take_report(self) -> StatsReport:
        """Returns the means since the last call."""
        seconds = time.monotonic() - self._since
        stats = {
            "trajectories_per_second": self._trajectories / seconds,
            "mb_per_second": self._bytes / MB / seconds,
            "weights_fetches": float(self._fetches),
            "weights_fetched_mb": self._fetched_bytes / MB,
            "weights_fetches_saved": float(self._saved_fetches),
            "weights_saved_mb": self._saved_bytes / MB,
        }
        if self._bytes:
            stats["compression"] = self._raw_bytes / self._bytes
        if self._lags:
            stats["weights_lag"] = sum(self._lags) / len(self._lags)
            stats["weights_lag_max"] = float(max(self._lags))
        self._since = time.monotonic()
        self._trajectories = self._bytes = self._raw_bytes = 0
        self._lags = []
        return StatsReport("nodes", 0, stats)
