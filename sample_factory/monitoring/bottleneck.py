"""The part that limits the speed of a run, and whether more envs would make it faster."""

import math
from collections.abc import Mapping

from sample_factory.exchange.topology import Topology

# Component -> (its part of the work, the name of its processes in logs).
PARTS = {
    "rollout_worker": ("simulation", "rollout workers"),
    "policy_worker": ("inference", "policy workers"),
    "learner": ("learner", "learner"),
}
SAME = 0.05  # shares closer than this count as equal: they are means over a few seconds
IDLE = 0.5  # a run whose components all wait for longer than this share has no bottleneck
# A request for actions with fewer agents leaves a forward pass and its messages mostly unused.
FEW_AGENTS = 8
MUCH_WAIT = 0.3  # share of the time of a part that could do more


def bottlenecks(waits: Mapping[str, float]) -> list[str]:
    """Returns the busiest component and all components that are about as busy; empty if all wait for most of
    their time.
    waits: component -> share of its time, 0..1, in which it waits for other components. All wait for the
        slowest one, which hardly waits."""
    if not waits:
        return []
    least = min(waits.values())
    if least > IDLE:
        return []
    return [component for component in PARTS if component in waits and waits[component] <= least + SAME]


def describe_bottleneck(waits: Mapping[str, float]) -> str:
    """Returns a text such as "bottleneck: learner (busy 98 %; rollout workers wait 61 %)"; empty while fewer
    than two components have reported.
    waits: component -> share of its time, 0..1, in which it waits for others."""
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


def better_num_envs(
    waits: Mapping[str, float], num_splits: int, envs_per_split: int, agents_per_env: int
) -> int | None:
    """Returns a value of --num_envs_per_worker that most likely makes the run faster; None if there is none.
    More envs per worker make requests for actions larger. That helps if rollout workers wait for actions
    while the learner waits for samples. Must not be called with --async_rl=False, since both always wait
    then.
    waits: component -> share of its time, 0..1, in which it waits for others."""
    if envs_per_split * agents_per_env >= FEW_AGENTS:
        return None
    if min(waits.get("rollout_worker", 0.0), waits.get("learner", 0.0)) < MUCH_WAIT:
        return None
    return num_splits * math.ceil(FEW_AGENTS / agents_per_env)


class BottleneckWatch:
    """Describes the component that limits the speed of a run, whenever another component has become the
    slowest."""

    def __init__(self, topology: Topology):
        self._topology = topology
        self._shown: list[str] = []  # what limited the run when it was described last
        self._last: list[str] = []  # in the last call

    def news(self, waits: Mapping[str, float]) -> str:
        """Returns a short text if the bottleneck has changed and was the same in the last two calls;
        otherwise "".
        waits: component -> share of its time, 0..1, in which it waits for others."""
        if len(waits.keys() & PARTS.keys()) < 2:
            return ""
        few_envs = self._few_envs(waits)
        limiting = ["envs"] if few_envs else bottlenecks(waits)
        is_stable = limiting == self._last
        self._last = limiting
        if not is_stable or limiting == self._shown:
            return ""
        self._shown = limiting
        if few_envs:
            return few_envs
        if len(limiting) in (0, len(PARTS)):
            return "bottleneck: none in particular"
        busiest = " and ".join(PARTS[component][0] for component in limiting)
        return f"bottleneck: {busiest}, busy {_percent(1 - min(waits[part] for part in limiting))}"

    def _few_envs(self, waits: Mapping[str, float]) -> str:
        """Returns the advice of `better_num_envs` as two lines of text; empty if there is none.
        waits: component -> share of its time, 0..1, in which it waits for others."""
        sizes = self._topology
        num_envs = better_num_envs(waits, sizes.num_splits, sizes.envs_per_split, sizes.agents_per_env)
        if num_envs is None or sizes.rollouts_per_iteration is not None:  # with --async_rl=False
            return ""
        waiting = _waiting("rollout_worker", waits["rollout_worker"])
        return (
            f"bottleneck: few envs per worker ({waiting})\n"
            f"try --num_envs_per_worker={num_envs} (see python -m sample_factory benchmark)"
        )
