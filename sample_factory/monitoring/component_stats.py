"""What the components say about themselves, averaged over each kind of component."""

import collections
import logging
from collections.abc import Callable

from sample_factory.exchange.messages import INCIDENTS, Incident, StatsReport

log = logging.getLogger("sample_factory")

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
    """The reports of the last KEEP_SECONDS. Where there are none, as of a learner whose iterations take
    longer, the last one stands.
    """

    def __init__(self, now: Callable[[], float]):
        self._now = now
        self._reports: dict[tuple[str, int], collections.deque[tuple[float, StatsReport]]] = {}
        self._incidents = dict.fromkeys(INCIDENTS, 0)

    def add_incident(self, incident: Incident) -> None:
        """Counts it, and logs what there is to say."""
        self._incidents[incident.kind] += incident.times
        if incident.text:
            log.error(incident.text)

    def add(self, report: StatsReport) -> None:
        reports = self._reports.setdefault((report.component, report.policy_id), collections.deque())
        reports.append((self._now(), report))
        while reports[0][0] < self._now() - KEEP_SECONDS:
            reports.popleft()

    def waits(self) -> dict[str, float]:
        """Component -> mean share of its time, 0..1, that it waits for others."""
        found: dict[str, list[float]] = {}
        for (component, _), reports in self._reports.items():
            found.setdefault(component, []).extend(_values(reports, "wait"))
        return {component: _mean(values) for component, values in found.items() if values}

    def means(self) -> dict[str, dict[str, float]]:
        """Returns component -> stat -> mean over all processes of the component."""
        found: dict[str, dict[str, list[float]]] = {}
        for (component, _), reports in self._reports.items():
            stats = found.setdefault(component, {})
            for _, report in reports:
                for name, value in report.stats.items():
                    stats.setdefault(name, []).append(value)
        return {
            component: {name: _mean(values) for name, values in stats.items()}
            for component, stats in found.items()
        }

    def summaries(self, policy_id: int) -> dict[str, float]:
        """Tag -> mean over the components that serve a policy (rollout workers count as policy 0's)."""
        # What is about the whole run stands with policy 0.
        scalars = {f"0_aux/{kind}": n for kind, n in self._incidents.items()} if policy_id == 0 else {}
        for (component, policy), reports in self._reports.items():
            names = {name for _, report in reports for name in report.stats} if policy == policy_id else ()
            for name in sorted(names):
                tag = V1_TAGS.get((component, name), f"stats/{component}_{name}")
                scalars[tag] = _mean(_values(reports, name))
        return scalars


def _values(reports, name: str) -> list[float]:
    return [report.stats[name] for _, report in reports if name in report.stats]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
