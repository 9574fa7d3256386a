"""Scripts in the manner of aerial_gym_simulator: one env that steps many robots as torch tensors, its encoder
registered after the flags are parsed, and a class that plays a checkpoint without the env."""

from typing import Dict, Tuple  # noqa: UP035

import gymnasium as gym
import numpy as np
import torch
from sample_factory.algo.learning.learner import Learner
from sample_factory.algo.sampling.batched_sampling import preprocess_actions
from sample_factory.algo.utils.action_distributions import ContinuousActionDistribution, argmax_actions
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.env_info import EnvInfo
from sample_factory.algo.utils.gymnasium_utils import convert_space
from sample_factory.algo.utils.rl_utils import prepare_and_normalize_obs
from sample_factory.algo.utils.tensor_utils import unsqueeze_tensor
from sample_factory.cfg.arguments import load_from_checkpoint, parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.actor_critic import create_actor_critic
from sample_factory.model.encoder import *  # noqa: F403
from sample_factory.model.model_utils import get_rnn_size
from sample_factory.utils.typing import Config, Env, StatusCode
from sample_factory.utils.utils import str2bool

from sample_factory.enjoy import enjoy
from sample_factory.train import run_rl

NUM_ROBOTS, NUM_OBS, NUM_ACTIONS = 4, 5, 3


class Simulator:
    """Robots as tensors; an episode has 5 steps, and the robot is reset in the last one."""

    num_envs = NUM_ROBOTS
    observation_space = gym.spaces.Dict(observations=gym.spaces.Box(-np.inf, np.inf, (NUM_OBS,), np.float32))
    action_space = gym.spaces.Box(-1.0, 1.0, (NUM_ACTIONS,), np.float32)

    def __init__(self):
        self.now = torch.zeros(self.num_envs)
        self.rewards = torch.zeros(self.num_envs)  # a buffer of its own

    def reset(self):
        self.now[:] = 0
        ends = torch.zeros(self.num_envs, dtype=torch.bool)
        return self.observe(), self.rewards, ends, ends.clone(), {}

    def observe(self):
        return {"observations": self.now[:, None].repeat(1, NUM_OBS) / 5}

    def step(self, actions):
        assert isinstance(actions, torch.Tensor) and actions.shape == (self.num_envs, NUM_ACTIONS)
        self.now += 1
        self.rewards[:] = torch.arange(self.num_envs)
        truncated = self.now >= 5
        self.now[truncated] = 0
        return self.observe(), self.rewards, torch.zeros_like(truncated), truncated, {"successes": truncated}


class VecEnv(gym.Env):
    def __init__(self, simulator, obs_key):
        self.env = simulator
        self.num_agents = self.env.num_envs
        self.action_space = convert_space(self.env.action_space)
        self.observation_space = gym.spaces.Dict(convert_space(self.env.observation_space))

    def reset(self, *args, **kwargs) -> Tuple[Dict[str, Tensor], Dict]:  # noqa: F405, UP006
        obs, _, _, _, infos = self.env.reset()
        return obs, infos

    def step(self, action):
        return self.env.step(action)

    def render(self):
        pass


def make_env(full_task_name: str, cfg: Config, _env_config=None, render_mode=None) -> Env:
    return VecEnv(Simulator(), cfg.obs_key)


def add_args(parser):
    p = parser
    p.add_argument("--env_agents", default=-1, type=int, help="agents in each env")
    p.add_argument("--obs_key", default="obs", type=str, help="which observations")
    p.add_argument("--subtask", default=None, type=str, help="a part of the task")
    p.add_argument("--eval_stats", default=False, type=str2bool, help="statistics of the evaluation")


def override_defaults(env, parser):
    parser.set_defaults(
        batched_sampling=True,
        num_workers=1,
        num_envs_per_worker=1,
        worker_num_splits=1,
        train_for_env_steps=10_000_000,
        env_gpu_actions=True,
        adaptive_stddev=True,
        rollout=8,
        batch_size=64,
        num_batches_per_epoch=1,
        num_epochs=1,
        max_grad_norm=0.0,
        lr_schedule="kl_adaptive_epoch",
        shuffle_minibatches=True,
        with_vtrace=False,
        value_bootstrap=True,
        serial_mode=True,
        use_env_info_cache=False,
        restart_behavior="overwrite",
        device="cpu",
    )
    if env in env_configs:
        parser.set_defaults(**env_configs[env])


env_configs = {
    "navigation_task": {
        "train_for_env_steps": 200,
        "encoder_mlp_layers": [16, 8],
        "use_rnn": True,
        "rnn_size": 8,
    }
}


class CustomEncoder(Encoder):  # noqa: F405
    def __init__(self, cfg, obs_space):
        super().__init__(cfg)
        self.encoders = nn.ModuleDict()  # noqa: F405
        sizes = [obs_space["observations"].shape[0], *cfg.encoder_mlp_layers]
        self.encoders["obs"] = create_mlp(cfg.encoder_mlp_layers, sizes[0], nonlinearity(cfg))  # noqa: F405
        self.encoder_out_size = cfg.encoder_mlp_layers[-1]

    def forward(self, obs_dict):
        return self.encoders["obs"](obs_dict["observations"])

    def get_out_size(self) -> int:
        return self.encoder_out_size


def register_components(env=None):
    for env_name in env_configs:
        register_env(env_name, make_env)
    if env in env_configs:
        global_model_factory().register_encoder_factory(lambda cfg, space: CustomEncoder(cfg, space))


def parse_cfg(argv, evaluation=False):
    parser, partial_cfg = parse_sf_args(argv, evaluation=evaluation)
    add_args(parser)
    override_defaults(partial_cfg.env, parser)
    return parse_full_cfg(parser, argv)


def train(argv) -> StatusCode:
    cfg = parse_cfg(argv)  # first: it has the name of the env
    register_components(env=cfg.env)
    return run_rl(cfg)


def play(argv) -> StatusCode:
    cfg = parse_cfg(argv, evaluation=True)
    register_components(env=cfg.env)
    return enjoy(cfg)


class Inference(nn.Module):  # noqa: F405
    """Acts for some robots, whose simulator is elsewhere."""

    def __init__(self, num_envs, cfg: Config):
        super().__init__()
        self.cfg = load_from_checkpoint(cfg)
        self.cfg.num_envs = num_envs
        box = spaces.Box(np.full(NUM_OBS, -np.inf), np.full(NUM_OBS, np.inf))  # noqa: F405
        self.observation_space = spaces.Dict(observations=convert_space(box))  # noqa: F405
        self.action_space = convert_space(gym.spaces.Box(np.full(NUM_ACTIONS, -1.0), np.ones(NUM_ACTIONS)))
        self.env_info = EnvInfo(
            obs_space=self.observation_space,
            action_space=self.action_space,
            num_agents=num_envs,
            gpu_actions=self.cfg.env_gpu_actions,
            gpu_observations=self.cfg.env_gpu_observations,
            action_splits=None,
            all_discrete=None,
            frameskip=self.cfg.env_frameskip,
        )
        self.actor_critic = create_actor_critic(self.cfg, self.observation_space, self.action_space)
        self.actor_critic.eval()
        self.device = torch.device("cpu" if self.cfg.device == "cpu" else "cuda")
        self.actor_critic.model_to_device(self.device)
        prefix = {"latest": "checkpoint", "best": "best"}[self.cfg.load_checkpoint_kind]
        found = Learner.get_checkpoints(
            Learner.checkpoint_dir(self.cfg, self.cfg.policy_index), f"{prefix}_*"
        )
        self.actor_critic.load_state_dict(Learner.load_checkpoint(found, self.device)["model"])
        self.rnn_states = torch.zeros([num_envs, get_rnn_size(self.cfg)], device=self.device)

    def reset(self, env_ids):
        self.rnn_states[env_ids] = 0.0

    def get_action(self, obs):
        with torch.no_grad():
            processed_obs = prepare_and_normalize_obs(self.actor_critic, obs)
            outputs = self.actor_critic(processed_obs, self.rnn_states)
            actions = outputs["actions"]
            if self.cfg.eval_deterministic:
                distribution = self.actor_critic.action_distribution()
                assert isinstance(distribution, ContinuousActionDistribution)
                actions = argmax_actions(distribution)
            if actions.ndim == 1:
                actions = unsqueeze_tensor(actions, dim=-1)
            actions = preprocess_actions(self.env_info, actions)
            self.rnn_states = outputs["new_rnn_states"]
        return actions
