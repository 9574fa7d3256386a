"""Scripts for version 2 that play a checkpoint in a loop of their own."""

import json
import pickle
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from sample_factory.algo.learning.learner import Learner
from sample_factory.algo.sampling.batched_sampling import preprocess_actions
from sample_factory.algo.utils.action_distributions import ContinuousActionDistribution, argmax_actions
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.env_info import EnvInfo, extract_env_info
from sample_factory.algo.utils.make_env import make_env_func_batched
from sample_factory.algo.utils.rl_utils import make_dones, prepare_and_normalize_obs
from sample_factory.algo.utils.tensor_utils import unsqueeze_tensor
from sample_factory.cfg.arguments import load_from_checkpoint, parse_full_cfg, parse_sf_args
from sample_factory.envs.create_env import create_env
from sample_factory.model.actor_critic import create_actor_critic
from sample_factory.model.encoder import Encoder
from sample_factory.model.model_utils import get_rnn_size
from sample_factory.utils.attr_dict import AttrDict

from sample_factory import load_policy, register_env
from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.config.flags import ConfigError
from sample_factory.train import run_rl
from sample_factory.version_2 import running
from tests.evaluation.conftest import save_untrained

SMALL = [
    "--serial_mode=True",
    "--num_workers=1",
    "--rollout=8",
    "--batch_size=64",
    "--hidden_size=8",
    "--encoder_mlp_layers=8",
    "--train_for_env_steps=100",
    "--device=cpu",
    "--seed=1",
]


class Forbidding(gym.Env):
    """Allows one of two actions, which `allowed` names; an observation of 3, a Discrete action."""

    observation_space = gym.spaces.Dict(
        {"obs": gym.spaces.Box(-1, 1, (3,)), "action_mask": gym.spaces.Box(0, 1, (2,), np.int8)}
    )
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.allowed = int(self.np_random.integers(2))
        mask = np.arange(2) == self.allowed
        return {"obs": np.zeros(3, np.float32), "action_mask": mask.astype(np.int8)}, {}

    def step(self, action):
        assert action == self.allowed
        observation, _ = self.reset()
        return observation, 1.0, bool(self.np_random.random() < 0.2), False, {"true_objective": 7.0}


class Mixed(gym.Env):
    """A Tuple of a choice and a vector. Adds the parts of the action to the reward."""

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,))])

    def reset(self, seed=None, options=None):
        return np.ones(3, np.float32), {}

    def step(self, action):
        choice, vector = action
        return np.ones(3, np.float32), float(choice) + float(vector.sum()), False, True, {}


class Nested(Mixed):
    """The same as a Dict, with a choice of two per element."""

    action_space = gym.spaces.Dict(vector=gym.spaces.Box(-1, 1, (2,)), bits=gym.spaces.MultiBinary(2))

    def step(self, action):
        return super().step((action["bits"].sum(), action["vector"]))


def train(folder, env, *flags):
    """Trains a little, and returns the cfg of a script that plays."""
    argv = [f"--env={env}", "--experiment=a", f"--train_dir={folder}"]
    parser, _ = parse_sf_args([*argv, *SMALL, *flags])
    assert run_rl(parse_full_cfg(parser, [*argv, *SMALL, *flags])) == 0
    parser, _ = parse_sf_args(argv, evaluation=True)
    return parse_full_cfg(parser, argv)


def untrained(folder, env, *flags):
    """Saves an experiment without training, and returns the cfg of a script that plays."""
    argv = [f"--env={env}", *save_untrained(folder, env, *SMALL, *flags)]
    parser, _ = parse_sf_args(argv, evaluation=True)
    return parse_full_cfg(parser, argv)


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """Returns the cfg of a run of CartPole, and its folder; no test changes them."""
    folder = tmp_path_factory.mktemp("cartpole")
    return train(folder, "gym_CartPole-v1"), folder / "a"


def loaded(cfg):
    """Returns the cfg with the saved flags, the env and the network, as version 2's enjoy makes them."""
    cfg = load_from_checkpoint(cfg)
    env = make_env_func_batched(cfg, env_config=AttrDict(worker_index=0, vector_index=0, env_id=0))
    actor_critic = create_actor_critic(cfg, env.observation_space, env.action_space)
    actor_critic.eval()
    device = torch.device("cpu" if cfg.device == "cpu" else "cuda")
    actor_critic.model_to_device(device)
    prefix = {"latest": "checkpoint", "best": "best"}[cfg.load_checkpoint_kind]
    checkpoints = Learner.get_checkpoints(Learner.checkpoint_dir(cfg, cfg.policy_index), f"{prefix}_*")
    actor_critic.load_state_dict(Learner.load_checkpoint(checkpoints, device)["model"])
    return cfg, env, actor_critic


def play(cfg, env, actor_critic, num_steps, is_deterministic):
    """Yields the observation, the action and what `env.step` returns."""
    env_info = extract_env_info(env, cfg)
    obs, _ = env.reset(seed=3)
    rnn_states = torch.zeros([env.num_agents, get_rnn_size(cfg)])
    with torch.no_grad():
        for _ in range(num_steps):
            mask = obs.pop("action_mask") if "action_mask" in obs else None
            outputs = actor_critic(prepare_and_normalize_obs(actor_critic, obs), rnn_states, action_mask=mask)
            actions = outputs["actions"]
            if is_deterministic:
                actions = argmax_actions(actor_critic.action_distribution())
            actions = unsqueeze_tensor(actions, dim=-1) if actions.ndim == 1 else actions
            actions = preprocess_actions(env_info, actions)
            rnn_states = outputs["new_rnn_states"]
            result = env.step(actions)
            yield obs, actions, result
            obs, _, terminated, truncated, _ = result
            rnn_states[make_dones(terminated, truncated)] = 0.0
    env.close()


@pytest.mark.parametrize("env", ["gym_CartPole-v1", "gym_Pendulum-v1"])
def test_a_loop_acts_as_load_policy_does_and_remembers(tmp_path, env):
    cfg, batched, actor_critic = loaded(untrained(tmp_path, env, "--use_rnn=True"))
    assert get_rnn_size(cfg) == 8
    policy = load_policy(tmp_path / "tiny", deterministic=True)
    num_ends = 0
    for obs, actions, (_, reward, terminated, truncated, infos) in play(
        cfg, batched, actor_critic, 300, True
    ):
        expected = policy.act(obs["obs"][0].numpy())
        assert np.clip(actions[0], -2, 2) == pytest.approx(expected, abs=1e-4)
        assert reward.dtype == torch.float32 and len(infos) == 1
        if terminated | truncated:
            num_ends += 1
            policy.reset()
    assert num_ends > 0
    is_continuous = isinstance(actor_critic.action_distribution(), ContinuousActionDistribution)
    assert is_continuous == (env == "gym_Pendulum-v1")


def test_a_script_that_acts_without_the_env_describes_it_and_may_ask_for_actions_as_tensors():
    described = {"obs_space": None, "action_space": gym.spaces.Box(-1, 1, (2,)), "num_agents": 3}
    described |= dict.fromkeys(("gpu_observations", "action_splits", "all_discrete", "frameskip"))
    for gpu_actions, kind in ((True, torch.Tensor), (False, np.ndarray)):
        env_info = EnvInfo(**described, gpu_actions=gpu_actions)
        assert isinstance(preprocess_actions(env_info, torch.zeros(3, 2)), kind)


def test_masked_actions_are_never_chosen_and_infos_of_ended_episodes_are_returned(tmp_path):
    register_env("forbidding", lambda name: Forbidding())
    steps = list(
        play(*loaded(untrained(tmp_path, "forbidding")), 40, False)
    )  # the env asserts that the mask is obeyed
    ends = [infos for _, _, (_, _, terminated, _, infos) in steps if terminated.any()]
    assert ends and all(info["true_objective"] == 7.0 for [info] in ends)


@pytest.mark.parametrize(
    ("env", "shapes", "total"),
    [
        (Mixed, [(1,), (1, 2)], lambda choice, vector: choice[0] + vector.clip(-1, 1).sum()),
        (Nested, [(1, 2), (1, 2)], lambda bits, vector: bits.sum() + vector.clip(-1, 1).sum()),
    ],
)
def test_an_action_with_a_box_is_a_list_of_its_parts_in_the_order_of_the_space(tmp_path, env, shapes, total):
    register_env("parts", lambda name: env())
    for _, parts, (_, reward, _, truncated, _) in play(*loaded(untrained(tmp_path, "parts")), 5, False):
        parts = parts if env is Mixed else parts[::-1]  # its vector is the first
        assert [part.shape for part in parts] == shapes and parts[0].dtype == np.int32
        assert reward.item() == pytest.approx(total(*parts), abs=1e-5) and truncated.all()


class Receiving(Encoder):
    """Encodes nothing; keeps what it is called with."""

    received = ()  # all observations, by key

    def forward(self, obs):
        Receiving.received += ({key: x.clone() for key, x in obs.items()},)
        return torch.zeros(len(obs["obs"]), 4)

    def get_out_size(self):
        return 4


@pytest.mark.parametrize("shape", [(8, 9, 3), (2, 8, 9, 3), (3, 8, 9), (2, 3, 8, 9), (8, 9), (5,)])
def test_an_encoder_of_the_script_gets_the_same_in_the_loop_as_in_training(monkeypatch, shape):
    """...images in any layout, stacks of images, and vectors."""
    monkeypatch.setattr(running, "_FACTORY", running.ModelFactory())
    global_model_factory().register_encoder_factory(lambda cfg, obs_space: Receiving(cfg))
    monkeypatch.setattr(Receiving, "received", ())
    dtype = np.uint8 if len(shape) > 1 else np.float32
    spaces = gym.spaces.Dict(obs=gym.spaces.Box(0, 255, shape, dtype), place=gym.spaces.Box(-1, 1, (2,)))
    register_env("pictured", lambda name: None)
    argv = ["--env=pictured", "--device=cpu", "--use_rnn=False"]
    cfg = parse_full_cfg(parse_sf_args(argv)[0], argv)
    actor_critic = create_actor_critic(cfg, spaces, gym.spaces.Discrete(2))
    obs = {key: np.stack([space.sample() for _ in range(3)]) for key, space in spaces.spaces.items()}
    Receiving.received = ()  # without those of the check of a new network
    actor_critic(prepare_and_normalize_obs(actor_critic, obs), torch.zeros(3, 1))
    actor_critic.model.unroll({key: torch.from_numpy(x) for key, x in obs.items()}, torch.zeros(3, 0))
    in_loop, in_training = Receiving.received
    torch.testing.assert_close(in_loop, in_training)


def test_code_that_a_cfg_from_cfg_json_names_is_not_imported(cartpole, tmp_path, monkeypatch):
    Path(tmp_path, "evil_code.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    saved = json.loads((cartpole[1] / "config.json").read_text())
    assert AttrDict(saved).gamma == saved["gamma"] and not hasattr(AttrDict(saved), "gama")
    spaces = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)
    for name, value in {"encoder_custom": "evil_code:E", "env": "gym_evil_code:E-v0"}.items():
        with pytest.raises(ConfigError, match=r"^the cfg is not signed.*evil_code"):
            create_actor_critic(AttrDict({**saved, name: value}), *spaces)
        with pytest.raises(ConfigError, match=r"^the cfg is not signed.*evil_code"):
            make_env_func_batched(AttrDict({**saved, name: value}))
    of_pettingzoo = {"env": "pettingzoo_subprocess:getoutput", "env_kwargs": '{"cmd": "touch evil"}'}
    for changed in (of_pettingzoo, {"env": "gym_evil_code:E-v0"}):
        cfg = AttrDict({**saved, **changed})
        with pytest.raises(ConfigError, match=r"^the cfg is not signed.*(evil_code|getoutput.*evil)"):
            create_env(cfg.env, cfg)
    create_env("gym_CartPole-v1", AttrDict(saved, **{"of a script": [1], "lambda": 2})).close()


class _Code:
    def __reduce__(self):
        return exec, ("raise SystemExit('executed')",)


def test_a_checkpoint_with_code_or_of_another_network_is_refused(cartpole, tmp_path):
    cfg, env, _ = loaded(cartpole[0])
    torch.save({"model": _Code()}, tmp_path / "code.pth", pickle_module=pickle)
    with pytest.raises(CheckpointError, match="could run code"):
        Learner.load_checkpoint([str(tmp_path / "code.pth")], "cpu")
    assert Learner.load_checkpoint(Learner.get_checkpoints(str(tmp_path / "nowhere")), "cpu") is None
    other = create_actor_critic(cfg, gym.spaces.Box(-1, 1, (9,)), env.action_space)
    [checkpoint] = Learner.get_checkpoints(Learner.checkpoint_dir(cfg, 0))
    with pytest.raises(CheckpointError, match=r"does not fit: .* sample_factory convert$"):
        other.load_state_dict(Learner.load_checkpoint([checkpoint], "cpu")["model"])
    env.close()


def test_what_is_not_here_says_what_to_write(cartpole):
    cfg, env, actor_critic = loaded(cartpole[0])
    with pytest.raises(AttributeError, match=r"write \.model"):
        actor_critic.forward_head({})
    with pytest.raises(ImportError, match="register_algorithm"):
        type("Mine", (Learner,), {})(cfg)
    env.close()
