"""How many machines can sample for one learner? A table by formula, and a simulation of the queues.

    python examples/cluster_capacity.py
    python examples/cluster_capacity.py --out=capacity.png

The costs were measured with doom_battle, see sample_factory/cluster/README.md; for another env, replace them.
"""

import argparse
import collections
import heapq
import itertools
import random
from dataclasses import dataclass

FRAMES = 128  # env frames of a trajectory: 32 steps of 4
BATCH = 64  # trajectories
PULL = (16, 64)  # trajectories in an answer, at least and at most
PULLS_IN_FLIGHT = 2
THREADS = 4
AGENTS = 256  # of a node; it has buffers for twice as many trajectories
LATENCY = 0.0002  # seconds
USABLE = 0.94  # of the bandwidth: the rest are headers


@dataclass(frozen=True)
class Costs:
    """Core-seconds and megabytes per trajectory, unless another unit is given."""

    sample: float = 0.031  # simulation, inference, rollout workers
    pack: float = 0.0025  # on the node, by THREADS threads
    unpack: float = 0.0013  # on the learner's machine, by THREADS threads
    write: float = 0.0002  # there, by one thread
    call: float = 0.004  # core-seconds of an answer, in the same thread
    megabytes: float = 0.155  # compressed
    weights: float = 12.8  # megabytes of a version
    learner: float = 150_000  # env frames per second that the learner trains on, without waiting


@dataclass(frozen=True)
class Cluster:
    """Machines that sample, beside the learner's. gigabits: bandwidth per second of the learner's machine."""

    nodes: int
    cores: int
    gigabits: float

    def rates(self, costs: Costs) -> dict[str, float]:
        """Returns the trajectories per second that each part of the system could handle alone."""
        return {
            "sampling": self.nodes * self.cores / (costs.sample + costs.pack),
            "network": self.bandwidth / costs.megabytes,
            "ingest": 1 / (costs.unpack / THREADS + costs.write + costs.call / PULL[1]),
            "learner": costs.learner / FRAMES,
        }

    @property
    def bandwidth(self) -> float:
        """Megabytes per second in each direction."""
        return self.gigabits * 125 * USABLE

    def weights_lag(self, costs: Costs, rate: float) -> float:
        """Returns the SGD steps that pass while all nodes fetch a version. rate: trajectories per second."""
        return self.nodes * costs.weights / self.bandwidth * rate / BATCH


class Simulation:
    """Queues of a cluster, event by event. Each part serves in the order of arrival."""

    def __init__(self, cluster: Cluster, costs: Costs, seed: int):
        self._cluster = cluster
        self._costs = costs
        self._rng = random.Random(seed)
        self._events: list = []  # (time, number, function, arguments)
        self._number = itertools.count()
        self._now = 0.0
        self._full: list[collections.deque[float]] = [collections.deque() for _ in range(cluster.nodes)]
        self._is_blocked = [False] * cluster.nodes
        self._pulls = [0] * cluster.nodes  # that wait for trajectories
        self._free_at = collections.defaultdict(float)  # part -> when it has served all that has arrived
        self._unstored: collections.deque = collections.deque()
        self._stored: collections.deque[float] = collections.deque()
        self._is_training = False
        self.ages: list[float] = []  # seconds from the end of a trajectory to its training

    def run(self, seconds: float, warm_up: float) -> tuple[float, float]:
        """Returns trajectories per second and their median age, both after `warm_up` seconds."""
        for node in range(self._cluster.nodes):
            self._at(self._rng.random() * self._interval, self._fill, node)
            for _ in range(PULLS_IN_FLIGHT):
                self._at(LATENCY, self._pulled, node)
        num_before = 0
        while self._now < warm_up + seconds:
            if self._now < warm_up:
                num_before = len(self.ages)
            self._now, _, function, arguments = heapq.heappop(self._events)
            function(*arguments)
        ages = sorted(self.ages[num_before:])
        return len(ages) / seconds, ages[len(ages) // 2] if ages else float("nan")

    @property
    def _interval(self) -> float:
        return (self._costs.sample + self._costs.pack) / self._cluster.cores

    def _at(self, time: float, function, *arguments) -> None:
        heapq.heappush(self._events, (time, next(self._number), function, arguments))

    def _serve(self, part: str, seconds: float) -> float:
        """Returns when the part has served what arrives now."""
        self._free_at[part] = max(self._now, self._free_at[part]) + seconds
        return self._free_at[part]

    def _fill(self, node: int) -> None:
        """A trajectory is complete."""
        self._full[node].append(self._now)
        if len(self._full[node]) < AGENTS:
            self._at(self._now + self._interval * self._rng.uniform(0.5, 1.5), self._fill, node)
        else:
            self._is_blocked[node] = True
        self._answer(node)

    def _pulled(self, node: int) -> None:
        """A call of the ingest process arrives at a node."""
        self._pulls[node] += 1
        self._answer(node)

    def _answer(self, node: int) -> None:
        if not self._pulls[node] or len(self._full[node]) < PULL[0]:
            return
        self._pulls[node] -= 1
        born = [self._full[node].popleft() for _ in range(min(PULL[1], len(self._full[node])))]
        if self._is_blocked[node]:
            self._is_blocked[node] = False
            self._at(self._now + self._interval, self._fill, node)
        packed = self._serve(f"node {node}", len(born) * self._costs.pack / THREADS)
        self._at(packed, self._sent, node, born)

    def _sent(self, node: int, born: list[float]) -> None:
        arrived = self._serve("network", len(born) * self._costs.megabytes / self._cluster.bandwidth)
        self._at(arrived + LATENCY, self._arrived, node, born)

    def _arrived(self, node: int, born: list[float]) -> None:
        of_each = self._costs.unpack / THREADS + self._costs.write
        unpacked = self._serve("ingest", self._costs.call + len(born) * of_each)
        self._at(unpacked, self._unpacked, node, born)

    def _unpacked(self, node: int, born: list[float]) -> None:
        self._unstored.append((node, born))
        self._store()

    def _store(self) -> None:
        """Stores what finds free buffers, and calls these nodes again."""
        while self._unstored and len(self._stored) + len(self._unstored[0][1]) <= 2 * BATCH:
            node, born = self._unstored.popleft()
            self._stored.extend(born)
            self._at(self._now + LATENCY, self._pulled, node)
        if not self._is_training and len(self._stored) >= BATCH:
            self._is_training = True
            batch = [self._stored.popleft() for _ in range(BATCH)]
            self._at(self._now + BATCH * FRAMES / self._costs.learner, self._trained, batch)
            self._store()

    def _trained(self, batch: list[float]) -> None:
        self.ages.extend(self._now - born for born in batch)
        self._is_training = False
        self._store()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--gigabits", type=float, nargs="+", default=[1, 10, 25])
    parser.add_argument("--cores", type=int, default=16, help="of each node")
    parser.add_argument("--learner", type=float, default=Costs.learner, help="env frames per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated time")
    parser.add_argument("--out", help="also draw it: a .png, .svg or .pdf file")
    arguments = parser.parse_args()
    costs = Costs(learner=arguments.learner)
    rows = []
    print("| Gbit/s | nodes | env frames/s | saturates first | simulated | median age | weights' lag |")
    print("|---|---|---|---|---|---|---|")
    for gigabits, nodes in itertools.product(arguments.gigabits, arguments.nodes):
        cluster = Cluster(nodes, arguments.cores, gigabits)
        rates = cluster.rates(costs)
        first = min(rates, key=lambda part: rates[part])
        simulated, age = Simulation(cluster, costs, seed=1).run(arguments.seconds, warm_up=5.0)
        lag = cluster.weights_lag(costs, rates[first])
        rows.append((gigabits, nodes, simulated * FRAMES))
        print(
            f"| {gigabits:g} | {nodes} | {rates[first] * FRAMES:,.0f} | {first} | {simulated * FRAMES:,.0f} "
            f"| {age:.2f} s | {lag:.1f} |"
        )
    if arguments.out:
        draw(rows, arguments.cores, costs, arguments.out)


def draw(rows: list[tuple[float, int, float]], cores: int, costs: Costs, out: str) -> None:
    """Draws the rate over the number of nodes: lines by formula, dots simulated."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    numbers = sorted({nodes for _, nodes, _ in rows})
    every = range(numbers[0], numbers[-1] + 1)
    for color, gigabits in enumerate(sorted({row[0] for row in rows})):
        dots = [(nodes, simulated) for found, nodes, simulated in rows if found == gigabits]
        line = [min(Cluster(nodes, cores, gigabits).rates(costs).values()) * FRAMES for nodes in every]
        axes.plot(every, line, color=f"C{color}", linewidth=4 - color, label=f"{gigabits:g} Gbit/s")
        axes.plot(*zip(*dots), "o", color=f"C{color}", markersize=9 - 2 * color)
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, [str(number) for number in numbers])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("machines that sample, beside the learner's")
    axes.set_ylabel("env frames per second")
    axes.set_title("doom_battle: by formula (lines) and simulated (dots)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    main()
