"""Learners of any algorithm, and batches of an env with a mask and actions of several kinds."""

import gymnasium as gym
import numpy as np
import torch

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.spaces.actions import ACTION_MASK
from tests.learning.learners import build_learner, plain_batch

T, B, H = 8, 6, 10
CHOICES = 3
ACTIONS = {
    "discrete": gym.spaces.Discrete(CHOICES),
    "box": gym.spaces.Box(-1, 1, (2,), np.float32),
    "tuple": gym.spaces.Tuple(
        (
            gym.spaces.Discrete(CHOICES),
            gym.spaces.Box(-1, 1, (2,), np.float32),
            gym.spaces.Discrete(2),
        )
    ),
}
NUM_MASKED = {"discrete": CHOICES, "tuple": CHOICES + 2}  # discrete logits


def make_learner(algo, actions="discrete", use_rnn=True, **flags):
    """Returns a learner with the defaults of the algorithm, apart from `flags`."""
    space = ACTIONS[actions]
    observations = {"obs": gym.spaces.Box(-5, 5, (4,), np.float32)}
    if actions in NUM_MASKED:
        observations[ACTION_MASK] = gym.spaces.Box(0, 1, (NUM_MASKED[actions],), np.uint8)
    learning = {"rollout": T, "batch_size": T * B, **BUILT_IN[algo].defaults, **flags}
    model = {"use_rnn": use_rnn, "hidden_size": H, "encoder_mlp_layers": (H,)}
    args = {"algorithm": BUILT_IN[algo].factory, "seed": 5, "max_policy_lag": 1000}
    return build_learner(gym.spaces.Dict(observations), space, learning, model, **args)


def make_batch(learner, seed=0, columns=B, num_chunks=1, masked=0.15):
    """Returns trajectories in which the first choice is often forbidden, with masked steps.

    The policy that acted is the learner's, with noise in its logits.
    """
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    ended = rng.random((T, columns)) < 0.25
    truncated = ended & (rng.random((T, columns)) < 0.5)
    own = rng.random((T, columns)) >= masked

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    obs = {"obs": normal(T + 1, columns, 4)}
    model = learner.model
    if ACTION_MASK in model.observation_shapes:
        allowed = np.ones((T + 1, columns, *model.observation_shapes[ACTION_MASK]), np.uint8)
        allowed[..., 0] = rng.random((T + 1, columns)) < 0.5
        obs[ACTION_MASK] = torch.from_numpy(allowed)
    states = normal(num_chunks, columns, model.state_size) * 0.3
    resets = np.concatenate([np.zeros((1, columns), bool), ended | ~own])
    torch.manual_seed(seed)
    with torch.no_grad():
        logits = model.unroll(obs, states[0], resets).logits[:-1]
        logits = torch.where(logits > -1e7, logits + 0.3 * normal(*logits.shape), logits)
        distribution = model.distribution(logits)
        actions = distribution.sample()
        log_probs = distribution.log_prob(actions)
    return plain_batch(
        obs=obs,
        actions=actions,
        log_probs=log_probs,
        values=normal(T, columns) * 0.1,
        logits=logits,
        versions=torch.full((T, columns), learner.version, dtype=torch.int32),
        rewards=normal(T, columns),
        terminated=ended & ~truncated,
        truncated=truncated,
        own=own,
        chunk_rnn_states=states,
        resets=resets,
    )


def state_of(learner):
    """Returns all tensors of the network and of the algorithm's modules, copied, by name."""
    state = learner.state_dict()
    names = ["model", *learner.algorithm.modules]
    return {f"{name}.{key}": value.clone() for name in names for key, value in state[name].items()}


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)
