import json
import os
import struct
import sys

import pytest
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

import sample_factory
from sample_factory.config.flags import ConfigError
from sample_factory.monitoring.summaries import TensorboardWriter

TAGS = {"0_aux/avg_reward": [1.0, 2.0], "train/loss": [0.5]}


@pytest.fixture
def experiment(tmp_path):
    folder = tmp_path / "tiny"
    for policy in range(2):
        writer = TensorboardWriter(folder / ".summary" / str(policy))
        for tag, values in TAGS.items():
            for step, value in enumerate(values):
                writer.write({tag: value + policy}, 100 * step)
        writer.flush()
    (folder / "cfg.json").write_text(json.dumps({"env": "gym_CartPole-v1", "num_policies": 2}))
    return folder


def test_each_number_has_a_row_with_policy_tag_frames_and_seconds(experiment):
    metrics = sample_factory.read_metrics("tiny", experiment.parent)
    assert list(metrics.columns) == ["policy", "tag", "env_frames", "seconds", "value"]
    rows = [(row.policy, row.tag, row.env_frames, row.value) for row in metrics.itertuples()]
    assert rows == [
        (policy, tag, 100 * step, value + policy)
        for policy in range(2)
        for tag, values in TAGS.items()
        for step, value in enumerate(values)
    ]
    wide = metrics[metrics.policy == 1].pivot(index="env_frames", columns="tag", values="value")
    assert wide["0_aux/avg_reward"].tolist() == [2.0, 3.0]


def test_tags_select_rows_and_what_cannot_be_read_is_an_error_with_the_nearest(experiment):
    assert set(sample_factory.read_metrics(experiment, tags="train/loss").tag) == {"train/loss"}
    with pytest.raises(ConfigError, match=r"no numbers under the tag train/los; the nearest are train/loss"):
        sample_factory.read_metrics(experiment, tags=["train/los"])
    with pytest.raises(ConfigError, match="no experiment at .*tyni.*experiment may be tiny"):
        sample_factory.read_metrics("tyni", experiment.parent)
    os.mkfifo(experiment / ".summary" / "1" / "events.out.tfevents.1.x")
    with pytest.raises(ConfigError, match="is a named pipe"):
        sample_factory.read_metrics(experiment)


def test_a_tag_that_only_one_policy_has_is_read(experiment):
    writer = TensorboardWriter(experiment / ".summary" / "1")
    writer.write({"eval/reward": 7.0}, 100)
    writer.flush()
    (row,) = sample_factory.read_metrics(experiment, tags="eval/reward").itertuples()
    assert (row.policy, row.value) == (1, 7.0)


@pytest.mark.parametrize("num_bytes", [2**40, 2**62, 2**64 - 1])
def test_an_event_that_claims_to_be_huge_is_one_line(experiment, num_bytes):
    header = struct.pack("<Q", num_bytes)
    (file,) = experiment.glob(".summary/0/*")
    with file.open("ab") as events:
        events.write(header + struct.pack("<I", masked_crc32c(header)) + b"x" * 100)
    with pytest.raises(ConfigError, match="damaged") as caught:
        sample_factory.read_metrics(experiment)
    assert "\n" not in str(caught.value)


def test_without_pandas_one_line_says_what_to_install(experiment, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"read_metrics needs pandas .*pip install -e '\.\[pandas\]'"):
        sample_factory.read_metrics(experiment)
