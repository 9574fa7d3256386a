"""Version 2's runner and its observers. See also `sample_factory.Observer`."""

import collections
import types
from collections.abc import Callable, Mapping
from typing import Any

from sample_factory.mainloop.observer import Observer, register_observer
from sample_factory.version_2.running import ExperimentStatus, run_rl


class AlgoObserver:
    """Follows a run. writer.add_scalar(tag, value, env_steps) writes a summary; its method is called with the
    arguments in the order of version 2.1.1."""

    def on_init(self, runner: "Runner") -> None: ...
    def on_connect_components(self, runner: "Runner") -> None: ...
    def on_start(self, runner: "Runner") -> None: ...
    def on_training_step(self, runner: "Runner", training_iteration_since_resume: int) -> None: ...
    def extra_summaries(self, runner: "Runner", policy_id: int, writer: Any, env_steps: int) -> None: ...
    def on_stop(self, runner: "Runner") -> None: ...


class Runner(Observer):
    """Trains with observers.

    env_steps: env frames by policy. policy_avg_stats: metric -> values of the last --stats_avg episodes, in a
    list by policy.
    """

    def __init__(self, cfg: Any):
        self.cfg = cfg
        self.env_steps: dict[int, int] = {}
        self.policy_avg_stats: dict[str, list[collections.deque[float]]] = {}
        self._iterations = 0
        self._observers: list[Any] = []
        self._handlers: list[Callable[[Runner, Mapping[str, Any], int], object]] = []
        self.register_observer = self._observers.append
        self.register_episodic_stats_handler = self._handlers.append  # function(runner, message, policy_id)

    def init(self) -> int:
        return ExperimentStatus.SUCCESS

    def run(self) -> int:
        """Trains by `run_rl`, and returns its exit code."""
        register_observer("version_2", self)
        try:
            return run_rl(self.cfg)
        finally:  # it follows no later run
            register_observer("version_2", Observer, always=False)

    def __getattr__(self, name: str) -> Any:
        page = "see sample_factory/launch/README.md, Observers"
        raise AttributeError(f"Runner.{name} is not in this version: {page}")

    def _call(self, method: str, *arguments: Any) -> None:
        for observer in self._observers:
            getattr(observer, method)(self, *arguments)

    def on_init(self, run: Any) -> None:
        self._call("on_init")
        self._call("on_connect_components")

    def on_start(self, run: Any) -> None:
        self._call("on_start")

    def on_episode(self, run: Any, episode: Any) -> None:
        stats = {"reward": episode.reward, "len": episode.length, "true_objective": episode.true_objective}
        for name, value in {**episode.extra_stats, **stats}.items():
            empty = [collections.deque[float](maxlen=run.cfg.stats_avg) for _ in range(run.num_policies)]
            self.policy_avg_stats.setdefault(name, empty)[episode.policy_id].append(value)
        for handler in self._handlers:
            message = {"episodic": {**stats, "episode_extra_stats": episode.extra_stats}}
            handler(self, message, episode.policy_id)

    def on_training_step(self, run: Any, report: Any) -> None:
        self._iterations += 1
        self.env_steps[report.policy_id] = report.env_frames
        self._call("on_training_step", self._iterations)

    def extra_summaries(self, run: Any, policy_id: int) -> Mapping[str, float]:
        scalars: dict[str, float] = {}
        writer = types.SimpleNamespace(add_scalar=lambda tag, value, *_: scalars.update({tag: float(value)}))
        self._call("extra_summaries", policy_id, writer, run.policies[policy_id].env_frames)
        return scalars

    def on_stop(self, run: Any) -> None:
        self._call("on_stop")


def make_runner(cfg: Any) -> tuple[Any, Runner]:
    """Returns the cfg, and a runner for it."""
    return cfg, Runner(cfg)
