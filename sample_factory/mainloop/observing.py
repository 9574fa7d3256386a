"""Calls user code that follows a run: observers, and the metrics of an env's family."""

import inspect
import logging
import math
import reprlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.envs.end_infos import to_float
from sample_factory.envs.env_registry import FamilyMetrics
from sample_factory.exchange.messages import EpisodeReport, Incident, PolicyReplaced, Report, TrainReport
from sample_factory.mainloop.observed_run import ObservedRun
from sample_factory.mainloop.observer import Observer, ObserverFactory, selected_observers
from sample_factory.monitoring.monitor import Monitor
from sample_factory.monitoring.policy_progress import tag_of
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.runtime.clock import Every
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.registry import resolve

log = logging.getLogger("sample_factory")

Result = TypeVar("Result")


def make_observers(config: Config) -> dict[str, Observer]:
    """Returns the observers that --observers selects, by name.

    Raises ConfigError for an unknown name, and for an observer that cannot be made, or cannot be called
    because a method has other parameters than in Observer.
    """
    try:
        selected = selected_observers(config.run.observers)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return {name: _make(name, factory) for name, factory in selected.items()}


def follows_episodes(observers: Mapping[str, Observer]) -> bool:
    """Returns whether an observer overrides `on_episode`: only then the infos of episodes are reported."""
    return any(type(observer).on_episode is not Observer.on_episode for observer in observers.values())


def _make(name: str, factory: ObserverFactory | Observer | str) -> Observer:
    try:
        resolved = resolve(factory)
        observer = resolved if isinstance(resolved, Observer) else resolved()
    except Exception as error:  # any error of a user's code
        raise ConfigError(f"observer {name!r} cannot be made: {one_line(error)}") from error
    if not isinstance(observer, Observer):
        raise ConfigError(
            f"observer {name!r}: the registered function returned {type(observer).__name__}; it should "
            "return an object of a class derived from sample_factory.Observer"
        )
    _check_parameters(name, observer)
    return observer


def _check_parameters(name: str, observer: Observer) -> None:
    """Raises ConfigError if a method has other parameters than in Observer."""
    for method, expected in (
        (observer.on_init, Observer.on_init),
        (observer.on_start, Observer.on_start),
        (observer.on_episode, Observer.on_episode),
        (observer.on_training_step, Observer.on_training_step),
        (observer.extra_summaries, Observer.extra_summaries),
        (observer.on_stop, Observer.on_stop),
    ):
        parameters = list(inspect.signature(expected).parameters)
        try:
            inspect.signature(method).bind(*parameters[1:])
        except TypeError:
            raise ConfigError(
                f"observer {name!r}: {type(observer).__name__}.{expected.__name__} has the parameters "
                f"{inspect.signature(method)}; they should be ({', '.join(parameters)})"
            ) from None


class ObserversSubscriber(Subscriber):
    """In the main process: calls the observers, in the order of their registration. Switches off an observer
    that raises."""

    def __init__(
        self,
        observers: Mapping[str, Observer],
        run: ObservedRun,
        monitor: Monitor,
        publish: Callable[[Report], None],
        summaries_interval: float,
    ):
        """publish: hands a report to all subscribers. summaries_interval: seconds.

        Raises ConfigError if an observer raises in on_init: nothing has started yet.
        """
        self._observers = dict(observers)
        self._run = run
        self._monitor = monitor
        self._publish = publish
        self._follows_episodes = follows_episodes(observers)
        self._has_started = False
        # Policies whose learner has sent its first report, with the counters that it has restored.
        self._restored: set[int] = set()
        self._time_to_summarise = Every(summaries_interval)
        self._numbers = _Numbers()
        for name, observer in observers.items():
            try:
                observer.on_init(run)
            except Exception as error:  # any error of a user's code
                raise ConfigError(f"observer {name!r}: on_init raised {one_line(error)}") from error

    def handle(self, report: Report) -> None:
        match report:
            case EpisodeReport():
                if self._follows_episodes:
                    self._call("on_episode", lambda observer: observer.on_episode(self._run, report))
            case TrainReport():
                if report.policy_id in self._restored:
                    self._call(
                        "on_training_step", lambda observer: observer.on_training_step(self._run, report)
                    )
                self._restored.add(report.policy_id)

    def tick(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._call("on_start", lambda observer: observer.on_start(self._run))
        if self._time_to_summarise():
            self._summarise()

    def close(self) -> None:
        self._summarise()
        self._call("on_stop", lambda observer: observer.on_stop(self._run))

    def _summarise(self) -> None:
        for policy_id in sorted(self._restored):
            self._summarise_policy(policy_id)

    def _summarise_policy(self, policy_id: int) -> None:
        returned = self._call(
            "extra_summaries", lambda observer: observer.extra_summaries(self._run, policy_id)
        )
        for name, values in returned.items():
            scalars = self._numbers.select(f"observer {name!r}: extra_summaries", values)
            self._monitor.write(policy_id, scalars)

    def _call(self, method: str, call: Callable[[Observer], Result]) -> dict[str, Result]:
        """Returns what the observers return, by name. Switches off an observer that raises."""
        returned = {}
        for name, observer in list(self._observers.items()):
            try:
                returned[name] = call(observer)
            except (Exception, SystemExit) as error:  # any error of a user's code; sys.exit ends no run
                del self._observers[name]
                self._publish(_switched_off(f"observer {name!r} is", method, error))
        return returned


class FamilyMetricsSubscriber(Subscriber):
    """In the main process: computes the metrics of the env's family from the episodes of each policy, and
    writes them. Switches them off if they raise."""

    def __init__(
        self,
        make_metrics: type[FamilyMetrics],
        env_name: str,
        monitor: Monitor,
        publish: Callable[[Report], None],
    ):
        """publish: hands a report to all subscribers. Raises ConfigError if make_metrics raises."""
        self._name = f"the metrics of env {env_name!r}"
        self._monitor = monitor
        self._publish = publish
        self._numbers = _Numbers()
        self._metrics: Sequence[FamilyMetrics]  # one for each policy; empty when they are switched off
        try:
            self._metrics = [make_metrics(env_name) for _ in monitor.policies]
        except Exception as error:  # any error of a user's code
            raise ConfigError(f"{self._name} cannot be made: {one_line(error)}") from error

    def handle(self, report: Report) -> None:
        if not self._metrics:
            return
        match report:
            case EpisodeReport():
                self._add(report)
            case PolicyReplaced():
                metrics = self._metrics[report.policy_id]
                self._call("clear", metrics.clear)

    def _add(self, episode: EpisodeReport) -> None:
        metrics = self._metrics[episode.policy_id]
        returned = self._call("add", lambda: metrics.add(episode.extra_stats))
        values = self._numbers.select(f"{self._name}: add", {} if returned is None else returned)
        if values:
            self._monitor.policies[episode.policy_id].episodes.set_family_metrics(values)
            scalars = {tag_of(metric): value for metric, value in values.items()}
            self._monitor.write(episode.policy_id, scalars)

    def _call(self, method: str, call: Callable[[], Result]) -> Result | None:
        """Returns what a method of the metrics returns. Switches them off if it raises."""
        try:
            return call()
        except (Exception, SystemExit) as error:  # any error of a user's code; sys.exit ends no run
            self._metrics = ()
            for policy in self._monitor.policies:
                policy.episodes.set_family_metrics({})
            self._publish(_switched_off(f"{self._name} are", method, error))
            return None


def _switched_off(who: str, method: str, error: BaseException) -> Incident:
    """Returns a report that user code is called no more. who: e.g. "observer 'own' is"."""
    text = f"{who} switched off, and training continues: {method} raised {one_line(error)}"
    return Incident("observer_errors", text, details="".join(traceback.format_exception(error)))


class _Numbers:
    """Selects the numbers among the values that user code returns; logs other values, once for each name."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def select(self, function: str, values: Any) -> dict[str, float]:
        """Returns the finite numbers by name. function: the function that has returned the values."""
        if not isinstance(values, Mapping):
            self._log_once(function, f"{function} returned {reprlib.repr(values)}; it should be a dict")
            return {}
        numbers = {}
        for name, value in values.items():
            number = to_float(value)
            if number is None or not isinstance(name, str) or not name.isprintable():
                shown = f"{reprlib.repr(name)}: {reprlib.repr(value)}"
                text = f"{function} returned {shown}, which is left out; it should map texts to numbers"
                self._log_once(f"{function} {reprlib.repr(name)}", text)
            elif math.isfinite(number):
                numbers[name] = number
        return numbers

    def _log_once(self, kind: str, text: str) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning("%s", text)
