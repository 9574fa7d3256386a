import numpy as np
import torch

from sample_factory.config import algorithms
from sample_factory.config.algorithms import AlgorithmInfo
from sample_factory.exchange.trajectory_buffers import WAITING
from sample_factory.learning.batch import Batcher
from sample_factory.runtime.registry import Registry
from tests.counting import CountingEnv, counts, make_config, make_shared


def full_buffer(**flags):
    buffers, _ = make_shared(make_config(num_policies=2, **flags), CountingEnv())
    buffer = int(buffers.acquire(0, np.array([0]))[0])
    for array in (
        buffers.obs["obs"],
        buffers.outputs,
        buffers.rewards,
        buffers.chunk_rnn_states,
        buffers.versions,
    ):
        array[buffer] = 1
    buffers.generations[buffer] = 5
    buffers.terminated[buffer] = buffers.truncated[buffer] = False
    buffers.policy_ids[buffer] = 0
    buffers.hand_over(0, np.array([buffer]), np.array([0]), np.array([[True, False]]))
    return buffers, buffer


def test_a_batch_is_a_copy_and_the_buffer_is_free_at_once():
    buffers, buffer = full_buffer()
    batch = Batcher(buffers, 0, torch.device("cpu")).next_batch([buffer])
    assert counts(buffers)[2] == 0
    buffers.obs["obs"][buffer] = 7
    assert (
        (batch.obs["obs"] == 1).all()
        and (batch.generations == 5).all()
        and batch.obs["obs"].shape == (9, 1, 4)
        and batch.own.all()
    )


def test_steps_with_nan_are_masked_and_the_state_is_cut_after_them_unless_it_was_the_reward():
    buffers, buffer = full_buffer()
    buffers.obs["obs"][buffer, 2, 1] = np.nan
    buffers.rewards[buffer, 5] = np.inf
    buffers.outputs[buffer, 3, -1] = np.inf
    buffers.obs["obs"][buffer, 8, 0] = np.nan  # what the last step bootstraps from
    batch = Batcher(buffers, 0, torch.device("cpu")).next_batch([buffer])
    assert [t for t in range(8) if not batch.own[t, 0]] == [2, 3, 5, 7]
    assert [t for t in range(9) if batch.resets[t, 0]] == [3, 4, 8]
    assert all(tensor.isfinite().all() for tensor in (batch.obs["obs"], batch.values, batch.logits))


def test_steps_of_another_policy_are_masked():
    buffers, buffer = full_buffer()
    buffers.policy_ids[buffer, 4:] = 1
    buffers.outputs[buffer, 4:] = np.nan
    batch = Batcher(buffers, 0, torch.device("cpu")).next_batch([buffer])
    assert batch.own[:, 0].tolist() == [True] * 4 + [False] * 4
    assert (batch.log_probs[4:] == 0).all() and (batch.log_probs[:4] == 1).all()


def test_the_state_is_cut_after_every_episode_end():
    buffers, buffer = full_buffer()
    buffers.terminated[buffer, 1] = buffers.truncated[buffer, 4] = True
    batch = Batcher(buffers, 0, torch.device("cpu")).next_batch([buffer])
    assert [t for t in range(9) if batch.resets[t, 0]] == [2, 5]
    assert batch.terminated[:, 0].nonzero().tolist() == [[1]]
    assert batch.truncated[:, 0].nonzero().tolist() == [[4]]


def test_an_agent_that_does_not_act_after_the_last_step_has_no_next_value_but_its_episode_goes_on():
    for active in (True, False):
        buffers, buffer = full_buffer()
        buffers.active_at_end[buffer] = active
        batch = Batcher(buffers, 0, torch.device("cpu")).next_batch([buffer])
        assert batch.active_at_end.tolist() == [[active]] and batch.resets[8, 0] == (not active)
        assert batch.own.all() and not batch.truncated.any() and not batch.resets[:8].any()


def test_a_chunk_that_starts_with_a_masked_step_starts_without_memory():
    """Another policy's recurrent state must not reach the network."""
    buffers, buffer = full_buffer(recurrence=4)
    buffers.policy_ids[buffer, 4] = 1
    batch = Batcher(buffers, 0, torch.device("cpu")).next_batch([buffer])
    assert batch.chunk_rnn_states.shape[:2] == (2, 1)
    assert (batch.chunk_rnn_states[0] == 1).all() and (batch.chunk_rnn_states[1] == 0).all()


def test_the_turns_of_a_player_follow_each_other_and_the_steps_in_which_it_waits_are_last():
    buffers, buffer = full_buffer(recurrence=4)
    buffers.obs["obs"][buffer] = np.arange(9)[:, None]
    buffers.rewards[buffer] = np.arange(8)
    buffers.policy_ids[buffer] = [WAITING, 0, WAITING, 0, WAITING, 0, WAITING, 0]
    buffers.active_at_end[buffer] = False
    buffers.chunk_rnn_states[buffer] = [[3], [4]]
    batch = Batcher(buffers, 0, torch.device("cpu")).next_batch([buffer])
    assert batch.obs["obs"][:, 0, 0].tolist() == [1, 3, 5, 7, 8, 0, 2, 4, 6]
    assert batch.own[:, 0].tolist() == [True] * 4 + [False] * 4
    assert batch.rewards[:4, 0].tolist() == [1, 3, 5, 7] and not batch.log_probs[4:].any()
    assert not batch.resets[:5].any(), "the memory goes on from turn to turn"
    assert batch.chunk_rnn_states.tolist() == [[[3] * buffers.rnn_state_size]], "a single chunk"


def test_a_batch_has_costs_only_for_an_algorithm_that_needs_them(monkeypatch):
    buffers, buffer = full_buffer()
    assert Batcher(buffers, 0, torch.device("cpu")).next_batch([buffer]).costs is None
    needs = AlgorithmInfo("my.module:Mine", needs_costs=True)
    monkeypatch.setattr(algorithms, "_REGISTRY", Registry("algo", {"MINE": needs}))
    buffers, buffer = full_buffer(algo="MINE")
    buffers.costs[buffer] = np.arange(8)
    buffers.policy_ids[buffer, 4:] = 1
    batch = Batcher(buffers, 0, torch.device("cpu")).next_batch([buffer])
    assert batch.costs[:, 0].tolist() == [0, 1, 2, 3, 0, 0, 0, 0], "others' steps cost nothing"
    assert batch.costs.dtype == torch.float32 and batch.select(np.array([0, 0])).costs.shape == (8, 2)
