"""Flags that suit suites of envs with common traits, for the families `gym_` and `envpool_`."""

import re
from collections.abc import Mapping
from typing import Any

# Cards, bandits and carts whose velocity is hidden: one observation is not the whole state.
# RepeatPreviousEasy reaches 0.99 of 1 after 300k steps.
MEMORY: Mapping[str, Any] = {
    "vector_env_copies": 16,
    "use_rnn": True,
    "hidden_size": 128,
    "encoder_mlp_layers": (64,),
    "nonlinearity": "tanh",
    "rollout": 64,
    "recurrence": 64,
    "batch_size": 1024,
    "num_batches_per_iteration": 2,
    "ppo_epochs": 4,
    "with_vtrace": False,
    "gae_lambda": 0.95,
    "learning_rate": 1e-3,
    "max_grad_norm": 1.0,
    "exploration_loss_coeff": 0.001,
}
# Arms, hands and bodies with a few hundred steps per second: each sample is used many times.
# FetchReachDense-v4 goes from -15 to -3.5 within 24k steps.
ROBOTS: Mapping[str, Any] = {
    "vector_env_copies": 8,
    "use_rnn": False,
    "encoder_mlp_layers": (64, 64),
    "nonlinearity": "tanh",
    "rollout": 32,
    "recurrence": 32,
    "batch_size": 256,
    "num_batches_per_iteration": 4,
    "ppo_epochs": 10,
    "with_vtrace": False,
    "gae_lambda": 0.95,
    "learning_rate": 1e-3,
    "ppo_clip_ratio": 0.2,
    "max_grad_norm": 0.5,
    "exploration_loss_coeff": 0.0,
    "adaptive_stddev": False,
}
# Longer episodes of cheaper steps.
CONTROL_SUITE: Mapping[str, Any] = {
    **ROBOTS,
    "vector_env_copies": 16,
    "rollout": 64,
    "recurrence": 64,
    "batch_size": 512,
    "num_batches_per_iteration": 8,
    "ppo_epochs": 5,
}
# Cars on roads, seen as a table with a row for each of them; an episode has at most a few dozen decisions.
# highway-fast-v0 goes from 8.7 to 21 within 50k steps.
ROADS: Mapping[str, Any] = {
    "vector_env_copies": 16,
    "use_rnn": False,
    "encoder_mlp_layers": (128, 128),
    "nonlinearity": "tanh",
    "rollout": 32,
    "recurrence": 32,
    "batch_size": 512,
    "num_batches_per_iteration": 4,
    "ppo_epochs": 4,
    "gamma": 0.95,
    "with_vtrace": False,
    "gae_lambda": 0.95,
    "learning_rate": 1e-3,
    "ppo_clip_ratio": 0.2,
    "max_grad_norm": 0.5,
    "exploration_loss_coeff": 0.01,
}

# Start of an id, without module and family (a regular expression) -> flags.
SUITES: Mapping[str, Mapping[str, Any]] = {
    r"popgym-": MEMORY,
    r"(Fetch|Hand(Manipulate|Reach)|Adroit|PointMaze|AntMaze|FrankaKitchen|MetaWorld/|"
    r"(parking|racetrack|lane-keeping)-)": ROBOTS,
    # dm_control: by Shimmy's ids, and by EnvPool's, a domain and a task in one word.
    r"dm_control/|(Acrobot|BallInCup|Cartpole|Cheetah|Finger|Fish|Hopper|Humanoid|HumanoidCMU|Manipulator|"
    r"Pendulum|PointMass|Reacher|Swimmer|Walker)[A-Z]\w*-v1$": CONTROL_SUITE,
    r"(highway|merge|roundabout|intersection|exit|two-way|u-turn)-": ROADS,
}


def suite_defaults(env_id: str) -> Mapping[str, Any]:
    """Returns the flags that suit the suite of an id; none for an id of no suite."""
    return next((flags for start, flags in SUITES.items() if re.match(start, env_id)), {})
