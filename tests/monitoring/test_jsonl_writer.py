import json

import pandas

from sample_factory.monitoring.summaries import JsonlWriter


def test_each_write_is_a_line_that_pandas_reads_and_values_that_are_not_finite_are_null(tmp_path, fake_time):
    writer = JsonlWriter(tmp_path, fake_time)
    writer.write(0, {"train/loss": 0.5, "train/kl": float("nan")}, 100)
    assert not (tmp_path / "summaries.jsonl").exists()
    writer.flush()
    writer.write(1, {"0_aux/avg_reward": float("inf")}, 200)
    writer.flush()
    lines = (tmp_path / "summaries.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=str) for line in lines] == [
        {"policy": 0, "env_frames": 100, "time": 1000.0, "train/loss": 0.5, "train/kl": None},
        {"policy": 1, "env_frames": 200, "time": 1000.0, "0_aux/avg_reward": None},
    ]
    table = pandas.read_json(tmp_path / "summaries.jsonl", lines=True)
    assert table["train/loss"][0] == 0.5 and table["train/loss"].isna()[1]


def test_a_file_that_cannot_be_written_is_reported_once_and_its_lines_are_written_later(tmp_path, logged):
    folder = tmp_path / "folder"
    folder.write_text("a file where the folder should be")
    writer = JsonlWriter(folder)
    for frames in (100, 200):
        writer.write(0, {"a": 1.0}, frames)
        writer.flush()
    assert len([text for text in logged() if "COULD NOT WRITE" in text]) == 1
    folder.unlink()
    writer.flush()
    lines = (folder / "summaries.jsonl").read_text().splitlines()
    assert [json.loads(line)["env_frames"] for line in lines] == [100, 200]
