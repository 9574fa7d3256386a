"""Interface of the parts of the main process that follow a run."""

from collections.abc import Callable

from sample_factory.exchange.messages import Report


class Subscriber:
    """Interface of objects in the main process that follow a run by its reports; a subclass overrides what it
    needs. All methods are called from the main thread. None may block: meanwhile, reports pile up and dead
    workers are not replaced."""

    def handle(self, report: Report) -> None:
        """Called with every report of every component; an implementation ignores reports that do not concern
        it. Also called while the workers start, before the first `tick`."""

    def tick(self) -> None:
        """Called several times a second while the run trains, to do periodic work."""

    @property
    def is_busy(self) -> bool:
        """Whether a run in serial mode has to wait for this subscriber."""
        return False

    def finish(self, may_wait: Callable[[], bool]) -> None:
        """Called after the workers have stopped: completes work that has begun, as long as `may_wait()`
        returns True."""

    def close(self) -> None:
        """Called once, after the last report, to release resources."""
