import dataclasses
import functools
import logging

import gymnasium as gym
import pytest

from sample_factory import register_env
from sample_factory.envs.protocol import EnvContractError
from sample_factory.runtime.log import log
from sample_factory.sampling.matchmaking.matchmaking import PastSelves
from sample_factory.sampling.rollout import env_setup
from sample_factory.sampling.rollout.env_setup import EnvSetup
from sample_factory.spaces.agent_kinds import AgentKinds, KindSpaces
from sample_factory.train import main
from tests.counting import CountingEnv, make_config, make_plan, make_shared


class Emulator(gym.Wrapper):
    """A process can have one at a time, as with stable-retro."""

    num_open = 0

    def __init__(self):
        if Emulator.num_open:
            raise RuntimeError("cannot create multiple emulator instances")
        Emulator.num_open += 1
        super().__init__(gym.make("CartPole-v1"))

    def close(self):
        Emulator.num_open -= 1
        super().close()


def test_where_a_process_can_have_one_env_only_the_error_names_the_flags_with_which_it_has_one(
    tmp_path, capsys
):
    register_env("emulator_", lambda full_env_name, cfg: Emulator())
    flags = ["--env=emulator_a", "--serial_mode=True", "--num_workers=1", "--rollout=8", "--recurrence=8"]
    flags += ["--batch_size=64", "--device=cpu", "--train_for_env_steps=64", f"--train_dir={tmp_path}"]
    assert main([*flags, "--num_envs_per_worker=2"]) == 1
    error = capsys.readouterr().err
    one = "--num_envs_per_worker=1 --worker_num_splits=1"
    assert "multiple emulator instances (test_env_setup.py" in error and one in error
    Emulator.num_open = 0
    assert main([*flags, *one.split()]) == 0


@pytest.mark.parametrize("max_seconds", [0.0, 10.0])
def test_slow_envs_start_with_fewer_random_steps_and_the_log_says_so(max_seconds, caplog, monkeypatch):
    monkeypatch.setattr(log, "propagate", True)
    config = make_config(decorrelate_envs_on_one_worker=True)
    buffers, channels = make_shared(config, CountingEnv())
    plan = make_plan(config, CountingEnv()).sampling.envs._replace(max_random_seconds=max_seconds)
    stepping = channels.progress["stepping"][:1]
    setup = EnvSetup(plan, 0, buffers, PastSelves(), stepping, report=print, beat=lambda: None)
    with caplog.at_level(logging.INFO, "sample_factory"):
        setup.make_vector(split=0)
    slow = [text for text in caplog.messages if "Envs are slow: they start with 0 random steps" in text]
    assert len(slow) == (max_seconds == 0.0)


def test_an_env_with_other_spaces_than_in_the_trial_is_refused():
    config = make_config()
    buffers, channels = make_shared(config, CountingEnv())
    plan = make_plan(config, CountingEnv()).sampling
    setup = functools.partial(
        EnvSetup,
        worker_index=0,
        buffers=buffers,
        past_selves=PastSelves(),
        stepping=channels.progress["stepping"][:1],
        report=print,
        beat=lambda: None,
    )
    setup(plan.envs._replace(kinds=plan.info.kinds)).make_vector(split=0)
    (spaces,), of_agent = plan.info.kinds
    observed = {
        key: gym.spaces.Box(box.low - 1, box.high + 1, dtype=box.dtype)
        for key, box in spaces.observation.spaces.items()
    }
    wider = AgentKinds((KindSpaces(gym.spaces.Dict(observed), spaces.action),), of_agent)
    setup(plan.envs._replace(kinds=wider)).make_vector(split=0)
    other = AgentKinds.one(gym.spaces.Dict(obs=gym.spaces.Box(0, 1, (7,))), spaces.action, len(of_agent))
    with pytest.raises(EnvContractError, match=r"the one of the trial .*had .*obs \(7,\) float32"):
        setup(plan.envs._replace(kinds=other)).make_vector(split=0)


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
