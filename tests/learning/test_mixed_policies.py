"""Trajectories in which several policies acted, from the envs to the learners."""

import collections

import numpy as np
import torch

from sample_factory.learning.batch import Batcher
from tests.counting import NUM_ACTIONS, CountingEnv, counts
from tests.learning.learners import build_learner
from tests.learning.test_learner import SPACE
from tests.sampling.rollout.test_env_vector import make_vector, play

POLICIES = range(3)


def make_learner(policy_id):
    learning, model = {"rollout": 8, "batch_size": 8}, {"use_rnn": False, "encoder_mlp_layers": (8,)}
    args = {"policy_id": policy_id, "seed": policy_id}
    return build_learner(SPACE, CountingEnv.action_space, learning, model, **args)


def test_each_policy_is_trained_on_exactly_the_steps_in_which_it_acted():
    vector, buffers = make_vector(3, len(POLICIES), num_envs_per_worker=3, num_logits=NUM_ACTIONS)
    learners = [make_learner(policy) for policy in POLICIES]
    batchers = [Batcher(buffers, policy, learner.device) for policy, learner in enumerate(learners)]
    acted, seen, num_mixed = collections.Counter(), set(), 0
    for _ in range(15):
        for trajectory in play(vector, buffers, 8):
            b = trajectory.buffer
            policy_of_step = buffers.policy_ids[b].copy()
            acted.update(policy_of_step.tolist())
            num_mixed += len(trajectory.policy_ids) > 1
            owners = np.zeros(8, int)
            for policy in trajectory.policy_ids:
                batch = batchers[policy].next_batch([b])
                own = batch.own[:, 0].numpy()
                assert (own == (policy_of_step == policy)).all()
                assert (batch.versions[:, 0].numpy()[own] == policy).all(), "its own outputs"
                assert (batch.actions[~own] == 0).all(), "none of another policy's"
                owners += own
                newest = torch.full_like(batch.versions, learners[policy].version)
                no_memory = batch.chunk_rnn_states[..., :0]
                learners[policy].train(batch._replace(versions=newest, chunk_rnn_states=no_memory))
                seen.add(policy)
            assert (owners == 1).all()
    assert num_mixed > 5 and seen == set(POLICIES)
    assert [learner.samples for learner in learners] == [acted[policy] for policy in POLICIES]
    assert [learner.env_frames for learner in learners] == [acted[policy] for policy in POLICIES]
    assert counts(buffers)[2] == 0, "each buffer is free when the last of its policies has copied it"
