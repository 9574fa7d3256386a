"""Several learners of one policy compute what one learner computes from the whole batch."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.distributed

from sample_factory.config.algorithms import BUILT_IN
from sample_factory.learning.learner_group import LearnerGroup, LearnerLost, Order
from sample_factory.runtime.child import Child
from sample_factory.spaces.actions import ACTION_MASK
from tests.learning.algorithms import learners
from tests.learning.learners import build_learner

T, B, H, SPEED = 8, 8, 16, 4  # steps, trajectories of a batch, hidden units, size of an observation
NUM_LEARNERS = 2
ACTIONS = 3
SPACE = gym.spaces.Dict(
    {
        "obs": gym.spaces.Box(-5, 5, (SPEED,), np.float32),
        ACTION_MASK: gym.spaces.Box(0, 1, (ACTIONS,), np.uint8),
    }
)
# Iterations: 20 SGD steps of each case, but for those that end their epochs early.
CASES = {
    "gru_vtrace": (20, True, {"with_vtrace": True, "num_batches_per_iteration": 1}),
    "gae": (5, False, {"with_vtrace": False, "num_batches_per_iteration": 2, "ppo_epochs": 2}),
    "adaptive_rate": (
        5,
        False,
        {"num_batches_per_iteration": 2, "ppo_epochs": 2, "lr_schedule": "kl_adaptive_minibatch"},
    ),
    "impact": (4, True, {"num_batches_per_iteration": 2, "impact_buffer_batches": 2}),
    "impala": (4, False, {"optimizer": "rmsprop", "max_grad_norm": 40.0}),
    "no_statistics": (20, True, {"normalize_returns": False, "max_grad_norm": 0.0}),
}


def make_learner(case, group=None, device="cpu"):
    _, use_rnn, flags = CASES[case]
    learning = {"rollout": T, "batch_size": T * B, **flags, "shuffle_minibatches": False}
    model = {"use_rnn": use_rnn, "hidden_size": H, "encoder_mlp_layers": (H,)}
    args = {"algorithm": BUILT_IN.get(case.upper(), BUILT_IN["APPO"]).factory, "frameskip": 4}
    actions = gym.spaces.Discrete(ACTIONS)
    return build_learner(SPACE, actions, learning, model, device, group=group, max_policy_lag=100, **args)


def make_batch(learner, seed):
    """Returns a batch of the learner's version; shares of very different sizes are to be trained on."""
    batch = learners.make_batch(learner, seed, columns=B, masked=0.0)
    own = np.random.default_rng(seed).random((T, B)) < np.linspace(0.2, 1.0, B)
    if seed == 3:
        own[:, ::NUM_LEARNERS] = False  # nothing for the first learner
    obs = {**batch.obs, "obs": batch.obs["obs"] * 3 + 1}
    return batch._replace(obs=obs, own=torch.from_numpy(own), rewards=batch.rewards * 5)


def columns_of(rank, num_minibatches):
    """Returns the trajectories of a learner: half of every minibatch of a single learner."""
    minibatches = np.array_split(np.arange(B), num_minibatches)
    return np.concatenate([minibatch[rank::NUM_LEARNERS] for minibatch in minibatches])


def on_device(batch, device):
    """Returns the batch in memory of a torch device."""
    fields = {name: value.to(device) for name, value in batch._asdict().items() if torch.is_tensor(value)}
    return batch._replace(obs={key: value.to(device) for key, value in batch.obs.items()}, **fields)


def train(case, group=None, device="cpu"):
    """Returns the state of a learner after all iterations of a case. device: as --device."""
    learner = make_learner(case, group, device)
    num_iterations, _, flags = CASES[case]
    for iteration in range(num_iterations):
        batch = on_device(make_batch(learner, seed=iteration), learner.device)
        if group is not None:
            batch = batch.select(columns_of(group.rank, flags.get("num_batches_per_iteration", 1)))
        learner.train(batch)
    return learner.shared_state()


class SecondLearner:
    """In the child: trains all cases beside the test, receives an order, and ends."""

    def __init__(self, place, path, context):
        self._path = path
        torch.set_num_threads(1)
        self._group = LearnerGroup(1, NUM_LEARNERS)
        self._group.connect(torch.device("cpu"), place)

    def run(self):
        states = {case: train(case, self._group) for case in CASES}
        order = self._group.receive_order()
        self._path.write_bytes(pickle.dumps((states, order)))
        with pytest.raises(LearnerLost, match="does not come from the first learner"):
            self._group.receive_order()
        self._path.with_name("refused").touch()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Yields the states of both learners by case, the order that the second one received, and the group."""
    path = tmp_path_factory.mktemp("learners") / "second"
    group = LearnerGroup(0, NUM_LEARNERS)
    place = group.listen()
    child = Child("second", SecondLearner, (place, path))
    child.start()
    try:
        group.connect(torch.device("cpu"), place)
        first = {case: train(case, group) for case in CASES}
        group.give_order(Order(trains=True, state={"generation": 3}))
        forged = pickle.dumps(Order(trains=True))
        torch.distributed.broadcast(torch.tensor(len(forged)), src=0)
        torch.distributed.broadcast(torch.frombuffer(bytearray(forged), dtype=torch.uint8), src=0)
        child.join(60)
        assert path.with_name("refused").exists(), "an order of another account must not be unpickled"
        second, order = pickle.loads(path.read_bytes())
        yield first, second, order, group
    finally:
        child.kill()
        torch.distributed.destroy_process_group()


def numbers(state):
    """Yields all tensors and numbers of a state, nested ones too."""
    for value in state.values() if isinstance(state, dict) else state:
        if isinstance(value, dict | list | tuple):
            yield from numbers(value)
        elif isinstance(value, torch.Tensor | int | float):
            yield torch.as_tensor(value, dtype=torch.float64, device="cpu")


@pytest.mark.parametrize("case", CASES)
def test_two_learners_equal_one_with_the_whole_batch(trained, case):
    first, second, *_ = trained
    alone = train(case)
    of_two = list(numbers(first[case]))
    of_one = list(numbers(alone))
    assert len(of_two) == len(of_one) > 20 and first[case]["train_step"] == alone["train_step"] >= 4
    for two, one in zip(of_two, of_one):
        torch.testing.assert_close(two, one, atol=1e-5, rtol=1e-5)
    assert first[case]["env_steps"] == alone["env_steps"] and first[case]["samples"] == alone["samples"]
    for one, other in zip(numbers(first[case]), numbers(second[case])):
        assert torch.equal(one, other), "learners of a policy have the same weights, bit by bit"


def test_orders_of_the_first_learner_reach_the_others(trained):
    assert trained[2] == Order(trains=True, ends=False, state={"generation": 3})


def test_a_learner_that_has_ended_is_an_error_of_one_line(trained):
    group = trained[3]
    with pytest.raises(LearnerLost, match="lost the connection to another learner"):
        group.total(torch.ones(1))


def test_a_state_that_is_shared_continues_in_the_same_way():
    flags = {"learning_rate": 0.1}
    source, target = make_learner("gae"), make_learner("gae")
    source.train(make_batch(source, 0))
    source.set_hyperparameters(flags)
    source.take_over(source.state_dict())
    target.share_state(pickle.loads(pickle.dumps(source.shared_state())))
    assert target.weights().stamp == source.weights().stamp
    for learner in (source, target):
        learner.train(make_batch(learner, 1)._replace(generations=torch.ones(T, B, dtype=torch.int32)))
    for one, other in zip(numbers(source.shared_state()), numbers(target.shared_state())):
        assert torch.equal(one, other)
