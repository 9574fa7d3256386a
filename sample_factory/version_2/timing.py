"""Version 2's clock."""

import collections
import contextlib
import statistics
import time
from collections.abc import Iterator

from sample_factory.version_2.running import AttrDict


class Timing(AttrDict):
    """Seconds by name: `with timing.timeit("step"): ...` keeps the last measurement, `add_time` their sum,
    `time_avg` the mean of the last ones."""

    def __init__(self, name: str = "Profile"):
        super().__init__()
        vars(self).update(name=name, recent={})  # not among the entries

    @contextlib.contextmanager
    def timeit(self, key: str, start: float = 0.0) -> Iterator[None]:
        self.setdefault(key, 0.0)
        begin = time.perf_counter()
        yield
        self[key] = start + time.perf_counter() - begin

    def add_time(self, key: str) -> contextlib.AbstractContextManager[None]:
        return self.timeit(key, self.get(key, 0.0))

    @contextlib.contextmanager
    def time_avg(self, key: str, average: int = 10) -> Iterator[None]:
        recent = vars(self)["recent"].setdefault(key, collections.deque(maxlen=average))
        with self.timeit(key):
            yield
        recent.append(self[key])
        self[key] = statistics.fmean(recent)

    def __str__(self) -> str:
        return f"{vars(self)['name']}: " + ", ".join(f"{key}: {value:.4f}" for key, value in self.items())
