import dataclasses

import gymnasium as gym
import pytest

from sample_factory.envs.env_family import EnvFamily
from sample_factory.envs.protocol import EnvContractError
from sample_factory.runtime.failures import Failure
from sample_factory.sampling.matchmaking.matchmaking import PastSelves
from sample_factory.sampling.rollout import env_setup
from sample_factory.sampling.rollout.env_setup import EnvSetup
from sample_factory.spaces.agent_kinds import AgentKinds, KindSpaces
from tests.counting import CountingEnv, make_config, make_plan, make_shared


def make_setup(plan, buffers, channels):
    stepping = channels.progress["stepping"][:1]
    return EnvSetup(plan, 0, buffers, PastSelves(), stepping, report=print, beat=lambda: None)


def test_where_a_process_can_have_one_env_only_the_error_names_the_flags_with_which_it_has_one():
    made = []

    def make(full_env_name):
        """Like stable-retro."""
        if made:
            raise RuntimeError("cannot create multiple emulator instances")
        made.append(full_env_name)
        return CountingEnv()

    config = make_config(num_envs_per_worker=2, worker_num_splits=1)
    plan = make_plan(config, CountingEnv(), EnvFamily("emulator", make, None, {})).sampling.envs
    message = r"instances \(test_env_setup.py:.* use --num_envs_per_worker=1 --worker_num_splits=1"
    with pytest.raises(Failure, match=message):
        make_setup(plan, *make_shared(config, CountingEnv())).make_vector(split=0)


def test_an_env_with_other_spaces_than_in_the_trial_is_refused():
    config = make_config()
    buffers, channels = make_shared(config, CountingEnv())
    plan = make_plan(config, CountingEnv()).sampling

    def make_vector(kinds):
        make_setup(plan.envs._replace(kinds=kinds), buffers, channels).make_vector(split=0)

    make_vector(plan.info.kinds)
    (spaces,), of_agent = plan.info.kinds
    observed = {
        key: gym.spaces.Box(box.low - 1, box.high + 1, dtype=box.dtype)
        for key, box in spaces.observation.spaces.items()
    }
    wider = AgentKinds((KindSpaces(gym.spaces.Dict(observed), spaces.action),), of_agent)
    make_vector(wider)
    other = AgentKinds.one(gym.spaces.Dict(obs=gym.spaces.Box(0, 1, (7,))), spaces.action, len(of_agent))
    with pytest.raises(EnvContractError, match=r"the one of the trial .*had .*obs \(7,\) float32"):
        make_vector(other)


@pytest.fixture
def seeds_of(monkeypatch):
    """Returns seeds_of(*workers), which resets the envs of these workers and returns their seeds."""

    def reset(vector, seeds, *_):
        used.extend(seeds)
        return 0

    def seeds_of(*workers, num_episodes=None):
        used.clear()
        config = make_config(num_workers=2)
        buffers, channels = make_shared(config, CountingEnv())
        buffers.topology = dataclasses.replace(buffers.topology, num_episodes=num_episodes)
        plan = make_plan(config, CountingEnv()).sampling.envs
        for worker in workers:
            stepping = channels.progress["stepping"][worker : worker + 1]
            EnvSetup(plan, worker, buffers, PastSelves(), stepping, print, lambda: None).make_vector(split=0)
            buffers.reclaim(worker)
        return list(used)

    used = []
    monkeypatch.setattr(env_setup.EnvVector, "reset", reset)
    return seeds_of


def test_the_envs_of_a_replaced_worker_have_seeds_that_no_other_env_has(seeds_of):
    used = seeds_of(0, 1, 0)
    assert len(set(used)) == len(used) >= 3


def test_an_evaluation_has_seeds_that_no_env_of_the_training_has_and_repeats_them(seeds_of):
    trained, evaluated = seeds_of(0, 1), seeds_of(0, 1, num_episodes=8)
    assert len({*trained, *evaluated}) == len(trained) + len(evaluated)
    assert evaluated == seeds_of(0, 1, num_episodes=8)
