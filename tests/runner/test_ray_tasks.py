"""The Ray backend, with a real Ray on this machine."""

import sys
import types

import pytest

from sample_factory.runner import ray_tasks
from sample_factory.runner.backend import RunnerFlags
from sample_factory.runner.ray_tasks import RayBackend
from sample_factory.runner.run_job import Job
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)  # seconds; Ray takes 5 to start, ten times as many on a busy machine


def test_a_run_that_is_stopped_or_fails_is_resumed_and_ray_leaves_nothing_behind(grid, places):
    grid.fail(1)
    (grid.folder / "wait").touch()
    process = grid.start("--runner=ray", "--max_parallel=2")
    wait_until(lambda: all(grid.starts(number) for number in (0, 1)), seconds=300)
    assert not grid.starts(2)  # Ray has CPUs for two
    process.terminate()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert grid.states() == {"0": "stopped", "1": "stopped"}
    assert [list(place.iterdir()) for place in places] == [[], []]

    (grid.folder / "wait").unlink()
    ended = grid.run("--runner=ray", "--max_parallel=2")
    assert ended.returncode == 1, ended.stdout
    assert "FAILED: 01_a_num_1: exit code 1" in ended.stdout
    assert grid.states() == {"0": "finished", "1": "failed", "2": "finished"}
    assert [len(grid.starts(number)) for number in range(3)] == [2, 2, 1]
    assert [list(place.iterdir()) for place in places] == [[], []]


class StandInRay(types.ModuleType):
    """Runs a task at once, in this process, after it has hidden the GPUs as Ray before version 2.60 does."""

    def __init__(self, monkeypatch):
        super().__init__("ray")
        self.init = self.shutdown = lambda *_, **__: None
        self._hide = lambda: monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def remote(self, num_gpus, **_):
        def run(function, *arguments):
            if not num_gpus:
                self._hide()
            function(*arguments)

        return lambda function: types.SimpleNamespace(remote=lambda *arguments: run(function, *arguments))


@pytest.mark.parametrize("visible", ["0,1", "", None])
def test_a_job_that_asked_for_no_gpu_sees_the_gpus_of_the_runner(monkeypatch, tmp_path, visible):
    monkeypatch.setitem(sys.modules, "ray", StandInRay(monkeypatch))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    seen = []

    def start(command, env):
        seen.append(env.get("CUDA_VISIBLE_DEVICES"))
        return types.SimpleNamespace(poll=lambda: 0, end=lambda request: None)

    monkeypatch.setattr(ray_tasks, "Program", start)
    backend = RayBackend(RunnerFlags(max_parallel=1), tmp_path)
    backend.start(Job([], tmp_path / "run", tmp_path, {}))
    backend.close()
    assert seen == [visible]
