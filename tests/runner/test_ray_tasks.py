"""The Ray backend, with a real Ray on this machine."""

import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)  # seconds; Ray takes 5 to start, ten times as many on a busy machine


def test_a_run_that_is_stopped_or_fails_is_resumed_and_ray_leaves_nothing_behind(grid, places):
    grid.fail(1)
    grid.env["CUDA_VISIBLE_DEVICES"] = "5,7"
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
    assert [grid.starts(number) for number in range(3)] == [["5,7"] * times for times in (2, 2, 1)]
    assert [list(place.iterdir()) for place in places] == [[], []]
