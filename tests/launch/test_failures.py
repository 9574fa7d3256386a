import logging
import pickle
import pkgutil

import pytest

from sample_factory.launch.exit_codes import OUT_OF_GPU_MEMORY, log_failures
from sample_factory.runtime.failures import PACKAGE, Explained, Failure, qualified_name
from sample_factory.runtime.log import log, setup_logging


def level_is_missing():
    raise LookupError("level 7")


def failure(function, where="env 'my_maze'"):
    """Returns what the parent raises for a function that raises in a child."""
    try:
        function()
    except Exception as error:
        return pickle.loads(pickle.dumps(Failure.of(error, where)))


@pytest.fixture
def logged(caplog, monkeypatch):
    """Returns a function that logs failures, and returns the texts of the console."""
    monkeypatch.setattr(log, "propagate", True)

    def log_them(*failures, has_log_file=False):
        with caplog.at_level(logging.ERROR, "sample_factory"):
            log_failures(failures, has_log_file)
        return caplog.messages

    return log_them


def test_an_exception_of_user_code_is_a_line_that_names_the_env_and_the_place_and_a_short_traceback(logged):
    [text] = logged(failure(level_is_missing))
    line, *trace = text.splitlines()
    assert line.startswith("env 'my_maze': LookupError: level 7 (test_failures.py:")
    assert trace[0] == "Traceback (frames of user code):" and trace[-1] == "LookupError: level 7"


def test_with_a_log_file_the_console_gets_one_line_and_the_file_the_whole_traceback(tmp_path, capsys):
    setup_logging("main", str(tmp_path / "sf_log.txt"))
    log_failures([failure(level_is_missing, "learner_0")], has_log_file=True)
    setup_logging("main")
    console = capsys.readouterr().err
    assert console.count("\n") == 1 and "learner_0: LookupError: level 7 (test_failures" in console
    assert "Traceback (most recent call last)" in (tmp_path / "sf_log.txt").read_text()


def test_an_exception_that_explains_itself_is_its_message_alone(logged):
    def refuse():
        raise Explained("a mask of 3 actions should have 4")

    assert logged(failure(refuse, "learner_0")) == ["a mask of 3 actions should have 4"]


def test_an_exception_that_explains_another_has_its_place_and_its_short_traceback(logged):
    def explain():
        try:
            level_is_missing()
        except LookupError as error:
            raise Explained("env my_maze: reset() raised") from error

    [text] = logged(failure(explain))
    line, *trace = text.splitlines()
    assert line.startswith("env my_maze: reset() raised (test_failures.py:")
    assert trace[0] == "Traceback (frames of user code):" and trace[-1] == "LookupError: level 7"
    assert len(trace) == 6, "explain() and level_is_missing(), two lines each"


def test_a_fault_of_this_package_that_passed_only_libraries_is_the_whole_traceback(logged):
    functions = {}
    for file, code in (
        (f"{PACKAGE}/models/own_core.py", "def core(): raise LookupError('level 7')"),
        ("/lib/site-packages/torch/container.py", "def container(): core()"),
        (f"{PACKAGE}/models/towers.py", "def network(): container()"),
    ):
        exec(compile(code, file, "exec"), functions)
    [text] = logged(failure(functions["network"], "learner_0"))
    assert "own_core.py" in text.splitlines()[0] and "Traceback (most recent call last)" in text


def test_a_failure_that_a_guard_made_passes_a_process_as_it_is_with_what_was_raised():
    def guarded():
        try:
            level_is_missing()
        except LookupError as error:
            raise Failure.of(error, "worker 1: env 3", "raised 4 times", permanent=True) from error

    passed = failure(guarded, "rollout_worker_1")
    assert str(passed) == "worker 1: env 3: raised 4 times" and passed.permanent and passed.text == "level 7"
    assert passed.is_a(LookupError) and "in level_is_missing" in passed.traceback


def test_failures_with_the_same_reason_are_one_line(logged):
    assert len(logged(*(failure(level_is_missing, f"learner_{i}") for i in range(16)))) == 1


def runs_out_of_memory():
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_the_exception_that_is_recognised_by_name_exists():
    error = pkgutil.resolve_name(OUT_OF_GPU_MEMORY)
    assert issubclass(error, Exception) and qualified_name(error) == OUT_OF_GPU_MEMORY


def test_a_gpu_out_of_memory_is_reported_with_the_flags_to_lower(logged):
    failed, advice = logged(failure(runs_out_of_memory, "learner_0"), has_log_file=True)
    assert failed.startswith("learner_0: torch.OutOfMemoryError: CUDA out of memory")
    assert "lower --batch_size" in advice
