"""Whole scripts for version 2, in the manner of public ones: they train, play, and act from a checkpoint."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sample_factory.version_2 import running


@pytest.fixture
def script(monkeypatch):
    """Returns load(name), which imports a script as a new process would, with no encoder registered yet."""

    monkeypatch.syspath_prepend(Path(__file__).parent / "scripts")

    def load(name):
        monkeypatch.setattr(running, "_FACTORY", running.ModelFactory())
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return load


def test_a_swarm_with_arguments_of_its_own_trains_and_shows_its_values_while_it_is_played(script, tmp_path):
    swarm = script("swarm")
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


def test_tensors_of_many_robots_train_with_an_encoder_that_is_registered_late(script, tmp_path):
    aerial = script("aerial")
    place = ["--env=navigation_task", f"--train_dir={tmp_path}", "--experiment=robots"]
    assert aerial.train(place) == 0
    status, reward = aerial.play([*place, "--no_render", "--max_num_episodes=8"])
    assert (status, reward) == (0, 7.5)  # 5 steps with rewards 0, 1, 2, 3

    aerial = script("aerial")  # registers nothing
    cfg = aerial.parse_cfg([*place, "--eval_deterministic=True"], evaluation=True)
    aerial.global_model_factory().register_encoder_factory(lambda *args: aerial.CustomEncoder(*args))
    acting = aerial.Inference(2, cfg)
    obs = {"observations": torch.zeros(2, aerial.NUM_OBS)}
    actions = acting.get_action(obs)
    assert isinstance(actions, torch.Tensor), "env_gpu_actions"
    assert actions.shape == (2, aerial.NUM_ACTIONS) and acting.rnn_states.abs().sum() > 0
    acting.reset([0])
    assert acting.rnn_states[0].abs().sum() == 0
