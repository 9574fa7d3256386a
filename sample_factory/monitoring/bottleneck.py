"""Which part of a run limits its speed."""

from collections.abc import Mapping

# Component -> (the part of the work it does, what to call its processes).
PARTS = {
    "rollout_worker": ("simulation", "rollout workers"),
    "policy_worker": ("inference", "policy workers"),
    "learner": ("learner", "learner"),
}
SAME = 0.05  # shares closer than this are not told apart: they are means over a few seconds
IDLE = 0.5


def bottlenecks(waits: Mapping[str, float]) -> list[str]:
    """The busiest component and those about as busy; empty when none is busy for even half of its time.

    waits: component -> share of its time, 0..1, that it waits for others. Every part of a run waits for the
    slowest, which waits for nobody.
    """
    if not waits:
        return []
    least = min(waits.values())
    if least > IDLE:
        return []
    return [component for component in PARTS if component in waits and waits[component] <= least + SAME]


def describe_bottleneck(waits: Mapping[str, float]) -> str:
    """In words, e.g. "bottleneck: learner (busy 98 %; rollout workers wait 61 %)".

    waits: as of `bottlenecks`. Empty while fewer than two of the components are known.
    """
    known = {component: waits[component] for component in PARTS if component in waits}
    if len(known) < 2:
        return ""
    guilty = bottlenecks(known)
    if len(guilty) in (0, len(known)):
        waiting = ", ".join(_waiting(component, wait) for component, wait in known.items())
        return f"bottleneck: none in particular ({waiting})"
    names = " and ".join(PARTS[component][0] for component in guilty)
    busy = " and ".join(_percent(1 - known[component]) for component in guilty)
    others = [_waiting(component, wait) for component, wait in known.items() if component not in guilty]
    return f"bottleneck: {names} ({'; '.join([f'busy {busy}', *others])})"


def _waiting(component: str, wait: float) -> str:
    name = PARTS[component][1]
    return f"{name} {'wait' if name.endswith('s') else 'waits'} {_percent(wait)}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
