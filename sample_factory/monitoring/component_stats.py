"""Means of the statistics that components report, and counts of incidents."""

import collections
import logging
import re
import statistics
from collections.abc import Callable, Iterable

from sample_factory.exchange.messages import INCIDENTS, Incident, StatsReport
from sample_factory.runtime.log import details, log

OF_NUMBERS = ("broken_numbers", "implausible_numbers")  # incidents
NUMBER = re.compile(r"-?(\d[\d.,e+-]*|nan|inf)")
KEEP_SECONDS = 20.0  # a component reports every 5 s, so each counts about equally in a mean over the reports

# (component, stat) -> v1's tag, where v1 had one; all others are stats/<component>_<stat>.
V1_TAGS = {
    ("rollout_worker", "wait"): "stats/wait_actor",
    ("rollout_worker", "env_step"): "stats/step_actor",
    ("rollout_worker", "memory_mb"): "stats/memory_actor",
    ("policy_worker", "wait"): "stats/wait_policy",
    ("policy_worker", "forward"): "stats/step_policy",
    ("policy_worker", "memory_mb"): "stats/memory_policy_worker",
    ("learner", "memory_mb"): "stats/memory_learner",
}


class ComponentStats:
    """Computes means of the statistics that components report, over the last KEEP_SECONDS, and counts
    incidents. A component's last report is kept even if it is older.
    incidents: kind -> number of incidents."""

    def __init__(self, now: Callable[[], float]):
        self._now = now
        self._reports: dict[tuple[str, int], collections.deque[tuple[float, StatsReport]]] = {}
        self.incidents = dict.fromkeys(INCIDENTS, 0)
        self._logged: set[str] = set()  # texts about numbers, without the numbers in them

    def add_incident(self, incident: Incident) -> None:
        """Counts an incident and logs its text, if any. Incidents about bad numbers are logged once for each
        cause, since every split of every worker sends one."""
        cause = NUMBER.sub("", incident.text)
        is_repeated = cause in self._logged
        if incident.kind in OF_NUMBERS:
            self._logged.add(cause)
        self.incidents[incident.kind] += incident.times
        if incident.text and not is_repeated:
            # The console shows a warning once, and TensorBoard how often it happened.
            level = logging.ERROR if incident.kind == "worker_restarts" else logging.WARNING
            log.log(level, incident.text, extra=details(incident.details))

    def add(self, report: StatsReport) -> None:
        """Adds a report, and discards reports of the same component and policy that are older than
        KEEP_SECONDS."""
        reports = self._reports.setdefault((report.component, report.policy_id), collections.deque())
        reports.append((self._now(), report))
        while reports[0][0] < self._now() - KEEP_SECONDS:
            reports.popleft()

    def waits(self) -> dict[str, float]:
        """Returns component -> mean share of its time, 0..1, in which it waits for other components."""
        return {component: stats["wait"] for component, stats in self.means().items() if "wait" in stats}

    def means(self) -> dict[str, dict[str, float]]:
        """Returns component -> name of a statistic -> mean over all processes of the component."""
        reports: dict[str, list[tuple[float, StatsReport]]] = {}
        for (component, _), of_policy in self._reports.items():
            reports.setdefault(component, []).extend(of_policy)
        return {component: _means(of_component) for component, of_component in reports.items()}

    def summaries(self, policy_id: int) -> dict[str, float]:
        """Returns the statistics of a policy's learner and policy workers for TensorBoard: tag -> mean.
        Policy 0 also gets statistics of the whole run: of rollout workers, and the counts of incidents."""
        scalars: dict[str, float] = {}
        if policy_id == 0:
            scalars.update({f"health/{kind}": count for kind, count in self.incidents.items()})
        for (component, policy), reports in self._reports.items():
            for name, mean in sorted(_means(reports).items()) if policy == policy_id else ():
                scalars[V1_TAGS.get((component, name), f"stats/{component}_{name}")] = mean
        return scalars


def _means(reports: Iterable[tuple[float, StatsReport]]) -> dict[str, float]:
    """Returns name of a statistic -> mean over the reports that contain it."""
    found: dict[str, list[float]] = {}
    for _, report in reports:
        for name, value in report.stats.items():
            found.setdefault(name, []).append(value)
    return {name: statistics.fmean(values) for name, values in found.items()}
