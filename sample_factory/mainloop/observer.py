"""Observers: user code that follows a run. Imports little, because scripts import it to register them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sample_factory.runtime.registry import Registry

if TYPE_CHECKING:
    from sample_factory.exchange.messages import EpisodeReport, TrainReport
    from sample_factory.mainloop.observed_run import ObservedRun


class Observer:
    """User code that follows a run in the main process; a subclass overrides the methods it needs.

    For example, to end a run when the last episodes were good:

        class UntilSolved(sample_factory.Observer):
            def on_episode(self, run, episode):
                mean = run.policies[0].episodes.mean("reward", at_least=50)
                if mean is not None and mean > 150:
                    run.stop(f"the mean reward is {mean:.0f}")

        sample_factory.run("CartPole-v1", "solved", observers=[UntilSolved()])

    All methods are called from the main thread, which also replaces dead workers and writes summaries: none
    may block. Their argument `run`, an ObservedRun, shows the state of the run, and can stop it. An observer
    that raises is switched off with a line in the log, and training continues; if it raises in `on_init`, the
    run does not start.

    The methods have the names of version 2's AlgoObserver; `run` takes the place of its `runner`.
    """

    def on_init(self, run: "ObservedRun") -> None:
        """Called before the envs are made. Values sent by `run.send_to_envs` now reach the envs before their
        first reset.

        Args:
            run: State of the run, with methods that act on it.
        """

    def on_start(self, run: "ObservedRun") -> None:
        """Called when all workers are ready, or after the first iteration of training if that is earlier.

        Args:
            run: State of the run, with methods that act on it.
        """

    def on_episode(self, run: "ObservedRun", episode: "EpisodeReport") -> None:
        """Called when the episode of an agent has ended; also before `on_start`, while some workers start.

        Args:
            run: State of the run, with methods that act on it.
            episode: Has policy_id, reward, length (in env frames) and true_objective; extra_stats, which the
                env reported as `episode_extra_stats`; and info, the last step's numbers and short texts.
        """

    def on_training_step(self, run: "ObservedRun", report: "TrainReport") -> None:
        """Called after each iteration of training of a policy.

        Args:
            run: State of the run, with methods that act on it.
            report: Has policy_id, env_frames and version (number of SGD steps); and stats, the learner's
                summaries by name, or None, since they are not computed in every iteration.
        """

    def extra_summaries(self, run: "ObservedRun", policy_id: int) -> Mapping[str, float]:
        """Returns numbers to be written like all other summaries of a policy, e.g. to TensorBoard.

        Called every --experiment_summaries_interval seconds, and at the end of the run.

        Args:
            run: State of the run, with methods that act on it.
            policy_id: Index of the policy.

        Returns:
            A mapping from tag to number.
        """
        return {}

    def on_stop(self, run: "ObservedRun") -> None:
        """Called at the end of the run, when all workers have stopped and the checkpoints are saved.

        Args:
            run: State of the run, with methods that act on it.
        """


ObserverFactory = Callable[[], Observer]

NO_OBSERVERS = "none"  # a value of --observers
_REGISTRY = Registry("observers", {})
_ONLY_NAMED: set[str] = set()  # observers that follow a run only if --observers names them


def register_observer(name: str, factory: ObserverFactory | Observer | str, always: bool = True) -> None:
    """Adds an observer to the runs that this program starts from now on.

    For example `register_observer("until_solved", UntilSolved)`, with the class of `Observer`'s example.

    Args:
        name: Name of the observer for --observers, a flag that lists the active observers, or is "none".
            Registering a name again replaces the observer.
        factory: A class derived from Observer, or another function without parameters that returns an
            Observer; or an Observer, which then follows all runs; or any of these as "module:attribute",
            which is imported when a run starts.
        always: Whether the observer is active where --observers is left out.
    """
    _REGISTRY.register(name, factory)
    _ONLY_NAMED.discard(name)
    if not always:
        _ONLY_NAMED.add(name)


def unregister_observer(name: str) -> None:
    """Removes a registered observer, so that it follows no further runs."""
    _REGISTRY.remove(name)
    _ONLY_NAMED.discard(name)


def selected_observers(names: tuple[str, ...]) -> dict[str, ObserverFactory | Observer | str]:
    """Returns name -> factory of the observers that --observers selects; if the flag is empty, of all
    observers that were registered with always=True.
    names: registered names, or "module:attribute". Raises ConfigError for an unknown name."""
    if names == (NO_OBSERVERS,):
        return {}
    names = names or tuple(name for name in _REGISTRY.names if name not in _ONLY_NAMED)
    return {name: _REGISTRY.find(name) for name in names}
