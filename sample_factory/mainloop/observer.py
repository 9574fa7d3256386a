"""Observers: a user's code that follows a run. Imports little, since scripts import it to register one."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sample_factory.runtime.registry import Registry

if TYPE_CHECKING:
    from sample_factory.exchange.messages import EpisodeReport, TrainReport
    from sample_factory.mainloop.observed_run import ObservedRun


class Observer:
    """In the main process: methods that a run calls; a subclass overrides those it needs.

    All are called from the main thread, which also replaces dead workers and writes summaries: none may
    block. `run` is what can be seen of the run, and done to it. An observer that raises is switched off, with
    a line in the log, and training continues; one that raises in `on_init` prevents the start.

    The names are those of version 2's AlgoObserver; `run` is in place of its `runner`.
    """

    def on_init(self, run: "ObservedRun") -> None:
        """Called before the envs are made: they receive values that are sent now before their first reset."""

    def on_start(self, run: "ObservedRun") -> None:
        """Called when all workers are ready, or after the first iteration of training if that is earlier."""

    def on_episode(self, run: "ObservedRun", episode: "EpisodeReport") -> None:
        """Called when the episode of an agent has ended. Also before `on_start`: some workers start earlier.

        episode: policy_id, reward, length (in env frames), true_objective; extra_stats, what the env reported
            as `episode_extra_stats`; info, the numbers and short texts in the info of the last step.
        """

    def on_training_step(self, run: "ObservedRun", report: "TrainReport") -> None:
        """Called after each iteration of training of a policy.

        report: policy_id, env_frames, version (the number of SGD steps); stats, the learner's summaries by
            name, or None: they are not computed in every iteration.
        """

    def extra_summaries(self, run: "ObservedRun", policy_id: int) -> Mapping[str, float]:
        """Returns tag -> number, written like all other summaries of the policy.

        Called every --experiment_summaries_interval seconds, and at the end of the run.
        """
        return {}

    def on_stop(self, run: "ObservedRun") -> None:
        """Called at the end of the run, when all workers have stopped and the checkpoints are saved."""


ObserverFactory = Callable[[], Observer]

NO_OBSERVERS = "none"  # a value of --observers
_REGISTRY = Registry("observers", {})


def register_observer(name: str, factory: ObserverFactory | Observer | str) -> None:
    """Adds an observer to the runs that this program starts from now on.

    factory: a class derived from Observer, or another function without parameters that returns one; or an
        Observer, which then follows all runs. A "module:attribute" string is imported when a run starts.

    All registered observers are active, unless --observers names those that are, or is "none". Registering a
    name again replaces the observer.
    """
    _REGISTRY.register(name, factory)


def selected_observers(names: tuple[str, ...]) -> dict[str, ObserverFactory | Observer | str]:
    """Returns name -> factory of the observers that --observers selects: registered names, or
    "module:attribute"; all registered ones if it is empty.

    Raises ValueError for an unknown name.
    """
    if names == (NO_OBSERVERS,):
        return {}
    try:
        return {name: name if ":" in name else _REGISTRY.find(name) for name in names or _REGISTRY.names}
    except ValueError as error:
        raise ValueError(f"{error}; or use module:attribute") from None
