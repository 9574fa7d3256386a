"""A whole script for version 2, in the manner of public ones: trains, plays, and acts from a checkpoint."""

import importlib
import re
from pathlib import Path

import numpy as np

from sample_factory.version_2 import running


def test_a_swarm_with_arguments_of_its_own_trains_and_shows_its_values_while_it_is_played(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(Path(__file__).parent / "scripts")
    monkeypatch.setattr(running, "_FACTORY", running.ModelFactory())
    swarm = importlib.import_module("swarm")
    place = ["--env=quadrotor_multi", f"--train_dir={tmp_path}", "--experiment=swarm"]
    assert swarm.train([*place, "--quads_num_agents=3", "--quads_obst_spawn_area", "4", "5.5"]) == 0
    saved = running.load_from_checkpoint(swarm.parse_cfg(place, evaluation=True))
    assert (saved.quads_num_agents, saved.quads_obst_spawn_area, saved.quads_render) == (3, [4.0, 5.5], False)
    assert saved.quads_view_mode == ["topdown", "global"]

    status, reward = swarm.play([*place, "--no_render", "--max_num_episodes=6", "--visualize_v_value"])
    assert (status, reward) == (0, 5.0), "the reward, not the true reward of 50"
    assert len(swarm.ValueMap.values) >= 10 and np.isfinite(swarm.ValueMap.values).all()
    timing = swarm.measure(place, 3)
    assert timing.step > 0 and re.match(r"Profile: step: \d+\.\d", str(timing))
