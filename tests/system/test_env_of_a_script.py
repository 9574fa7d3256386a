"""Commands besides train, enjoy and eval take `env=` too, for an env that only a script has."""

import gymnasium as gym
import numpy as np
import pytest

from sample_factory.__main__ import main
from sample_factory.envs import env_registry
from sample_factory.launch.objects_of_call import with_names
from tests.evaluation.conftest import SMALL, save_untrained
from tests.evaluation.playable_envs import Cards


class Steps(gym.Env):
    """Episodes of three steps, each worth 1."""

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self._step += 1
        return np.full(3, self._step / 3, np.float32), 1.0, self._step == 3, False, {}


class Game(Cards):
    """Two agents."""


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(env_registry, "_FAMILIES", dict(env_registry._FAMILIES))


def saved(folder, env):
    """Returns the flags of an experiment in an env that is not registered afterwards."""
    name = with_names({"env": env})["env"]
    flags = save_untrained(folder, name, *SMALL)
    del env_registry._FAMILIES[name]
    return flags


def run(command, flags, env=None):
    return main([command, *flags], env=env)


def test_a_recording_an_export_and_an_imitation_take_the_class_of_an_env(tmp_path, capsys):
    serial = ["--serial_mode=True", "--num_workers=1", "--seed=1"]
    games = str(tmp_path / "games")
    flags_of = {
        "record": [*serial, "--episodes=2", f"--out={games}", "--video_episodes=0"],
        "export": ["--export_check_steps=3", f"--export_path={tmp_path}/a.onnx"],
    }
    identity = saved(tmp_path, Steps)
    for command, flags in flags_of.items():
        assert run(command, [*identity, *flags]) == 2
        error = capsys.readouterr().err
        assert "start that script, with a line such as sample_factory.enjoy.main(env=MyEnv)" in error
        assert "__main__ is every command" in error and error.count("\n") == 1
        assert run(command, [*identity, *flags], Steps) == 0, command
        capsys.readouterr()
        del env_registry._FAMILIES["Steps"]
    clone = [
        "--experiment=clone",
        identity[1],
        f"--games={games}",
        "--imitate_epochs=1",
        "--rollout=3",
        *SMALL,
    ]
    assert run("imitate", [*clone, "--batch_size=3", "--device=cpu"], Steps) == 0


def test_a_match_takes_the_class_of_an_env(tmp_path, capsys):
    saved(tmp_path, Game)
    (tmp_path / "tiny").rename(tmp_path / "other")
    flags = [*saved(tmp_path, Game), "--opponent_experiment=other", "--num_matches=2", "--serial_mode=True"]
    assert run("match", flags) == 2
    assert "sample_factory.enjoy.main(env=MyEnv)" in capsys.readouterr().err
    assert run("match", flags, Game) == 0
    assert "2 matches" in capsys.readouterr().out
