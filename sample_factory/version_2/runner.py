"""Version 2's runner and its observers. See also `sample_factory.Observer`."""

import collections
from collections.abc import Callable, Mapping
from typing import Any

from sample_factory.mainloop.observer import Observer, register_observer, unregister_observer
from sample_factory.runtime.log import log
from sample_factory.version_2.running import ExperimentStatus, run_rl


class AlgoObserver:
    """Base class of version 2's observers of a run, whose methods have the arguments of version 2.1.1. The
    argument `writer` is a `ScalarWriter`."""

    def on_init(self, runner: "Runner") -> None: ...
    def on_connect_components(self, runner: "Runner") -> None: ...
    def on_start(self, runner: "Runner") -> None: ...
    def on_training_step(self, runner: "Runner", training_iteration_since_resume: int) -> None: ...
    def extra_summaries(self, runner: "Runner", policy_id: int, writer: Any, env_steps: int) -> None: ...
    def on_stop(self, runner: "Runner") -> None: ...


class Runner(Observer):
    """Trains with observers, with the interface of version 2's Runner.

    env_steps: policy id -> env frames. policy_avg_stats: metric -> for each policy, its values in the last
        --stats_avg episodes. iterations: number of training iterations since the start of this run.
    """

    def __init__(self, cfg: Any):
        self.cfg = cfg
        self.env_steps: dict[int, int] = {}
        self.policy_avg_stats: dict[str, list[collections.deque[float]]] = {}
        self.iterations = 0
        # An observer that raises is switched off, and no other.
        self._followers: dict[str, Observer] = {"runner of version 2": self}

    def register_observer(self, observer: Any) -> None:
        """Adds an observer of the run: an AlgoObserver, or any object with the same methods."""
        self._add(type(observer).__name__, _Follower(self, observer))

    def register_episodic_stats_handler(self, handler: Callable[..., object]) -> None:
        """Makes the run call handler(runner, message, policy_id) whenever an agent's episode ends; the
        results of the episode, a dict, are message["episodic"]."""
        self._add("handler of episodic stats", _EpisodeFollower(self, handler))

    def _add(self, name: str, follower: Observer) -> None:
        self._followers[f"{name} ({len(self._followers)} of the runner)"] = follower

    def init(self) -> int:
        return ExperimentStatus.SUCCESS

    def run(self) -> int:
        """Trains. Returns the exit code: 0 if the run is done or was stopped, 1 if it failed, 2 for bad
        input."""
        for name, follower in self._followers.items():
            register_observer(name, follower)
        try:
            return run_rl(self.cfg)
        finally:
            for name in self._followers:  # they follow no later run
                unregister_observer(name)

    def __getattr__(self, name: str) -> Any:
        page = "see sample_factory/launch/README.md, Observers"
        raise AttributeError(f"Runner.{name} is not in this version: {page}")

    def on_episode(self, run: Any, episode: Any) -> None:
        for name, value in {**episode.extra_stats, **_results_of(episode)}.items():
            empty = [collections.deque[float](maxlen=run.cfg.stats_avg) for _ in range(run.num_policies)]
            self.policy_avg_stats.setdefault(name, empty)[episode.policy_id].append(value)

    def on_training_step(self, run: Any, report: Any) -> None:
        self.iterations += 1
        self.env_steps[report.policy_id] = report.env_frames


class ScalarWriter:
    """Collects the numbers that an observer writes, with the interface of TensorBoard's SummaryWriter.
    scalars: tag -> the last value that was added."""

    def __init__(self) -> None:
        self.scalars: dict[str, float] = {}
        self._ignored: set[str] = set()

    def add_scalar(self, tag: str, scalar_value: Any, *args: Any, **kwargs: Any) -> None:
        """Stores a number, to be written at the present env frames of the policy; global_step is ignored."""
        self.scalars[tag] = float(scalar_value)

    def flush(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("add_"):
            raise AttributeError(f"writer.{name} is not in this version")
        if name not in self._ignored:
            self._ignored.add(name)
            log.warning("%s of an observer of version 2 has no effect: only add_scalar has one", name)
        return lambda *args, **kwargs: None


class _Follower(Observer):
    """Forwards the calls of an Observer's hooks to an AlgoObserver."""

    def __init__(self, runner: Runner, observer: Any):
        self._runner = runner
        self._observer = observer
        self._writer = ScalarWriter()

    def on_init(self, run: Any) -> None:
        self._observer.on_init(self._runner)
        self._observer.on_connect_components(self._runner)

    def on_start(self, run: Any) -> None:
        self._observer.on_start(self._runner)

    def on_training_step(self, run: Any, report: Any) -> None:
        self._observer.on_training_step(self._runner, self._runner.iterations)

    def extra_summaries(self, run: Any, policy_id: int) -> Mapping[str, float]:
        self._writer.scalars = {}
        env_steps = run.policies[policy_id].env_frames
        self._observer.extra_summaries(self._runner, policy_id, self._writer, env_steps)
        return self._writer.scalars

    def on_stop(self, run: Any) -> None:
        self._observer.on_stop(self._runner)


class _EpisodeFollower(Observer):
    """Calls a handler that was passed to `Runner.register_episodic_stats_handler` whenever an episode has
    ended."""

    def __init__(self, runner: Runner, handler: Callable[..., object]):
        self._runner = runner
        self._handler = handler

    def on_episode(self, run: Any, episode: Any) -> None:
        episodic = {**_results_of(episode), "episode_extra_stats": episode.extra_stats}
        self._handler(self._runner, {"episodic": episodic}, episode.policy_id)


def _results_of(episode: Any) -> dict[str, float]:
    return {"reward": episode.reward, "len": episode.length, "true_objective": episode.true_objective}


def make_runner(cfg: Any) -> tuple[Any, Runner]:
    """Returns (cfg, a Runner that trains with this cfg)."""
    return cfg, Runner(cfg)
