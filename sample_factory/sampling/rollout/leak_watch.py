"""Whether the envs of a worker leak memory."""

from sample_factory.exchange.messages import Incident
from sample_factory.runtime.cpu import private_mb

LEAK_MB = 200.0  # less growth than this is no leak


class LeakWatch:
    """Tells whenever the memory of this process has doubled."""

    def __init__(self, worker_index: int):
        self._index = worker_index
        self._memory_mb: float | None = None  # when it was looked at first, or told last

    def look(self) -> Incident | None:
        """What there is to tell."""
        now, before = private_mb(), self._memory_mb
        if before is None:
            self._memory_mb = now
        elif now > 2 * before + LEAK_MB:
            self._memory_mb = now
            text = f"worker {self._index} has grown from {before:,.0f} to {now:,.0f} MB: do its envs leak?"
            return Incident("memory_growth", text)
        return None
