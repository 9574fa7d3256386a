"""A script in the manner of learn-to-follow.

All settings are in one nested description, whose values are defaults of the parser. An env has several
copies of a multi-agent env. The encoder has settings of its own, a runner has an observer, and a class plays
a folder by its config.json.
"""

import json
import os
from argparse import Namespace

import gymnasium as gym
import numpy as np
import torch
from sample_factory.algo.learning.learner import Learner
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.make_env import make_env_func_batched
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.algo.utils.rl_utils import prepare_and_normalize_obs
from sample_factory.algo.utils.torch_utils import calc_num_elements
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.actor_critic import create_actor_critic
from sample_factory.model.encoder import Encoder
from sample_factory.model.model_utils import get_rnn_size
from sample_factory.utils.attr_dict import AttrDict
from sample_factory.utils.typing import Config, ObsSpace, PolicyID
from sample_factory.utils.utils import log
from torch import nn

from sample_factory.train import make_runner

ENV = "GridMazes-v0"
SETTINGS = {
    "env": ENV,
    "environment": {"env": ENV, "target_num_agents": 4, "grid": {"num_agents": 2, "size": 5, "steps": 6}},
    "encoder": {"num_filters": 4, "hidden_size": 8},
    "preprocessing": {"network_input_radius": 2},
    "experiment": "exp",
    "rollout": 8,
    "recurrence": 8,
    "use_rnn": False,
    "rnn_size": 16,
    "num_workers": 1,
    "num_envs_per_worker": 2,
    "worker_num_splits": 1,
    "batch_size": 64,
    "num_batches_per_epoch": 1,
    "decoder_mlp_layers": [],
    "async_rl": False,
    "serial_mode": True,
    "device": "cpu",
    "restart_behavior": "overwrite",
    "save_best_metric": "avg_throughput",
    "train_for_env_steps": 600,
    "seed": 42,
    "use_wandb": False,
}


class Grid(gym.Env):
    """Agents that get a point for action 1, on a grid that shows the number of the action."""

    def __init__(self, grid, radius):
        self.grid = grid
        width = 2 * radius + 1
        self.observation_space = gym.spaces.Dict(obs=gym.spaces.Box(0.0, 1.0, (2, width, width)))
        self.action_space = gym.spaces.Discrete(3)

    def get_num_agents(self):
        return self.grid["num_agents"]

    def observe(self):
        shape = self.observation_space["obs"].shape
        return [{"obs": np.full(shape, 0.5, np.float32)} for _ in range(self.get_num_agents())]

    def reset(self, seed=None, **kwargs):
        self.now = 0
        return self.observe(), {}

    def step(self, actions):
        assert len(actions) == self.get_num_agents()
        self.now += 1
        done = self.now == self.grid["steps"]
        infos = [{} for _ in actions]
        if done:
            for info in infos:
                info["episode_extra_stats"] = {"avg_throughput": float(np.mean(actions))}
            self.reset()  # it resets itself
        rewards = [float(action == 1) for action in actions]
        return self.observe(), rewards, [False] * len(actions), [done] * len(actions), infos


class ManyGrids(gym.Wrapper):
    """The agents of several grids, in one list."""

    def __init__(self, environment, preprocessing):
        num_envs = environment["target_num_agents"] // environment["grid"]["num_agents"]
        radius = preprocessing["network_input_radius"]
        self.envs = [Grid(environment["grid"], radius) for _ in range(num_envs)]
        super().__init__(self.envs[0])

    @property
    def num_agents(self):
        return sum(env.get_num_agents() for env in self.envs)

    def reset(self, seed, **kwargs):
        return [one for env in self.envs for one in env.reset(seed=seed)[0]], {}

    def step(self, actions):
        results = [[], [], [], [], []]
        for index, env in enumerate(self.envs):
            number = env.get_num_agents()
            for all_of, own in zip(results, env.step(actions[index * number : (index + 1) * number])):
                all_of += own
        return tuple(results)


def make_env(full_env_name, cfg=None, env_config=None, render_mode=None):
    settings = vars(cfg)  # a typed description is made of it
    return ManyGrids(settings["environment"], settings["preprocessing"])


class GridEncoder(Encoder):
    def __init__(self, cfg: Config, obs_space: ObsSpace):
        super().__init__(cfg)
        own = cfg.encoder
        self.conv = nn.Sequential(nn.Conv2d(obs_space["obs"].shape[0], own["num_filters"], 3), nn.ReLU())
        self.width = own["hidden_size"]
        self.head = nn.Linear(calc_num_elements(self.conv, obs_space["obs"].shape), self.width)
        log.debug("%d outputs", self.width)

    def get_out_size(self) -> int:
        return self.width

    def forward(self, x):
        return self.head(self.conv(x["obs"]).flatten(1))


def register_model():
    global_model_factory().register_encoder_factory(lambda cfg, obs_space: GridEncoder(cfg, obs_space))


class Summaries(AlgoObserver):
    def extra_summaries(self, runner: Runner, policy_id: PolicyID, writer, env_steps: int) -> None:
        for key, values in runner.policy_avg_stats.items():
            writer.add_scalar(f"grid/{key}", np.mean(np.array(values[policy_id])), env_steps)


def create_sf_config(settings):
    argv = [f"--env={settings['env']}"]
    parser, _ = parse_sf_args(argv=argv, evaluation=False)
    parser.set_defaults(**settings)
    return parse_full_cfg(parser, argv=argv)


def train(settings):
    register_model()
    register_env(settings["env"], make_env)
    cfg, runner = make_runner(create_sf_config(settings))
    runner.register_episodic_stats_handler(lambda *args, **kwargs: None)
    runner.register_observer(Summaries())
    status = runner.init()
    if status == ExperimentStatus.SUCCESS:
        status = runner.run()
    return cfg, status


class Inference:
    """Plays the newest checkpoint of a folder."""

    def __init__(self, path):
        register_model()
        with open(os.path.join(path, "config.json")) as file:
            self.cfg = Namespace(**json.load(file), **{"of a script": [1], "lambda": 2})
        register_env(self.cfg.environment["env"], make_env)
        self.cfg.num_envs = 1
        env = make_env_func_batched(self.cfg, AttrDict(worker_index=0, vector_index=0, env_id=0))
        self.net = create_actor_critic(self.cfg, env.observation_space, env.action_space)
        self.net.eval()
        env.close()
        self.net.model_to_device("cpu")
        policy = 0 if "policy_index" not in self.cfg else self.cfg.policy_index
        index = policy[0] if isinstance(policy, list) else policy
        found = Learner.get_checkpoints(os.path.join(path, f"checkpoint_p{index}"), "checkpoint_*")
        self.net.load_state_dict(Learner.load_checkpoint(found, "cpu")["model"])
        self.rnn_states = None

    def act(self, observations):
        if self.rnn_states is None:
            self.rnn_states = torch.zeros([len(observations), get_rnn_size(self.cfg)])
        obs = AttrDict({key: np.stack([one[key] for one in observations]) for key in observations[0]})
        with torch.no_grad():
            outputs = self.net(prepare_and_normalize_obs(self.net, obs), self.rnn_states)
        self.rnn_states = outputs["new_rnn_states"]
        return outputs["actions"].cpu().numpy()
