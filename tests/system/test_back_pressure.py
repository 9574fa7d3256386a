"""Faster components wait for slower ones: nothing is lost, and memory does not grow."""

import os
import time

import numpy as np
import psutil

from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.env_info import env_info
from sample_factory.exchange.channels import Channels, make_progress
from sample_factory.exchange.messages import EpisodeReport, Trajectories, reports_in
from sample_factory.exchange.policy_weights import PolicyWeights, Stamp
from sample_factory.exchange.topology import make_topology
from sample_factory.exchange.trajectory_buffers import NO_AGENT, KindLayout, TrajectoryBuffers
from sample_factory.launch.workers import sampling_specs
from sample_factory.mainloop.main_loop import Resources
from sample_factory.runtime.queues import SocketQueue
from sample_factory.runtime.supervisor import Limits, Supervisor, stop_all
from tests.counting import make_config, make_plan
from tests.crowd import AGENT, EPISODE, NUM_ACTIONS, STEP, CountingCrowd, make_crowd
from tests.system.running import SMALL, descendants, scalars, start, stop, wait_for_frames, wait_for_line
from tests.waiting import eventually

STEPS = 150_000
PATIENCE_SECONDS = 120.0
GROWTH_MB = 8.0  # of one process, beyond which its memory is not flat
# Of one core, by a process that mostly waits: about 0.05, more on a slower core. Unlike the share of
# time that a worker reports as waiting, it is the same on busy cores.
WAITING_CPU_SHARE = 0.4
# Between the shares of time that a component waits in two runs, of which only one makes it wait.
MARGIN = 0.2


def build_counting_policy_worker(*args):
    """In the child: a policy worker whose network is the counting model."""
    from sample_factory.models import towers
    from sample_factory.sampling.inference.policy_worker import PolicyWorker
    from tests.counting_model import CountingModel

    towers.make_actor_critic = CountingModel
    return PolicyWorker(*args)


class Sampling:
    """Rollout workers and a policy worker in processes; the test takes the place of the learner."""

    def __init__(self):
        config = make_config(
            num_workers=2, num_envs_per_worker=4, rollout=32, batch_size=32 * 640, use_rnn=True
        )
        info = env_info(adapt(CountingCrowd(0)), config.namespace())
        self.topology = make_topology(config, info)
        layout = KindLayout(info.kinds.spaces[0].observation, 1, 1)
        self.buffers = TrajectoryBuffers(self.topology, [layout], rnn_state_size=1)
        # Small queues are often full.
        self.inbox = SocketQueue(max_bytes=20_000)
        self.reports = SocketQueue(max_bytes=20_000)
        weights, workers = PolicyWeights(), range(self.topology.num_workers)
        weights.publish({"weight": np.zeros(1, np.float32)}, Stamp(0))
        progress = make_progress(self.topology)
        channels = Channels(
            [SocketQueue() for _ in workers], [SocketQueue()], [self.inbox], self.reports, [weights], progress
        )
        family = EnvFamily("counting", make_crowd, None, {})
        resources = Resources(self.buffers, channels)
        specs = sampling_specs(make_plan(config, CountingCrowd(0), family).sampling)
        policy_worker, *rollout_workers = specs
        policy_worker = policy_worker._replace(factory=build_counting_policy_worker)
        self.policy_worker = policy_worker.make_child(resources)
        self.rollout_workers = [spec.make_child(resources) for spec in rollout_workers]
        self.children = [self.policy_worker, *self.rollout_workers]


class Ledger:
    """The steps of every agent so far; fails unless each comes once and in order."""

    def __init__(self, sampling: Sampling):
        self._shared = sampling.buffers
        self._sampling = sampling
        self.steps_seen = self.reports_seen = 0
        self._next = np.zeros((sampling.topology.num_agents, 2))  # episode and step that must come next

    @property
    def episodes(self) -> int:
        """Number of episodes that have ended in the booked steps."""
        return int(self._next[:, 0].sum())

    def book(self, buffers: np.ndarray) -> None:
        """Checks full buffers, at most one of each agent, and counts their steps."""
        lines_up(self._shared, buffers)
        obs = self._shared.obs["obs"][buffers]
        agents = obs[:, 0, AGENT].astype(int)
        assert len(set(agents)) == len(agents)
        assert (obs[:, 0, [EPISODE, STEP]] == self._next[agents]).all(), "steps are missing or repeated"
        self._next[agents] = obs[:, -1, [EPISODE, STEP]]
        self.steps_seen += buffers.size * self._shared.topology.rollout

    def read_reports(self, timeout: float) -> None:
        for report in reports_in(self._sampling.reports.get_many(timeout)):
            if isinstance(report, EpisodeReport):
                assert report.reward == report.length * (report.length + 1) / 2
                self.reports_seen += 1

    def read_tickets(self, timeout: float) -> list[np.ndarray]:
        tickets = self._sampling.inbox.get_many(timeout)
        assert all(isinstance(ticket, Trajectories) for ticket in tickets)
        found = [np.array(ticket.buffer_indices) for ticket in tickets]
        for buffers in found:
            self.book(buffers)
        return found


def lines_up(shared: TrajectoryBuffers, buffers: np.ndarray) -> None:
    """Checks that every row of these full buffers follows from the row before it."""
    obs, outputs = shared.obs["obs"][buffers], shared.outputs[buffers]
    ended = shared.terminated[buffers] | shared.truncated[buffers]
    present = obs[:, :-1]
    following = obs[:, 1:]
    assert (following[..., AGENT] == present[..., AGENT]).all()
    assert (following[..., EPISODE] == present[..., EPISODE] + ended).all()
    assert (following[..., STEP] == np.where(ended, 0, present[..., STEP] + 1)).all()
    assert (shared.rewards[buffers] == present[..., STEP] + 1).all()
    assert (shared.policy_ids[buffers] == 0).all() and (shared.versions[buffers] == 0).all()
    acted = (present[..., STEP] + 10 * present[..., EPISODE]) % NUM_ACTIONS
    assert (outputs[..., 0] == acted).all() and (following[..., 3] == acted).all(), "another action was taken"
    assert (outputs[..., 2] == present[..., STEP]).all(), "the model's state is the steps of the episode"


def wait_until_full(queue: SocketQueue) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while queue.put("probe", keep_waiting=lambda: False):
        assert time.monotonic() < deadline, "the queue does not fill up"
        time.sleep(0.005)


def standstill_tickets(topology) -> int:
    """Returns the number of tickets after which no worker has buffers for another rollout."""
    spare = topology.buffers_per_worker - topology.agents_per_worker
    return topology.num_workers * (spare // topology.agents_per_split)


def wait_for_standstill(sampling: Sampling, ledger: Ledger) -> np.ndarray:
    """Plays a learner that is busy until all others wait for it; returns the buffers that it holds then."""
    wait_until_full(sampling.reports)
    held = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(held) < standstill_tickets(sampling.topology):
        assert time.monotonic() < deadline, f"only {len(held)} tickets came"
        ledger.read_reports(timeout=0.0)
        held += ledger.read_tickets(timeout=0.002)
    ledger.read_reports(timeout=0.0)
    assert ledger.read_tickets(timeout=0.0) == [], "a worker used buffers that the learner holds"
    return np.concatenate(held)


def book_unfinished(sampling: Sampling, ledger: Ledger) -> None:
    """Books, at a standstill, the full rollouts that wait for buffers to replace them."""
    owned = np.flatnonzero(sampling.buffers._owner != NO_AGENT)
    deadline = time.monotonic() + PATIENCE_SECONDS
    assert len(owned) == sampling.topology.num_agents
    while True:
        ledger.read_reports(timeout=0.002)
        try:
            return ledger.book(owned)
        except AssertionError:  # some are not full yet
            if time.monotonic() > deadline:
                raise


def fast_round(sampling: Sampling, ledger: Ledger, count: int) -> None:
    """Plays a learner that waits for every ticket."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while count > 0:
        assert time.monotonic() < deadline, f"{count} tickets are missing"
        ledger.read_reports(timeout=0.0)
        for buffers in ledger.read_tickets(timeout=0.002):
            sampling.buffers.release(buffers, 0)
            count -= 1


def private_mb(pid: int) -> float:
    memory = psutil.Process(pid).memory_info()
    return (memory.rss - memory.shared) / 2**20


def shared_mb(pids: list[int]) -> float:
    """Returns the size of all the unnamed files that these processes hold open."""
    sizes = {}
    for pid in pids:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{descriptor}"
            try:
                if os.readlink(path).startswith("/memfd:"):
                    about = os.stat(path)
                    sizes[about.st_ino] = about.st_size
            except FileNotFoundError:
                continue  # closed since it was listed
    return sum(sizes.values()) / 2**20


def cpu_seconds(pids: list[int]) -> dict[int, float]:
    """Returns the CPU time that each process has used so far."""
    used = {pid: psutil.Process(pid).cpu_times() for pid in pids}
    return {pid: times.user + times.system for pid, times in used.items()}


class Memory:
    """Memory of processes after the warm-up, to be compared with later."""

    def __init__(self, pids: list[int]):
        self._shared = shared_mb(pids)
        self._private = {pid: private_mb(pid) for pid in pids}

    def assert_flat(self) -> None:
        assert shared_mb(list(self._private)) == self._shared
        grown = {pid: private_mb(pid) - before for pid, before in self._private.items()}
        print(f"shared {self._shared:.1f} MB; private {self._private}, grown by {grown} MB")
        assert max(grown.values()) < GROWTH_MB, f"{self._private} MB grew by {grown}"


def test_all_steps_reach_a_slow_and_a_fast_learner_once_each_in_order_and_in_flat_memory():
    sampling = Sampling()
    ledger = Ledger(sampling)
    memory = None
    children = sampling.children
    topology = sampling.topology
    with Supervisor(children, sampling.rollout_workers, Limits(start_seconds=60)) as supervisor:
        supervisor.start_all()
        while not supervisor.is_ready:
            supervisor.check(restarts=False)
            ledger.read_reports(timeout=0.1)
        while ledger.steps_seen < STEPS:
            sampling.buffers.release(wait_for_standstill(sampling, ledger), 0)
            fast_round(sampling, ledger, 2 * standstill_tickets(topology))
            assert supervisor.check() == {}
            if memory is None and ledger.steps_seen > STEPS / 5:
                memory = Memory([child.pid for child in children])
        memory.assert_flat()
        # At last nothing is released, so that every step can be counted.
        wait_for_standstill(sampling, ledger)
        book_unfinished(sampling, ledger)
        assert eventually(lambda: ledger.read_reports(0.0) or ledger.reports_seen >= ledger.episodes)
        assert stop_all(children, 15) == ([], {})
    ledger.read_reports(timeout=0.0)
    assert ledger.reports_seen == ledger.episodes


def test_runs_with_a_far_slower_learner_and_with_a_far_slower_env_wait_in_flat_memory(tmp_path, monkeypatch):
    """Both runs at once: they mostly sleep."""
    flags = ["--env=unbalanced", "--encoder_custom=slow_in_training", *SMALL, "--batch_size=64"]
    flags.append("--status_interval=5")  # memory that grows needs time to be seen
    runs = {}
    for slow, seconds in (("ENV", "0.06"), ("LEARNER", "0.8")):
        with monkeypatch.context() as patch:
            patch.setenv(f"SLOW_{slow}_SECONDS", seconds)
            runs[slow] = start("unbalanced.py", tmp_path, *flags, f"--experiment={slow}")
    for process in runs.values():
        wait_for_line(process, "All processes are ready")
    frames = [wait_for_frames(process, 0) for process in runs.values()]
    children = [child for process in runs.values() for child in descendants(process)]
    pids = [child.pid for child in children]
    memory = Memory(pids)
    began = time.monotonic()
    used_before = cpu_seconds(pids)
    for process, seen in zip(runs.values(), frames):
        wait_for_frames(process, wait_for_frames(process, seen))
    memory.assert_flat()
    seconds = time.monotonic() - began
    shares = [(used - used_before[pid]) / seconds for pid, used in cpu_seconds(pids).items()]
    assert max(shares) < WAITING_CPU_SHARE, f"waiting must be asleep, not busy: {shares}"
    for process in runs.values():
        stop(process)
    written = {slow: scalars(tmp_path / slow) for slow in runs}
    waits = {slow: found["stats/wait_actor"][-1][1] for slow, found in written.items()}
    # Shares of wall time: where other programs keep the cores busy, every answer of a policy worker takes
    # longer, so only differences are compared.
    assert waits["LEARNER"] > waits["ENV"] + MARGIN, f"rollout workers wait for a slow learner: {waits}"
    learner_waits = {slow: found["stats/learner_wait"][-1][1] for slow, found in written.items()}
    assert learner_waits["ENV"] > learner_waits["LEARNER"] + MARGIN, (
        f"a learner waits for slow envs: {learner_waits}"
    )
