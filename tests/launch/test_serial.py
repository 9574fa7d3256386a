"""A serial run waits for evaluations, so that it can be repeated."""

from types import SimpleNamespace

import pytest

from sample_factory.launch import serial
from sample_factory.launch.serial import SerialRun
from sample_factory.mainloop.main_loop import Resources


class Worker:
    """Counts its steps."""

    num_steps = 0

    def step(self, timeout):
        self.num_steps += 1

    def close(self):
        pass


class Evaluating:
    """A loop whose evaluation ends in turn `end`; in turn 3, a signal arrives or the run is done."""

    num_turns = 0

    def __init__(self, signals, end, signal):
        self._signals, self._end, self._signal = signals, end, signal

    @property
    def is_done(self):
        return self.num_turns == 3 and self._signal is None

    @property
    def is_busy(self):
        return self.num_turns < self._end

    def turn(self, timeout):
        self.num_turns += 1
        if self.num_turns == 3:
            self._signals.requested = self._signal

    def close(self, may_wait):
        self.may_wait = may_wait()

    def started(self):
        pass

    def stepped(self):
        pass

    def stopping(self):
        pass


@pytest.mark.parametrize(("end", "signal", "num_steps"), [(2, None, 1), (100, 2, 0)])
def test_no_worker_steps_while_an_evaluation_is_played_and_a_signal_ends_the_wait(
    monkeypatch, end, signal, num_steps
):
    monkeypatch.setattr(serial, "sampling_specs", lambda plan: [])
    signals = SimpleNamespace(requested=None)
    loop = Evaluating(signals, end, signal)
    run = SerialRun(None, Resources(None, None))
    worker = Worker()
    run._rollout_workers = [worker]
    run.run(loop, signals)
    assert worker.num_steps == num_steps and loop.num_turns == 3
    assert loop.may_wait == (signal is None)


class Failing(Evaluating):
    """A loop that raises in its third turn, and again when it is closed."""

    def turn(self, timeout):
        super().turn(timeout)
        if self.num_turns == 3:
            raise LookupError("no such curve")

    def close(self, may_wait):
        raise LookupError("not open")


class Saving(Worker):
    has_saved = False

    def save(self):
        self.has_saved = True

    def train_once(self, timeout):
        pass


def test_an_exception_of_the_main_loop_ends_the_run_as_failed_after_the_learners_have_saved(monkeypatch):
    monkeypatch.setattr(serial, "sampling_specs", lambda plan: [])
    signals = SimpleNamespace(requested=None)
    loop = Failing(signals, 0, 2)
    run = SerialRun(None, Resources(None, None))
    learner = Saving()
    run._learners = [learner]
    failures = run.run(loop, signals)
    assert [failure.message.partition(" (")[0] for failure in failures] == [
        "LookupError: no such curve",
        "LookupError: not open",
    ]
    assert {failure.where for failure in failures} == {"main_loop"}
    assert learner.has_saved


class Timed(Evaluating):
    """A loop that notes the order of calls."""

    def __init__(self, signals, calls, fails):
        super().__init__(signals, 0, None)
        self._calls, self._fails = calls, fails

    def turn(self, timeout):
        super().turn(timeout)
        if self._fails:
            raise LookupError("no such curve")

    def stopping(self):
        self._calls.append("stopping")

    def close(self, may_wait):
        self._calls.append("close the loop")


@pytest.mark.parametrize("fails", [False, True])
def test_the_time_of_a_run_ends_once_before_anything_is_saved_or_closed(monkeypatch, fails):
    monkeypatch.setattr(serial, "sampling_specs", lambda plan: [])
    calls = []
    run = SerialRun(None, Resources(None, None))
    learner, worker = Saving(), Worker()
    learner.save = lambda: calls.append("save")
    worker.close = lambda: calls.append("close")
    run._learners, run._rollout_workers = [learner], [worker]
    signals = SimpleNamespace(requested=None)
    run.run(Timed(signals, calls, fails), signals)
    assert calls == ["stopping", "save", "close", "close the loop"]
