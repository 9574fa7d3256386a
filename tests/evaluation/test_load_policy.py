import shutil

import gymnasium as gym
import numpy as np
import pytest

import sample_factory
from sample_factory import register_env
from sample_factory.config.flags import ConfigError

MIXED = gym.spaces.Dict({"goal": gym.spaces.Discrete(3, start=1), "speed": gym.spaces.Box(-1, 1, (2,))})


class Mixed(gym.Env):
    """Observations and actions that differ from what is stored."""

    observation_space = MIXED
    action_space = gym.spaces.Discrete(4, start=10)


def spaces(env_class):
    """Returns keywords with the spaces, so that no env has to be made."""
    return {"observation_space": env_class.observation_space, "action_space": env_class.action_space}


def load(folder, env, **options):
    own = {"observation_space": env.observation_space, "action_space": env.action_space}
    return sample_factory.load_policy("tiny", folder, **own, **options)


@pytest.mark.parametrize("env_name", ["gym_CartPole-v1", "gym_Pendulum-v1", "gym_Taxi-v4"])
def test_a_batch_gets_the_actions_of_the_env_that_single_envs_get(saved_experiment, tmp_path, env_name):
    saved_experiment(env_name, "--use_rnn=True")
    envs = gym.make_vec(env_name.removeprefix("gym_"), num_envs=3, vectorization_mode="sync")
    own = {
        "observation_space": envs.single_observation_space,
        "action_space": envs.single_action_space,
        "deterministic": True,
    }
    batched = sample_factory.load_policy("tiny", tmp_path, **own)
    single = [sample_factory.load_policy("tiny", tmp_path, **own) for _ in range(3)]
    batched.reset(num_envs=3)
    observations, _ = envs.reset(seed=1)
    for _ in range(3):
        actions = batched.act(observations)
        assert envs.action_space.contains(actions)
        alone = [policy.act(observation) for policy, observation in zip(single, observations)]
        assert all(map(envs.single_action_space.contains, alone))
        assert np.allclose(actions, np.array(alone), atol=1e-5)
        observations, *_ = envs.step(actions)
    envs.close()


def test_the_spaces_are_those_of_the_env_of_the_training(saved_experiment, tmp_path):
    saved_experiment("gym_CartPole-v1")
    policy = sample_factory.load_policy(tmp_path / "tiny")
    env = policy.make_env()
    assert (policy.observation_space, policy.action_space) == (env.observation_space, env.action_space)
    observation, _ = env.reset(seed=1)
    assert env.action_space.contains(policy.act(observation))


def test_observations_of_several_parts_and_actions_with_a_start_are_converted(choosing, tmp_path):
    register_env("mixed", lambda name: Mixed())
    choosing("mixed", action=2)
    policy = load(tmp_path, Mixed)
    observation = {"goal": 3, "speed": np.zeros(2, np.float32)}
    assert policy.act(observation) == 12
    policy.reset(agents=["a", "b", "c"])
    assert policy.act({"c": observation, "a": observation}) == {"a": 12, "c": 12}
    policy.reset(num_envs=2)
    batch = {"goal": np.array([1, 3]), "speed": np.zeros((2, 2), np.float32)}
    assert policy.act(batch).tolist() == [12, 12]


@pytest.mark.parametrize("flag", ["deterministic", "continuous_actions_sample"])
def test_a_policy_takes_the_mean_of_continuous_actions_if_asked_to(saved_experiment, tmp_path, flag):
    saved_experiment("gym_Pendulum-v1", "--use_rnn=False")
    observation = np.ones(3, np.float32)
    with gym.make("Pendulum-v1") as env:
        for chosen in (True, False):
            policy = load(tmp_path, env, **{flag: chosen})
            is_random = policy.act(observation) != policy.act(observation)
            assert is_random == (chosen == (flag == "continuous_actions_sample"))


def test_a_policy_remembers_until_it_is_reset(saved_experiment, tmp_path):
    saved_experiment("gym_Pendulum-v1", "--use_rnn=True")
    with gym.make("Pendulum-v1") as env:
        policy = load(tmp_path, env, deterministic=True)
        observation, _ = env.reset(seed=1)
    first, second = policy.act(observation), policy.act(observation)
    policy.reset()
    assert policy.act(observation) == first != second
    policy.reset(num_envs=2)
    policy.act(np.stack([observation] * 2))
    policy.reset(np.array([True, False]))
    assert policy.act(np.stack([observation] * 2)).ravel() == pytest.approx([first[0], second[0]], abs=1e-5)
    policy.reset(agents=["a", "b"])
    policy.act({"a": observation, "b": observation})
    policy.act({"b": observation})
    third = policy.act({"a": observation, "b": observation})
    assert third["a"] == pytest.approx(first, abs=1e-5)  # it was absent: another episode
    assert third["b"] != pytest.approx(second, abs=1e-5)


class Blinker(gym.Env):
    """Pictures whose pixels all have the number of the step."""

    observation_space = gym.spaces.Box(0, 255, (6, 6), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._picture(), {}

    def step(self, action):
        self.time += 1
        return self._picture(), 0.0, False, False, {}

    def _picture(self):
        return np.full((6, 6), self.time, np.uint8)


def recorded(policy, monkeypatch):
    """Returns a list to which the first pixels of all stacks that reach the network are added."""
    seen = []
    act = policy._model.act

    def recording(observations, *others):
        seen.append(observations["obs"][:, :, 0, 0].tolist())
        return act(observations, *others)

    monkeypatch.setattr(policy._model, "act", recording)
    return seen


def test_a_policy_stacks_the_images_since_its_reset_as_the_training_did(
    saved_experiment, tmp_path, monkeypatch
):
    register_env("blinker", lambda name: Blinker())
    saved_experiment("blinker", "--env_framestack=3", "--use_rnn=False", "--hidden_size=8")
    env = Blinker()
    policy = load(tmp_path, env)
    seen = recorded(policy, monkeypatch)
    for _ in range(2):
        observation, _ = env.reset()
        policy.reset()
        for _ in range(4):
            observation, *_ = env.step(policy.act(observation))
    assert seen == [[[0, 0, 0]], [[0, 0, 1]], [[0, 1, 2]], [[1, 2, 3]]] * 2
    seen.clear()
    policy.reset(num_envs=2)
    for time in range(3):
        policy.act(np.full((2, 6, 6), time, np.uint8))
        if time == 1:
            policy.reset([False, True])
    assert seen == [[[0, 0, 0]] * 2, [[0, 0, 1]] * 2, [[0, 1, 2], [2, 2, 2]]]


def test_a_checkpoint_file_is_loaded_with_the_settings_of_a_folder_above_it_or_given_ones(choosing, tmp_path):
    register_env("mixed", lambda name: Mixed())
    [file] = choosing("mixed", action=3, policy=1).folder.glob("*.pth")
    observation = {"goal": 1, "speed": np.zeros(2, np.float32)}
    assert sample_factory.load_policy(file, **spaces(Mixed)).act(observation) == 13
    for function in (sample_factory.load_policy, sample_factory.evaluate):
        with pytest.raises(ConfigError, match="checkpoint=best and the file .*pth were given; leave one out"):
            function(file, checkpoint="best")
    moved = tmp_path / "elsewhere" / "policy.pth"
    moved.parent.mkdir()
    shutil.copy(file, moved)
    with pytest.raises(ConfigError, match="no cfg.json in the folders above .*policy.pth"):
        sample_factory.load_policy(moved, **spaces(Mixed))
    saved = tmp_path / "tiny" / "cfg.json"
    assert sample_factory.load_policy(moved, cfg=saved, **spaces(Mixed)).act(observation) == 13


@pytest.mark.parametrize("function", [sample_factory.load_policy, sample_factory.evaluate])
def test_what_is_missing_is_named(saved_experiment, tmp_path, function):
    saved_experiment("gym_CartPole-v1")
    for arguments, options, message in [
        (("tyni", tmp_path), {}, "tyni.*experiment may be tiny"),
        ((tmp_path / "other",), {}, "experiment may be tiny"),
        (("tiny", tmp_path), {"checkpoint": "milestone:3"}, "milestone:3"),
        (("tiny", tmp_path), {"checkpoint": "best"}, "checkpoint best"),
        (("tiny", tmp_path), {"policy_index": 2}, "policy_index may be 0"),
        (("tiny", tmp_path), {"gama": 0.5}, "unknown flag gama"),
        (("tiny.pth",), {}, "there is no checkpoint"),
    ]:
        with pytest.raises(ConfigError, match=message):
            function(*arguments, **options)


def test_a_wrong_observation_is_refused_with_the_expected_space(saved_experiment, tmp_path):
    saved_experiment("gym_CartPole-v1")
    with gym.make("CartPole-v1") as env:
        policy = load(tmp_path, env)
    batch = np.zeros((8, 4), np.float32)
    with pytest.raises(ValueError, match=r"has shape \(8, 4\).*one observation of Box.*reset\(num_envs=n\)"):
        policy.act(batch)
    with pytest.raises(ValueError, match=r"should be bool of shape \(1,\)"):
        policy.reset(np.zeros(8, bool))
    policy.reset(num_envs=8)
    with pytest.raises(ValueError, match=r"has shape \(4,\).*a batch of 8 observations"):
        policy.act(batch[0])
    with pytest.raises(ValueError, match="only one of them"):
        policy.reset(num_envs=8, agents=["a"])
    policy.reset(agents=["a"])
    with pytest.raises(ValueError, match=r"got \['b'\]; expected a dict with observations of \['a'\]"):
        policy.act({"b": batch[0]})
    with pytest.raises(ValueError, match=r"has shape \(8, 4\).*Expected agent 'a' of Box"):
        policy.act({"a": batch})


def test_with_both_spaces_the_env_need_not_be_known(saved_experiment, tmp_path):
    saved_experiment("gym_CartPole-v1")
    saved = tmp_path / "tiny" / "cfg.json"
    saved.write_text(saved.read_text().replace("gym_CartPole-v1", "elsewhere"))
    with gym.make("CartPole-v1") as env:
        policy = load(tmp_path, env)
        assert policy.act(env.reset(seed=1)[0]) in (0, 1)
    with pytest.raises(ConfigError, match="make_env: unknown env 'elsewhere'"):
        policy.make_env()
    with pytest.raises(ConfigError, match="unknown env 'elsewhere'"):
        sample_factory.load_policy("tiny", tmp_path)
