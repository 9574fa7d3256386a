"""Stand-ins for SnapshotMeasurement. A module of its own: a child that imports little starts soon."""

from sample_factory.evaluation.result_statistics import mean_and_std


class Rewards:
    """The rewards are the contents of the snapshot; it fails without any."""

    def __init__(self, plan, snapshot, context):
        with open(snapshot.path) as file:
            self._rewards = [float(word) for word in file.read().split()]

    def run(self):
        if not self._rewards:
            raise RuntimeError("the env cannot be made")
        return {"reward": mean_and_std(self._rewards), "kills": mean_and_std([3.0])}


class Hangs:
    """Waits for ever, in the start or after it, or steps for ever, as the snapshot says; otherwise, it
    contains the reward."""

    def __init__(self, plan, snapshot, context):
        with open(snapshot.path) as file:
            self._where = file.read()
        self._context = context
        if self._where == "start":
            context.stopping.wait()

    def run(self):
        if self._where == "step":
            self._context.beat()
            self._context.stopping.wait()
        while self._where == "endless":
            self._context.beat()
            self._context.stopping.wait(0.1)
        return {"reward": mean_and_std([float(self._where)])}
