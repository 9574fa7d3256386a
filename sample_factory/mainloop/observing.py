"""Calls user code that follows a run: observers, and the metrics of an env's family."""

import inspect
import math
import reprlib
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.envs.end_infos import to_float
from sample_factory.envs.env_family import FamilyMetrics
from sample_factory.exchange.messages import EpisodeReport, Incident, PolicyReplaced, Report, TrainReport
from sample_factory.mainloop.observed_run import ObservedRun
from sample_factory.mainloop.observer import Observer, ObserverFactory, selected_observers
from sample_factory.monitoring.monitor import Monitor
from sample_factory.monitoring.policy_progress import tag_of
from sample_factory.monitoring.subscriber import Subscriber
from sample_factory.runtime.clock import Every
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.log import log
from sample_factory.runtime.registry import resolve

Result = TypeVar("Result")


def make_observers(config: Config) -> dict[str, Observer]:
    """Makes the observers that --observers selects; returns name -> observer. Raises ConfigError for an
    unknown name, and for an observer that cannot be made, or cannot be called because a method has other
    parameters than in Observer."""
    selected = selected_observers(config.run.observers)
    return {name: _make(name, factory) for name, factory in selected.items()}


def follows_episodes(observers: Mapping[str, Observer]) -> bool:
    """Returns whether at least one observer overrides `on_episode`. Workers send the infos of episodes only
    if so."""
    return any(
        observer.on_episode != types.MethodType(Observer.on_episode, observer)
        for observer in observers.values()
    )


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
    """Raises ConfigError if a method of the observer has other parameters than in class Observer."""
    for method, expected in inspect.getmembers(Observer, inspect.isfunction):
        parameters = list(inspect.signature(expected).parameters)
        own = inspect.signature(getattr(observer, method))
        try:
            own.bind(*parameters[1:])
        except TypeError:
            raise ConfigError(
                f"observer {name!r}: {type(observer).__name__}.{method} has the parameters "
                f"{own}; they should be ({', '.join(parameters)})"
            ) from None


class _UserCode:
    """Calls methods of a user's object until one raises; from then on, `call` does nothing."""

    def __init__(self, name: str, verb: str, publish: Callable[[Report], None]):
        """Sets the beginning of log lines: name "observer 'mine'" and verb "is" make "observer 'mine' is
        switched off". publish: hands an Incident to all subscribers."""
        self._name = name
        self._verb = verb
        self._publish = publish
        self._logged: set[str] = set()
        self.is_on = True

    def call(self, method: str, function: Callable[..., Result], *args: Any) -> Result | None:
        """Calls function(*args) and returns its result; None if it raises, which is published as an incident,
        or if the object is switched off.
        method: name of the function, for the log."""
        if not self.is_on:
            return None
        try:
            return function(*args)
        except (Exception, SystemExit) as error:  # any error of a user's code; sys.exit ends no run
            self.is_on = False
            reason = f"{method} raised {one_line(error)}"
            text = f"{self._name} {self._verb} switched off, and training continues: {reason}"
            trace = "".join(traceback.format_exception(error))
            self._publish(Incident("observer_errors", text, details=trace))
            return None

    def numbers(self, method: str, values: Any) -> dict[str, float]:
        """Returns the finite numbers among the values that a method has returned, name -> number. Logs other
        values, once for each name."""
        source = f"{self._name}: {method} returned"
        if not isinstance(values, Mapping):
            self._log_once(method, f"{source} {reprlib.repr(values)}; it should be a dict")
            return {}
        numbers = {}
        for name, value in values.items():
            number = to_float(value)
            if number is None or not isinstance(name, str) or not name.isprintable():
                shown = f"{reprlib.repr(name)}: {reprlib.repr(value)}"
                text = f"{source} {shown}, which is left out; it should map texts to numbers"
                self._log_once(f"{method} {reprlib.repr(name)}", text)
            elif math.isfinite(number):
                numbers[name] = number
        return numbers

    def _log_once(self, kind: str, text: str) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning("%s", text)


class ObserversSubscriber(Subscriber):
    """In the main process: calls the methods of all observers, in the order in which they were registered. An
    observer that raises is switched off."""

    def __init__(
        self,
        observers: Mapping[str, Observer],
        run: ObservedRun,
        monitor: Monitor,
        publish: Callable[[Report], None],
        summaries_interval: float,
    ):
        """Calls `on_init` of all observers. Raises ConfigError if one raises, since nothing has started yet.
        publish: hands a report to all subscribers. summaries_interval: seconds between `extra_summaries`."""
        self._observers = [
            (observer, _UserCode(f"observer {name!r}", "is", publish)) for name, observer in observers.items()
        ]
        self._run = run
        self._monitor = monitor
        self._follows_episodes = follows_episodes(observers)
        self._has_started = False
        # Policies whose learner has sent its first report, with the counters that it has restored.
        self._restored: set[int] = set()
        self._time_to_summarise = Every(summaries_interval)
        for name, observer in observers.items():
            try:
                observer.on_init(run)
            except Exception as error:  # any error of a user's code
                raise ConfigError(f"observer {name!r}: on_init raised {one_line(error)}") from error

    def handle(self, report: Report) -> None:
        match report:
            case EpisodeReport() if self._follows_episodes:
                for observer, code in self._observers:
                    code.call("on_episode", observer.on_episode, self._run, report)
            case TrainReport():
                if report.policy_id in self._restored:
                    for observer, code in self._observers:
                        code.call("on_training_step", observer.on_training_step, self._run, report)
                self._restored.add(report.policy_id)

    def tick(self) -> None:
        if not self._has_started:
            self._has_started = True
            for observer, code in self._observers:
                code.call("on_start", observer.on_start, self._run)
        if self._time_to_summarise():
            self._summarise()

    def close(self) -> None:
        self._summarise()
        for observer, code in self._observers:
            code.call("on_stop", observer.on_stop, self._run)

    def _summarise(self) -> None:
        for policy_id in sorted(self._restored):
            for observer, code in self._observers:
                values = code.call("extra_summaries", observer.extra_summaries, self._run, policy_id)
                if code.is_on:
                    self._monitor.write(policy_id, code.numbers("extra_summaries", values))


class FamilyMetricsSubscriber(Subscriber):
    """In the main process: computes the metrics that the env's family defines, from the episodes of each
    policy, and writes them as summaries. Metrics that raise are switched off."""

    def __init__(
        self,
        make_metrics: type[FamilyMetrics],
        env_name: str,
        monitor: Monitor,
        publish: Callable[[Report], None],
    ):
        """Makes the metrics of each policy. publish: hands a report to all subscribers. Raises ConfigError if
        `make_metrics` raises."""
        name = f"the metrics of env {env_name!r}"
        self._code = _UserCode(name, "are", publish)
        self._monitor = monitor
        try:
            self._metrics = [make_metrics(env_name) for _ in monitor.policies]
        except Exception as error:  # any error of a user's code
            raise ConfigError(f"{name} cannot be made: {one_line(error)}") from error

    def handle(self, report: Report) -> None:
        if not self._code.is_on:
            return
        match report:
            case EpisodeReport():
                self._add(report)
            case PolicyReplaced():
                self._code.call("clear", self._metrics[report.policy_id].clear)
        if not self._code.is_on:  # nothing may be decided by values of the past
            for policy in self._monitor.policies:
                policy.episodes.clear_family_metrics()

    def _add(self, episode: EpisodeReport) -> None:
        returned = self._code.call("add", self._metrics[episode.policy_id].add, episode.extra_stats)
        values = self._code.numbers("add", {} if returned is None else returned)
        if values:
            self._monitor.policies[episode.policy_id].episodes.update_family_metrics(values)
            scalars = {tag_of(metric): value for metric, value in values.items()}
            self._monitor.write(episode.policy_id, scalars)
