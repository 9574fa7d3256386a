"""A serial run waits for evaluations, so that it can be repeated, and saves however it ends."""

from types import SimpleNamespace

import pytest

from sample_factory.launch import serial
from sample_factory.launch.serial import SerialRun
from sample_factory.mainloop.main_loop import Resources


class Worker:
    """A rollout worker or a learner, which adds its calls to a list."""

    def __init__(self, calls):
        self._calls = calls

    def step(self, timeout):
        self._calls.append("step")

    def train_once(self, timeout):
        pass

    def save(self):
        self._calls.append("save")

    def close(self):
        self._calls.append("close")


class Loop:
    """Its evaluation ends in turn `end`; in turn 3, it raises, a signal arrives, or the run is done."""

    num_turns = 0

    def __init__(self, calls, end=0, signal=None, fails=False):
        self.signals = SimpleNamespace(requested=None)
        self._calls, self._end, self._signal, self._fails = calls, end, signal, fails

    @property
    def is_done(self):
        return self.num_turns == 3 and self._signal is None

    @property
    def is_busy(self):
        return self.num_turns < self._end

    def turn(self, timeout):
        self.num_turns += 1
        if self.num_turns == 3:
            self.signals.requested = self._signal
            self._raise("no such curve")

    def close(self, may_wait):
        self.may_wait = may_wait()
        self._calls.append("close the loop")
        self._raise("not open")

    def started(self):
        pass

    def stepped(self):
        pass

    def stopping(self):
        self._calls.append("stopping")

    def _raise(self, text):
        if self._fails:
            raise LookupError(text)


@pytest.fixture
def run(monkeypatch):
    """Returns a function that runs a loop with a learner and a rollout worker."""
    monkeypatch.setattr(serial, "sampling_specs", lambda plan: [])

    def run(loop, calls):
        serial_run = SerialRun(None, Resources(None, None))
        serial_run._learners, serial_run._rollout_workers = [Worker(calls)], [Worker(calls)]
        return serial_run.run(loop, loop.signals)

    return run


@pytest.mark.parametrize(("end", "signal", "num_steps"), [(2, None, 1), (100, 2, 0)])
def test_no_worker_steps_while_an_evaluation_is_played_and_a_signal_ends_the_wait(
    run, end, signal, num_steps
):
    calls = []
    loop = Loop(calls, end, signal)
    run(loop, calls)
    assert calls.count("step") == 2 * num_steps and loop.num_turns == 3  # learner and rollout worker
    assert loop.may_wait == (signal is None)


@pytest.mark.parametrize("fails", [False, True])
def test_the_time_of_a_run_ends_before_anything_is_saved_or_closed_also_after_an_exception(run, fails):
    calls = []
    failures = run(Loop(calls, end=2, fails=fails), calls)
    assert calls[-4:] == ["stopping", "save", "close", "close the loop"] and calls.count("save") == 1
    reasons = [failure.message.partition(" (")[0] for failure in failures]
    assert reasons == (["LookupError: no such curve", "LookupError: not open"] if fails else [])
    assert {failure.where for failure in failures} <= {"main_loop"}
