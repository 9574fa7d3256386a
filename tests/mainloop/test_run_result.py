"""The file that reports how a run has ended."""

import json

from sample_factory.config.experiment_folder import RESULT_WITHOUT_FOLDER
from sample_factory.mainloop import run_result
from sample_factory.mainloop.run_result import DONE, STOPPED, RunResult, write_result


def test_the_last_result_is_in_the_experiment_folder(tmp_path):
    write_result(RunResult(DONE, "", tmp_path, 512))
    write_result(RunResult(STOPPED, "SIGINT received", tmp_path, 1024))
    result = json.loads((tmp_path / "result.json").read_text())
    assert result == {"status": "stopped", "reason": "SIGINT received", "env_frames": 1024}


def test_a_run_that_has_left_no_folder_leaves_no_result_but_in_the_file_that_its_runner_names(
    tmp_path, monkeypatch
):
    write_result(RunResult(STOPPED, "", tmp_path / "a"))
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv(RESULT_WITHOUT_FOLDER, str(tmp_path / "b.json"))
    write_result(RunResult(STOPPED, "", tmp_path / "a"))
    assert [path.name for path in tmp_path.iterdir()] == ["b.json"]
    assert json.loads((tmp_path / "b.json").read_text())["status"] == "stopped"


def test_a_result_that_cannot_be_written_ends_nothing(tmp_path, caplog):
    (tmp_path / "result.json").mkdir()
    write_result(RunResult(DONE, "", tmp_path))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_full_disk_is_logged_with_the_name_of_the_file(tmp_path, caplog, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")  # as of `write`, which knows no name

    monkeypatch.setattr(run_result, "write_atomically", fail)
    write_result(RunResult(DONE, "", tmp_path))
    assert caplog.messages == [f"could not write {tmp_path / 'result.json'}: No space left on device"]
