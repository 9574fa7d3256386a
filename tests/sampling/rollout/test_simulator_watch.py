import numpy as np
import pytest

from sample_factory.envs.abilities import OwnsProcess, find_ability
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.runtime.child import Child
from sample_factory.sampling.rollout import guarded_env
from sample_factory.sampling.rollout.guarded_env import EXIT_CODE, GuardedEnv, SimulatorWatch
from tests.counting import CountingEnv

NAME = "worker 1: env 3 (counting)"


class WithSimulator(CountingEnv, OwnsProcess):
    """answers: the results of `process_is_gone`, one after another."""

    def __init__(self, answers):
        super().__init__()
        self.answers = iter(answers)

    def process_is_gone(self):
        return next(self.answers)


class Waits:
    """In the child: waits without end for a simulator; the watch checks every hundredth of a second."""

    def __init__(self, answers, called, context):
        guarded_env.CHECK_SECONDS = 0.01
        guarded_env.PATIENCE_SECONDS = 0.03
        env = GuardedEnv(lambda: adapt(WithSimulator(answers)), NAME, 3, np.zeros(1), print)
        self.watch = SimulatorWatch([env], np.full(1, called), context.stopping)

    def run(self):
        self.watch.start()
        self.watch.join()
        return "nothing happened"


@pytest.fixture
def make_child():
    children = []

    def make(answers, called=0):
        children.append(Child("child", Waits, (answers, called)))
        children[-1].start()
        return children[-1]

    yield make
    for child in children:
        child.kill()


def test_a_simulator_that_stays_gone_ends_the_process_with_a_message_that_names_the_env(make_child, capfd):
    child = make_child([False, True, True, True])
    assert child.join(timeout=60)
    assert child.exit_code == EXIT_CODE
    assert f"{NAME} waits for its simulator, which is gone" in capfd.readouterr().err


def test_a_simulator_that_is_replaced_in_time_does_not_end_the_process(make_child):
    child = make_child([True, True, False] * 5)  # then StopIteration ends the watch
    assert child.join(timeout=60)
    assert "StopIteration" in child.failure.message


def test_a_simulator_that_no_call_waits_for_does_not_end_the_process(make_child):
    child = make_child([True] * 20, called=-1)
    assert not child.join(timeout=1.0), "it keeps running"


def test_the_process_of_an_env_without_a_simulator_is_never_gone():
    assert not find_ability(adapt(CountingEnv()).env, OwnsProcess).process_is_gone()
