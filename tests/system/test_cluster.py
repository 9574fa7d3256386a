"""A run with rollout and policy workers on another node, by a real Ray on this machine."""

import psutil
import pytest

from tests.forked import Program
from tests.system.running import (
    FOREVER,
    LIMIT_SECONDS,
    SMALL,
    assert_all_gone,
    checkpoints,
    descendants,
    kill,
    name_of,
    start,
    stop,
    wait_for_frames,
    wait_for_line,
)

NODE = ["--num_nodes=2", "--node_workers=1", "--node_envs_per_worker=4", "--num_workers=1"]
ARRIVED = "its first trajectories have arrived"


def node_of(run: Program) -> psutil.Process:
    """Returns the process of the only node; Ray names it after the class, and while it answers the method."""
    [node] = [process for process in descendants(run) if name_of(process).startswith("ray::Node")]
    return node


@pytest.mark.timeout(600)
def test_a_node_samples_is_replaced_when_it_dies_and_ends_with_the_run(tmp_path):
    own = ["--env=counter", "--encoder_custom=own", "--observers=watcher", "--num_policies=2"]
    run = start("own_parts.py", tmp_path, *own, "--experiment=a", FOREVER, *SMALL, *NODE)
    wait_for_line(run, "info of an episode: own_parts")
    wait_for_line(run, ARRIVED)
    node = node_of(run)
    assert node.nice() == psutil.Process(run.pid).nice(), "not Ray's own, with which its workers would starve"
    workers = node.children(recursive=True)
    assert len(workers) >= 3, "a rollout worker and two policy workers"
    kill(node)
    wait_for_line(run, "it is replaced when its machine")
    wait_for_line(run, ARRIVED)
    assert_all_gone(workers)  # with their node
    family = descendants(run)
    stop(run)
    assert_all_gone(family)


@pytest.mark.timeout(600)
def test_a_run_whose_ray_dies_saves_and_names_it(tmp_path):
    run = start("calm_envs.py", tmp_path, "--env=calm_pole", "--experiment=a", FOREVER, *SMALL, *NODE)
    wait_for_line(run, ARRIVED)
    wait_for_frames(run, 0)
    family = descendants(run)
    kill(next(process for process in family if name_of(process) == "raylet"))
    output, _ = run.communicate(timeout=LIMIT_SECONDS)
    assert run.returncode == 1
    assert "ingest_0: " in output and "Ray ends this process when its head" in output
    assert checkpoints(tmp_path / "a")
    assert_all_gone(family)
