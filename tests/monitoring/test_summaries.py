import json
import resource

import pandas
import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginAccumulator,
)
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin
from tensorboard.plugins.scalar.scalars_plugin import ScalarsPlugin

from sample_factory.monitoring.summaries import JsonlWriter, TensorboardWriter
from sample_factory.monitoring.tensorboard_pages import CHARTS


def read(folder) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


@pytest.fixture
def small_files():
    """Limits the size of files, which has the same effect on a write as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_written_scalars_are_in_one_file_from_the_first_on(tmp_path):
    folder = tmp_path / "folder"
    writer = TensorboardWriter(folder)
    writer.write({}, 1)
    writer.flush()
    assert not folder.exists()
    for x in (1, 2, 20_000_000_000):
        writer.write({"a/b": x / 2, "c": 2.0}, x)
        writer.flush()
        writer.flush()
    found = {tag: [x for x, _ in points] for tag, points in read(folder).items()}
    assert found == {"a/b": [1, 2, 20_000_000_000], "c": [1, 2, 20_000_000_000]}
    assert [value for _, value in read(folder)["a/b"]] == [0.5, 1.0, 1e10]
    assert len(list(folder.iterdir())) == 1


def test_a_full_disk_loses_nothing_and_is_reported_once(tmp_path, small_files, logged):
    writer = TensorboardWriter(tmp_path)
    writer.write({"a": 1.0}, 1)
    writer.flush()
    (file,) = tmp_path.iterdir()
    size = file.stat().st_size
    small_files(size + 5)
    for x in (2, 3):
        writer.write({"a": 1.0}, x)
        writer.flush()
        assert file.stat().st_size == size
    small_files(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    writer.flush()
    assert read(tmp_path) == {"a": [(1, 1.0), (2, 1.0), (3, 1.0)]}
    assert len(logged()) == 1


@pytest.mark.parametrize("x", [0, 20])
def test_from_the_second_mark_on_the_reader_of_tb_hides_what_a_run_has_not_resumed(tmp_path, x):
    runs = [TensorboardWriter(tmp_path) for _ in range(2)]
    for number, (run, start) in enumerate(zip(runs, (0, x))):
        run.begin(start)
        steps = range(0, 40, 10) if number == 0 else (start + 5,)
        for step in steps:
            run.write({"a": number} if number else {"a": number, "rare": number}, step)
        run.flush()
    shown = PluginAccumulator(str(tmp_path))  # of `tensorboard --load_fast=false`
    shown.Reload()
    kept = [step for step in range(0, 40, 10) if step <= x and x]
    assert [event.step for event in shown.Tensors("a")] == [*kept, x + 5]
    assert [event.step for event in shown.Tensors("rare")] == kept


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


def test_tensorboard_reads_the_page_of_first_charts_of_several_runs_and_finds_their_curves(tmp_path):
    for run in ("a", "b"):
        writer = TensorboardWriter(tmp_path / run)
        writer.write_first_page(0)
        writer.write({"0_aux/avg_len": 7.0, "0_aux/avg_len_other": 8.0}, 5)
        writer.flush()
    runs = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    others = {}
    provider = MultiplexerDataProvider(runs, str(tmp_path))
    places = TBContext(data_provider=provider, logdir=str(tmp_path), plugin_name_to_instance=others)
    others["scalars"] = ScalarsPlugin(places)
    plugin = CustomScalarsPlugin(places)
    (page,) = json.loads(plugin.layout_impl(RequestContext(), ""))["category"]
    charts = {chart["title"]: chart["multiline"]["tag"] for chart in page["chart"]}
    assert len(page["chart"]) == len(charts) == len(CHARTS)
    (tag,) = charts["episode length (env frames, mean of the last episodes)"]
    found = plugin.scalars_impl(RequestContext(), "a", tag, "")["tag_to_events"]
    assert {tag: [event[1:] for event in events] for tag, events in found.items()} == {
        "0_aux/avg_len": [(5, 7.0)]
    }
