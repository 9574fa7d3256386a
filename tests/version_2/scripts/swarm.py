"""Scripts in the manner of quad-swarm-rl: many arguments of the script's own, a multi-agent env with the old
API behind a wrapper, reward shaping, an encoder that reads the arguments, and an env that shows the values of
the network while it is played."""

import copy

import gymnasium as gym
import numpy as np
import torch
from gymnasium.utils.step_api_compatibility import convert_to_terminated_truncated_step_api
from sample_factory.algo.learning.learner import Learner
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.rl_utils import prepare_and_normalize_obs
from sample_factory.algo.utils.torch_utils import calc_num_elements
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.create_env import create_env
from sample_factory.envs.env_utils import RewardShapingInterface, TrainingInfoInterface, register_env
from sample_factory.launcher.run_description import Experiment, ParamGrid, RunDescription
from sample_factory.model.actor_critic import create_actor_critic
from sample_factory.model.encoder import Encoder
from sample_factory.model.model_utils import fc_layer, nonlinearity
from sample_factory.utils.timing import Timing
from sample_factory.utils.utils import str2bool
from torch import nn

from sample_factory.enjoy import enjoy
from sample_factory.train import run_rl

SHAPING = {"quad_rewards": {"pos": 1.0, "crash": 1.0}}
GRID = ParamGrid([("with_pbt", ["True"]), ("quads_num_agents", [2, 4])])
RUN_DESCRIPTION = RunDescription(
    "swarms", experiments=[Experiment("swarm", "python -m swarm", GRID.generate_params(randomize=False))]
)


def override_defaults(env, parser):
    # Names of version 1, of which version 2 knows none.
    parser.set_defaults(encoder_type="mlp", encoder_subtype="mlp_quads", encoder_extra_fc_layers=0)
    parser.set_defaults(rnn_size=8, use_rnn=False, env_frameskip=1, num_workers=1, device="cpu")
    parser.set_defaults(rollout=8, batch_size=64, serial_mode=True, train_for_env_steps=200)


def add_args(env, parser):
    p = parser
    p.add_argument("--quads_num_agents", default=2, type=int, help="number of quadrotors")
    p.add_argument("--quads_obs_repr", default="xyz", type=str, choices=["xyz", "xyz_floor"])
    p.add_argument("--quads_use_obstacles", default=False, type=str2bool, help="obstacles or not")
    p.add_argument("--quads_obst_spawn_area", nargs="+", default=[6.0, 6.0], type=float)
    p.add_argument("--quads_view_mode", nargs="+", default=["topdown", "global"], type=str,
                   choices=["topdown", "chase", "global"])  # fmt: skip
    p.add_argument("--quads_render", default=False, type=bool, help="use render or not")
    p.add_argument("--visualize_v_value", action="store_true", help="shows the values")


class Swarm(gym.Env):
    """Quadrotors with the old API: reset returns observations, step returns one `done` per agent."""

    is_multiagent = True

    def __init__(self, num_agents, area):
        self.num_agents = num_agents
        self.area = area
        self.rew_coeff = copy.deepcopy(SHAPING["quad_rewards"])
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (3,))
        self.action_space = gym.spaces.Box(-1.0, 1.0, (4,))

    def observe(self):
        return [np.full(3, self.now / 10, np.float32) for _ in range(self.num_agents)]

    def reset(self):
        self.now = 0
        return self.observe()

    def step(self, actions):
        assert np.shape(actions) == (self.num_agents, 4)
        self.now += 1
        done = self.now == 5
        infos = [{"rewards": {"rewraw_main": 1.0}} for _ in range(self.num_agents)]
        rewards = [self.rew_coeff["pos"]] * self.num_agents
        return (self.reset() if done else self.observe()), rewards, [done] * self.num_agents, infos


class Shaping(gym.Wrapper, TrainingInfoInterface, RewardShapingInterface):
    def __init__(self, env, with_pbt):
        gym.Wrapper.__init__(self, env)
        TrainingInfoInterface.__init__(self)
        if with_pbt:
            RewardShapingInterface.__init__(self)
        self.num_agents = env.num_agents
        self.sums = [0.0] * env.num_agents

    def get_default_reward_shaping(self):
        return SHAPING

    def get_current_reward_shaping(self, agent_idx):
        return SHAPING

    def set_reward_shaping(self, reward_shaping, unused_agent_idx):
        self.env.unwrapped.rew_coeff.update(reward_shaping["quad_rewards"])

    def reset(self):
        return self.env.reset()

    def step(self, action):
        obs, rewards, dones, infos = self.env.step(action)
        for agent, info in enumerate(infos):
            self.sums[agent] += info["rewards"]["rewraw_main"]
            if dones[agent]:
                info["true_reward"] = 10 * self.sums[agent]
                info["episode_extra_stats"] = {"rewraw_main": self.sums[agent]}
                self.sums[agent] = 0.0
        return obs, rewards, dones, infos


class Compatible(gym.Wrapper):
    def __init__(self, env):
        gym.Wrapper.__init__(self, env)

    def reset(self, seed=None, options=None):
        return self.env.reset(), {}

    def step(self, action):
        return convert_to_terminated_truncated_step_api(self.env.step(action), is_vector_env=True)


class ValueMap(gym.Wrapper):
    """Records the values of the network in each state."""

    values: list[float] = []

    def __init__(self, env, model):
        super().__init__(env)
        self.model = model

    def step(self, action):
        obs, *rest = self.env.step(action)
        normalized = prepare_and_normalize_obs(self.model, {"obs": np.array(obs)})
        self.values.append(self.model.forward(normalized, None, values_only=True)["values"][0].item())
        return obs, *rest


def make_swarm(env_name, cfg=None, _env_config=None, render_mode=None, **kwargs):
    env = Compatible(Shaping(Swarm(cfg.quads_num_agents, cfg.quads_obst_spawn_area), cfg.with_pbt))
    if cfg.visualize_v_value:
        model = create_actor_critic(cfg, env.observation_space, env.action_space)
        model.eval()
        device = torch.device("cpu" if cfg.device == "cpu" else "cuda")
        model.model_to_device(device)
        prefix = {"latest": "checkpoint", "best": "best"}[cfg.load_checkpoint_kind]
        found = Learner.get_checkpoints(Learner.checkpoint_dir(cfg, cfg.policy_index), f"{prefix}_*")
        model.load_state_dict(Learner.load_checkpoint(found, device)["model"])
        env = ValueMap(env, model)
    return env


class SwarmEncoder(Encoder):
    def __init__(self, cfg, obs_space):
        super().__init__(cfg)
        assert cfg.encoder_subtype == "mlp_quads" and cfg.quads_obs_repr == "xyz"
        size = obs_space["obs"].shape[0]
        self.layers = nn.Sequential(fc_layer(size, cfg.rnn_size), nonlinearity(cfg))
        self.head = fc_layer(calc_num_elements(self.layers, (size,)), 2 * cfg.rnn_size)

    def forward(self, obs_dict):
        return self.head(self.layers(obs_dict["obs"]))

    def get_out_size(self):
        return 2 * self.cfg.rnn_size


def register_components():
    register_env("quadrotor_multi", make_swarm)
    global_model_factory().register_encoder_factory(lambda cfg, obs_space: SwarmEncoder(cfg, obs_space))


def parse_cfg(argv=None, evaluation=False):
    parser, partial_cfg = parse_sf_args(argv=argv, evaluation=evaluation)
    add_args(partial_cfg.env, parser)
    override_defaults(partial_cfg.env, parser)
    return parse_full_cfg(parser, argv)


def train(argv):
    register_components()
    return run_rl(parse_cfg(argv))


def play(argv):
    register_components()
    return enjoy(parse_cfg(argv, evaluation=True))


def measure(argv, num_steps):
    """Returns the seconds of some steps of the env itself."""
    cfg = parse_cfg(argv)
    env = create_env("quadrotor_multi", cfg=cfg)
    env.reset()
    timing = Timing()
    with timing.timeit("step"), timing.add_time("all"):
        for _ in range(num_steps):
            env.step([env.action_space.sample() for _ in range(cfg.quads_num_agents)])
    return timing
