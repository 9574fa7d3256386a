"""Classes of version 2 that scripts import: TensorDict, RunningMeanStdInPlace, ContinuousActionDistribution,
Timing."""

import time

import numpy as np
import pytest
import torch
from sample_factory.algo.utils.action_distributions import ContinuousActionDistribution
from sample_factory.algo.utils.rl_utils import make_dones
from sample_factory.algo.utils.running_mean_std import RunningMeanStdInPlace
from sample_factory.algo.utils.spaces.discretized import Discretized
from sample_factory.algo.utils.tensor_dict import TensorDict
from sample_factory.algo.utils.tensor_utils import unsqueeze_tensor
from sample_factory.model.actor_critic import ActorCritic
from sample_factory.model.model_utils import create_mlp, fc_layer
from sample_factory.utils.timing import Timing
from sample_factory.utils.typing import StatusCode
from sample_factory.utils.utils import is_module_available
from torch import nn


def test_an_index_of_a_tensor_dict_is_one_into_all_its_tensors():
    tensors = TensorDict(a=torch.arange(4), b={"c": np.arange(4) * 10.0})
    part = tensors[1:3]
    assert tensors["a"].tolist() == [0, 1, 2, 3] and isinstance(part, TensorDict)
    assert part["a"].tolist() == [1, 2] and part["b"]["c"].tolist() == [10, 20]
    tensors[:2] = {"a": np.array([7, 8]), "b": {"c": np.array([5.0, 6.0])}}
    assert tensors["a"].tolist() == [7, 8, 2, 3] and tensors["b"]["c"].tolist() == [5, 6, 20, 30]
    tensors["d"] = torch.ones(4)
    assert tensors[3]["d"] == 1


def test_a_running_normaliser_changes_tensors_in_place_and_learns_in_training_mode_only():
    torch.manual_seed(0)
    normalizer = RunningMeanStdInPlace((2,))
    batch = torch.randn(1000, 2) * 3 + 5
    given = batch.clone()
    normalizer(batch)
    assert batch.mean(0).abs().max() < 0.02 and (batch.std(0) - 1).abs().max() < 0.02
    normalizer.eval()
    same = given.clone()
    normalizer(same)
    assert torch.equal(same, batch)
    normalizer(same, denormalize=True)
    assert torch.allclose(same, given, atol=1e-4)


def test_a_continuous_distribution_is_that_of_torch():
    params = torch.tensor([[0.5, -1.0, 0.1, -0.2]])
    distribution = ContinuousActionDistribution(params)
    expected = torch.distributions.Independent(
        torch.distributions.Normal(params[:, :2], params[:, 2:].exp()), 1
    )
    actions = torch.tensor([[0.3, 0.4]])
    assert torch.allclose(distribution.log_prob(actions), expected.log_prob(actions))
    assert torch.allclose(distribution.entropy(), expected.entropy())
    assert torch.equal(distribution.means, params[:, :2])
    assert torch.allclose(distribution.stddevs, expected.stddev)
    other = ContinuousActionDistribution(torch.zeros(1, 4))
    zeros = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(1, 2), 1.0), 1)
    kl = torch.distributions.kl_divergence(expected, zeros)
    assert torch.allclose(distribution.kl_divergence(other), kl)


def test_a_clock_has_last_total_and_mean_seconds():
    timing = Timing("Steps")
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        with timing.add_time("all"), timing.timeit("last"), timing.time_avg("mean", average=2):
            sum(range(1000))
        seconds.append(time.perf_counter() - start)
    assert 0 < timing.last <= seconds[-1] and timing["last"] <= timing.all <= sum(seconds)
    assert 0 < timing.mean <= max(seconds[1:])
    assert str(timing).startswith("Steps: ") and set(timing) == {"last", "all", "mean"}


@pytest.mark.parametrize("make", [np.array, torch.tensor, list, tuple])
def test_an_episode_is_done_if_it_is_terminated_or_truncated_whatever_the_type(make):
    assert make_dones(True, False) is True and make_dones(False, False) is False
    found = make_dones(make([True, False, False]), make([False, True, False]))
    assert isinstance(found, list if make is tuple else type(make([True])))
    assert [bool(one) for one in found] == [True, True, False]


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_a_dimension_is_added_to_arrays_and_to_tensors(make):
    found = unsqueeze_tensor(make([1.0, 2.0]), 0)
    assert isinstance(found, type(make([1.0]))) and found.tolist() == [[1.0, 2.0]]


def test_a_discretized_action_has_its_bounds_by_name_and_takes_arrays():
    space = Discretized(11, min_action=-10.0, max_action=10.0)
    assert (space.min_action, space.max_action, space.to_continuous(0)) == (-10, 10, -10)
    assert space.to_continuous(np.array([0, 5, 10])).tolist() == [-10, 0, 10]


def test_a_module_of_a_package_that_is_missing_is_not_available():
    assert is_module_available("os.path") and is_module_available("importlib.metadata")
    for missing in ("nothing_here", "nothing_here.below", "math.below", "json.decoder.below"):
        assert not is_module_available(missing)


def test_layers_and_types_of_version_2():
    layers = create_mlp([8, 4], 3, nn.ELU())
    assert [*map(type, layers)] == [nn.Linear, nn.ELU] * 2 and layers(torch.zeros(5, 3)).shape == (5, 4)
    assert isinstance(create_mlp([], 3, nn.ELU()), nn.Identity) and fc_layer(3, 2).out_features == 2
    normed = fc_layer(3, 2, bias=False, spec_norm=True)
    assert normed.bias is None and "weight_u" in dict(normed.named_buffers())
    assert StatusCode is int
    with pytest.raises(
        ImportError, match=r"models\.actor_critic\.ActorCritic, and call .*register_actor_critic"
    ):
        type("Mine", (ActorCritic,), {})
