import numpy as np
import pytest

from sample_factory.envs.abilities import TrainingInfo
from sample_factory.envs.adapters.adapt import adapt
from sample_factory.envs.protocol import EnvContractError, ObservationRows
from sample_factory.exchange.channels import in_close
from sample_factory.runtime.child import call_in_child
from sample_factory.runtime.failures import Failure
from sample_factory.sampling.rollout import guarded_env
from sample_factory.sampling.rollout.guarded_env import MAX_REBUILDS, GuardedEnv
from tests.counting import STEP, CountingEnv

NAME = "worker 1: env 3 (counting)"


class Faulty(CountingEnv):
    """errors: raised in these steps, counted over all episodes."""

    def __init__(self, reset_error=None, errors=None, close_error=None):
        super().__init__()
        self.reset_error, self.errors, self.close_error = reset_error, errors or {}, close_error
        self.seeds = []

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        if self.reset_error is not None:
            raise self.reset_error
        return super().reset()

    def step(self, actions):
        result = super().step(actions)
        if self.total_steps in self.errors:
            raise self.errors[self.total_steps]
        return result

    def close(self):
        if self.close_error is not None:
            raise self.close_error


class Guarded:
    """A GuardedEnv of given envs, one after another, and the rebuilds that it reported."""

    def __init__(self, *envs):
        self.envs, self.reported, self.stepping = list(envs), [], np.full(1, -1)
        self.made = []
        self.env = GuardedEnv(self._make, NAME, 3, self.stepping, self._report)
        self.rows = ObservationRows.allocate(self.env.kinds)

    def _make(self):
        self.made.append(self.envs.pop(0))
        return adapt(self.made[-1])

    def _report(self, text, details):
        self.reported.append((text, details))

    def step(self):
        return self.env.step(np.zeros((1, 1), np.float32), self.rows)

    @property
    def observation(self):
        return self.rows.arrays["obs"][0, 0]


def test_an_env_that_raises_is_rebuilt_and_begins_an_episode():
    guarded = Guarded(Faulty(errors={2: KeyError("map07")}), CountingEnv())
    guarded.env.reset(5, guarded.rows)
    assert guarded.stepping[0] == 3
    assert guarded.step() is not None and guarded.observation[STEP] == 1
    assert guarded.step() is None and guarded.observation[STEP] == 0, "the new env's first observation"
    assert guarded.step() is not None and guarded.observation[STEP] == 1
    [(text, details)] = guarded.reported
    assert text.startswith(NAME) and "KeyError: 'map07' (test_guarded_env.py:" in text and "\n" not in text
    assert details.startswith("Traceback") and "KeyError: 'map07'" in details


def test_the_rebuilt_env_gets_another_seed():
    guarded = Guarded(Faulty(errors={1: KeyError()}), Faulty())
    guarded.env.reset(5, guarded.rows)
    guarded.step()
    assert guarded.made[0].seeds == [5] and guarded.made[1].seeds == [6]


def test_an_env_that_raises_in_its_first_reset_is_rebuilt():
    guarded = Guarded(Faulty(reset_error=OSError("port in use")), CountingEnv())
    guarded.env.reset(None, guarded.rows)
    assert guarded.step() is not None
    assert "port in use" in guarded.reported[0][0]


def test_a_broken_env_is_rebuilt_even_if_it_cannot_be_closed(caplog):
    guarded = Guarded(Faulty(errors={1: KeyError()}, close_error=RuntimeError("no engine")), CountingEnv())
    guarded.env.reset(None, guarded.rows)
    assert guarded.step() is None
    assert f"{NAME} raised in close: RuntimeError: no engine" in caplog.text


def test_that_an_env_is_being_closed_is_seen_from_outside():
    class Watched(CountingEnv):
        def close(self):
            self.seen = int(guarded.stepping[0])

    guarded = Guarded(Watched())
    guarded.env.close()
    assert guarded.made[0].seen == in_close(3)


def test_an_env_that_keeps_raising_ends_the_worker_with_the_last_error():
    errors = [Faulty(reset_error=KeyError(f"map{i}")) for i in range(MAX_REBUILDS + 1)]
    guarded = Guarded(*errors)
    with pytest.raises(
        Failure, match=rf"{MAX_REBUILDS + 1} times within 60 s, the last time in reset: KeyError: 'map3'"
    ) as info:
        guarded.env.reset(None, guarded.rows)
    assert NAME in str(info.value) and isinstance(info.value.__cause__, KeyError)
    assert guarded.reported == [], "one line says why the run fails, not four"


def test_an_env_that_rarely_raises_is_rebuilt_without_limit(monkeypatch):
    minutes = iter(range(1000))
    monkeypatch.setattr(guarded_env.time, "monotonic", lambda: 61.0 * next(minutes))
    guarded = Guarded(*[Faulty(errors={1: KeyError()}) for _ in range(10)])
    guarded.env.reset(None, guarded.rows)
    assert [guarded.step() for _ in range(9)] == [None] * 9


def test_an_env_that_violates_its_contract_is_not_rebuilt():
    guarded = Guarded(Faulty(errors={1: EnvContractError("observation 'obs' has shape (2,)")}), CountingEnv())
    guarded.env.reset(None, guarded.rows)
    with pytest.raises(Failure, match=r"worker 1: env 3 \(counting\): observation 'obs' has shape \(2,\)"):
        guarded.step()
    assert guarded.reported == []


class Noting(Faulty, TrainingInfo):
    """refuses: values that it rejects."""

    def __init__(self, refuses=None, **faults):
        super().__init__(**faults)
        self.refuses = refuses

    def set_training_info(self, training_info):
        if training_info == self.refuses:
            raise ValueError("unknown level")
        super().set_training_info(training_info)


def test_a_rebuilt_env_gets_the_values_of_the_run_before_its_first_reset():
    guarded = Guarded(Noting(errors={1: KeyError()}), Noting(reset_error=KeyError()), Noting())
    guarded.env.set_training_info({"level": 3})
    guarded.env.reset(None, guarded.rows)
    assert guarded.step() is None
    assert [env.training_info for env in guarded.made] == [{"level": 3}] * 3


def test_an_env_that_rejects_the_values_of_the_run_ends_the_worker_in_one_line():
    guarded = Guarded(Noting(refuses={"level": 9}))
    guarded.env.reset(None, guarded.rows)
    with pytest.raises(
        Failure,
        match=r"env 3 \(counting\): set_training_info\(.*raised ValueError: unknown level",
    ):
        guarded.env.set_training_info({"level": 9})


class UsersOwn(BaseException):
    pass


UNUSUAL = [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), UsersOwn("mine"), MemoryError()]


def rebuilt_after_unusual_exceptions():
    """Returns what was reported for each exception of UNUSUAL, raised in `step`, `reset` or `close`."""
    reported = []
    for error in UNUSUAL:
        guarded = Guarded(Faulty(errors={1: error}, close_error=error), Faulty(reset_error=error), Faulty())
        guarded.env.reset(5, guarded.rows)
        assert guarded.step() is None and guarded.step() is not None
        reported.append([text.partition("In ")[2] for text, _ in guarded.reported])
    return reported


def test_in_a_child_an_env_is_rebuilt_whatever_class_of_exception_it_raises():
    reported = call_in_child("child", rebuilt_after_unusual_exceptions)
    assert len(reported) == len(UNUSUAL)
    for error, (in_step, in_reset) in zip(UNUSUAL, reported):
        name = type(error).__name__
        assert name in in_step and in_step.startswith("step: "), in_step
        assert name in in_reset and in_reset.startswith("reset: "), in_reset


@pytest.mark.parametrize("error", UNUSUAL[:4], ids=repr)
def test_in_the_main_process_ctrl_c_and_other_exceptions_that_end_a_program_propagate(error):
    guarded = Guarded(Faulty(errors={1: error}, close_error=error), Faulty())
    guarded.env.reset(5, guarded.rows)
    for call in (guarded.step, guarded.env.close):
        with pytest.raises(type(error)):
            call()
