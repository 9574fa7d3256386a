"""Inline samplers: how their time is accounted for, and what a replaced one repeats."""

import numpy as np
import torch

from sample_factory.exchange.policy_weights import Stamp
from sample_factory.models import towers
from sample_factory.monitoring.bottleneck import describe_bottleneck
from sample_factory.runtime.child_side import ChildContext
from sample_factory.sampling import inline_sampler
from sample_factory.sampling.inline_sampler import InlineSampler
from tests.counting import CountingEnv, make_config, make_plan, make_shared
from tests.counting_model import CountingModel


def test_pauses_of_a_sampler_that_waits_for_the_learner_count_as_waiting(monkeypatch):
    monkeypatch.setattr(inline_sampler, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(towers, "make_actor_critic", CountingModel)
    config = make_config(num_envs_per_worker=2, rollout=4, inline_samplers=1, async_rl=False)
    plan = make_plan(config, CountingEnv()).sampling
    buffers, channels = make_shared(config, CountingEnv())
    channels.weights[0].publish({"weight": np.zeros(1, np.float32)}, Stamp(0))
    sampler = InlineSampler(plan.envs, plan.acting, 0, buffers, channels, ChildContext("sampler_0"))
    while sampler.step():  # until its share of the first iteration is sampled, on which nobody trains
        pass
    clocks = {
        "rollout_worker": sampler._rollout_workers[0].clock,
        "policy_worker": sampler._policy_workers[0].clock,
    }
    for clock in clocks.values():
        clock.take_shares()
    for _ in range(3):
        sampler._pause()
        assert not sampler.step()
    waits = {component: clock.take_shares()["wait"] for component, clock in clocks.items()}
    assert min(waits.values()) > 0.5, "nearly 1; less where the machine is busy"
    text = describe_bottleneck({**waits, "learner": 0.0})
    assert text.startswith("bottleneck: learner (busy 100 %; rollout workers wait ")


def test_a_replaced_sampler_draws_other_actions_than_the_one_that_died(monkeypatch):
    monkeypatch.setattr(towers, "make_actor_critic", CountingModel)
    config = make_config(num_envs_per_worker=2, rollout=4, inline_samplers=1)
    plan = make_plan(config, CountingEnv()).sampling
    buffers, channels = make_shared(config, CountingEnv())
    drawn = []
    for is_repeated in (True, True, False):
        buffers.incarnations[:] += not is_repeated
        InlineSampler(plan.envs, plan.acting, 0, buffers, channels, ChildContext("sampler_0"))
        drawn.append(torch.rand(3).tolist())
    assert drawn[0] == drawn[1] != drawn[2]
