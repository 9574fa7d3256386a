"""Finds the part of a run that limits its speed."""

from collections.abc import Mapping

# Component -> (its part of the work, the name of its processes in logs).
PARTS = {
    "rollout_worker": ("simulation", "rollout workers"),
    "policy_worker": ("inference", "policy workers"),
    "learner": ("learner", "learner"),
}
SAME = 0.05  # shares closer than this count as equal: they are means over a few seconds
IDLE = 0.5  # a run whose components all wait for longer than this share has no bottleneck


def bottlenecks(waits: Mapping[str, float]) -> list[str]:
    """Returns the busiest component and those about as busy; none if all wait for most of their time.

    waits: component -> share of its time, 0..1, in which it waits for others. Every part of a run waits for
        the slowest, which does not wait.
    """
    if not waits:
        return []
    least = min(waits.values())
    if least > IDLE:
        return []
    return [component for component in PARTS if component in waits and waits[component] <= least + SAME]


def describe_bottleneck(waits: Mapping[str, float]) -> str:
    """Returns a text such as "bottleneck: learner (busy 98 %; rollout workers wait 61 %)".

    waits: see `bottlenecks`. The text is empty while fewer than two components have reported.
    """
    known = {component: waits[component] for component in PARTS if component in waits}
    if len(known) < 2:
        return ""
    busiest = bottlenecks(known)
    if len(busiest) in (0, len(known)):
        waiting = ", ".join(_waiting(component, wait) for component, wait in known.items())
        return f"bottleneck: none in particular ({waiting})"
    names = " and ".join(PARTS[component][0] for component in busiest)
    busy = " and ".join(_percent(1 - known[component]) for component in busiest)
    others = [_waiting(component, wait) for component, wait in known.items() if component not in busiest]
    return f"bottleneck: {names} ({'; '.join([f'busy {busy}', *others])})"


def _waiting(component: str, wait: float) -> str:
    name = PARTS[component][1]
    return f"{name} {'wait' if name.endswith('s') else 'waits'} {_percent(wait)}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
