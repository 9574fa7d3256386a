import json
import re
import subprocess
import sys
import types

import numpy as np
import pytest
from matplotlib.image import imread

from sample_factory.config.flags import ConfigError
from sample_factory.monitoring import tensorboard_writer
from sample_factory.plotting.curve_groups import Averaging, group_alike, group_by_flags, make_lines
from sample_factory.plotting.draw_curves import Line, Look, draw
from sample_factory.plotting.figure_style import DASHES, colour, dashes, short_number
from sample_factory.plotting.labels import label_of
from sample_factory.plotting.plot_curves import labelled_folders, main
from sample_factory.plotting.plot_groups import plot_groups
from sample_factory.plotting.read_summaries import read_experiment, read_policies

TAG = "0_aux/avg_reward"


@pytest.fixture
def train(tmp_path, fake_time, monkeypatch):
    """Writes one run of an experiment: one reward per step and second; resumed_at: its first step."""
    monkeypatch.setattr(tensorboard_writer, "time", types.SimpleNamespace(time=fake_time))

    def write(name, rewards, resumed_at=None, **flags):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        values = {"env": "doom_basic", "experiment": name, "command_line": f"--experiment={name}", **flags}
        (folder / "cfg.json").write_text(json.dumps(values))
        writer = tensorboard_writer.TensorboardWriter(folder / ".summary" / "0")
        if resumed_at is not None:
            writer.begin(resumed_at)
        for step, reward in rewards.items():
            writer.write({TAG: reward, "train/loss": -reward}, step)
            fake_time.seconds += 1
        writer.flush()
        fake_time.seconds += 1000
        return folder

    return write


def lines_of(folders, against="frames", tag=TAG):
    groups = group_alike([read_experiment(folder, [tag], 0) for folder in folders])
    return make_lines(groups, [tag], Averaging(against))


def curve_of(folder, tag=TAG):
    return read_experiment(folder, [tag], 0).curves[tag]


def test_a_resumed_run_replaces_earlier_points_from_its_first_step_on(train):
    train("a", {100: 1.0, 200: 2.0, 300: 3.0, 400: 4.0})
    train("a", {300: 30.0, 500: 50.0}, resumed_at=250)
    curve = curve_of(train("a", {600: 60.0}, resumed_at=500))
    assert curve.steps.tolist() == [100, 200, 300, 500, 600]
    assert curve.values.tolist() == [1, 2, 30, 50, 60]


def test_a_run_without_a_start_record_begins_with_its_first_summary(train):
    train("a", {100: 1.0, 200: 2.0, 300: 3.0})
    curve = curve_of(train("a", {200: 20.0}))
    assert curve.steps.tolist() == [100, 200]
    assert curve.values.tolist() == [1, 20]


def test_seconds_exclude_pauses_and_work_that_was_lost(train):
    train("a", {100: 1.0, 200: 2.0, 300: 3.0, 400: 4.0})
    curve = curve_of(train("a", {300: 3.0, 400: 4.0}, resumed_at=250))
    assert curve.seconds.tolist() == [0, 1, 1, 2]


def test_the_last_of_several_values_at_one_step_counts(train, tmp_path, fake_time):
    train("a", {100: 1.0})
    writer = tensorboard_writer.TensorboardWriter(tmp_path / "a" / ".summary" / "0")
    for value in (2.0, float("nan"), 3.0, float("inf")):
        writer.write({TAG: value}, 200)
    writer.flush()
    assert curve_of(tmp_path / "a").values.tolist() == [1, 3]


def test_a_record_that_is_still_being_written_is_left_out(train):
    folder = train("a", {100: 1.0, 200: 2.0})
    (file,) = (folder / ".summary" / "0").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert curve_of(folder).values.tolist() == [1]


def test_env_steps_become_env_frames(train):
    folder = train("a", {100: 1.0}, summaries_use_frameskip=False, env_frameskip=4)
    assert curve_of(folder).steps.tolist() == [400]


def test_seeds_of_the_same_flags_are_one_line(train):
    folders = [
        train("a", {0: 0.0}, seed=1, gamma=0.9, restart_behavior="overwrite"),
        train("b", {0: 0.0}, seed=1, gamma=0.8, with_wandb=True, wandb_unique_id="b_1"),
        train(
            "c", {0: 0.0}, seed=2, gamma=0.9, train_dir="elsewhere", cli_args={"seed": 2}, pixel_format="HWC"
        ),
        train("d", {0: 0.0}, seed=1, gamma=0.9, env="doom_battle"),
    ]
    found = [(line.env, line.label, line.num_runs) for line in lines_of(folders)]
    assert found == [("doom_basic", "gamma=0.9", 2), ("doom_basic", "gamma=0.8", 1), ("doom_battle", "", 1)]


def test_a_flag_that_is_not_in_the_file_has_its_default(train):
    (line,) = lines_of([train("a", {0: 0.0}), train("b", {0: 0.0}, gamma=0.99)])
    assert line.num_runs == 2


def test_all_flags_that_differ_are_shown_as_they_would_be_typed(train):
    first = train("a", {0: 0.0}, learning_rate=1e-6, encoder_mlp_layers=[64, 32], use_rnn=True, maze_size=3)
    second = train("b", {0: 0.0}, learning_rate=1e-6, encoder_mlp_layers=[], use_rnn=False)
    third = train("c", {0: 0.0}, learning_rate=0.001, encoder_mlp_layers=[], use_rnn=False)
    shown = {tuple(sorted(line.label.split(", "))) for line in lines_of([first, second, third])}
    assert shown == {
        ("encoder_mlp_layers=64,32", "learning_rate=1e-06", "maze_size=3", "use_rnn=True"),
        ("encoder_mlp_layers=", "learning_rate=1e-06", "maze_size=unset", "use_rnn=False"),
        ("encoder_mlp_layers=", "learning_rate=0.001", "maze_size=unset", "use_rnn=False"),
    }


def test_mean_and_range_are_over_the_interpolated_seeds_where_all_have_data(train):
    rising = train("a", {0: 0.0, 100: 10.0, 200: 20.0}, seed=1)
    falling = train("b", {50: 4.0, 150: 3.0, 250: 2.0}, seed=2)
    (line,) = lines_of([rising, falling])
    assert line.x.tolist() == [50, 100, 150, 200]
    assert line.low.tolist() == [4, 3.5, 3, 2.5]
    assert line.high.tolist() == [5, 10, 15, 20]
    np.testing.assert_array_equal(line.mean, (line.low + line.high) / 2)


def test_each_line_is_a_row_with_its_final_mean_min_and_max(train, tmp_path, capsys):
    folders = [
        train("a", {0: 0.0, 12000: 1.0}, seed=1),
        train("b", {0: 0.0, 12000: 1.5}, seed=2),
        train("c", {0: 0.0, 12000: 0.004}, env="doom_battle"),
    ]
    out = tmp_path / "curves.png"
    assert main([*map(str, folders), f"--out={out}"]) == 0
    heading, *rows, last = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading == ["env", "group", "runs", "frames", "mean", "min", "max"]
    assert rows == [
        ["doom_basic", "-", "2", "12,000", "1.250", "1.000", "1.500"],
        ["doom_battle", "-", "1", "12,000", "0.004", "0.004", "0.004"],
    ]
    assert last == ["written:", str(out)]


def test_a_folder_given_twice_is_one_seed(train, tmp_path, capsys):
    folder = train("a", {0: 0.0, 100: 1.0})
    assert main([str(folder), f"{folder}/", f"--out={tmp_path / 'curves.png'}"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "1"


@pytest.mark.parametrize("num_envs, columns, rows", [(1, 1, 1), (2, 2, 1), (4, 3, 2)])
def test_the_picture_has_a_panel_per_env_and_fits_a_page(train, tmp_path, num_envs, columns, rows):
    folders = [train(f"e{i}", {0: 0.0, 100: 1.0}, env=f"doom_{i}") for i in range(num_envs)]
    out = tmp_path / "curves.png"
    flags = [
        f"--out={out}",
        "--level=doom_0=0.5",
        "--title=All of them",
        "--against=seconds",
        "--tag=train/loss",
    ]
    assert main([*flags, *map(str, folders)]) == 0
    height, width, _ = imread(out).shape
    assert 800 <= width <= 1700 and 400 * rows <= height <= 500 * rows
    assert width / columns >= 500
    assert imread(out).std() > 0.01  # not blank


def line(env="doom_basic", label="", num_runs=1):
    values = np.array([0.0, 1.0])
    return Line(
        env,
        TAG,
        label,
        tuple(f"run_{i}" for i in range(num_runs)),
        np.array([0.0, 2e6]),
        values,
        values - 0.5,
        values + 0.5,
    )


def draw_lines(lines, against="frames", levels=()):
    figure = draw(lines, Look(None, against, {TAG: "episode reward"}, levels, "the note"))
    figure.draw_without_rendering()
    return figure.axes


def test_a_label_says_the_flags_and_how_many_runs():
    first, second = draw_lines([line(label="gamma=0.9"), line(label="gamma=0.8", num_runs=3), line("doom_b")])
    assert first.get_legend_handles_labels()[1] == ["gamma=0.9 (1 run)", "gamma=0.8 (3 runs)"]
    assert second.get_legend_handles_labels()[1] == ["1 run"]


def test_only_a_line_of_several_runs_has_a_band():
    (axes,) = draw_lines([line(label="gamma=0.9"), line(label="gamma=0.8", num_runs=3)])
    (band,) = axes.collections
    assert (band.get_datalim(axes.transData).y0, band.get_datalim(axes.transData).y1) == (-0.5, 1.5)


def test_the_picture_says_what_line_band_and_smoothing_mean(train, tmp_path):
    groups = {"a": [train("a", {0: 0.0, 100: 1.0}, seed=1)]}
    out = tmp_path / "note.svg"

    def notes():
        return [
            text for text in re.findall(r"<!-- (.*?) -->", out.read_text()) if ":" in text or "axis" in text
        ]

    plot_groups(groups, out)
    assert notes() == []
    plot_groups(groups, out, smooth=0.05)
    assert notes() == ["each run is averaged over the last 0.05 of the x axis"]
    groups["a"].append(train("b", {0: 0.0, 100: 1.0}, seed=2))
    plot_groups(groups, out, band="std")
    assert notes() == ["line: mean of the runs; band: one standard deviation to either side"]


def test_the_same_flags_have_the_same_colour_in_all_panels_and_others_do_not_within_one():
    lines = [line("a", "x=1"), line("a", "x=2"), line("b", "x=3"), line("b", "x=2"), line("b", "x=1")]
    first, second = ([drawn.get_color() for drawn in axes.lines] for axes in draw_lines(lines))
    assert first == second[:0:-1]
    assert len(set(second)) == 3


def test_six_lines_differ_without_their_colours_and_more_lines_in_both():
    (axes,) = draw_lines([line(label=f"x={i}") for i in range(14)])
    assert len({drawn.get_color() for drawn in axes.lines}) == 6
    assert sorted(dashes(number)[1] for number in range(6)) == sorted(DASHES)
    assert len({(colour(number), dashes(number)) for number in range(36)}) == 36


def test_axes_are_named_and_have_readable_numbers():
    (axes,) = draw_lines([line()])
    texts = (axes.get_title(), axes.get_xlabel(), axes.get_ylabel())
    assert texts == ("doom_basic (run_0)", "env frames", "episode reward")
    assert [tick.get_text() for tick in axes.get_xticklabels()][:3] == ["0", "500k", "1M"]


def test_every_panel_has_a_text_beside_both_axes_which_fits_its_height():
    figure = draw([line(env) for env in "abcd"], Look(None, "frames", {TAG: label_of(TAG, 100)}, (), ""))
    for axes in figure.axes:
        assert axes.get_ylabel() == "reward\n(mean of the last 100 episodes)"
        assert axes.get_xlabel() == "env frames"


def test_large_numbers_are_short_on_the_y_axis_too():
    values = np.array([0.0, 30_000.0])
    (axes,) = draw_lines([line()._replace(mean=values, low=values, high=values)])
    assert "20k" in [tick.get_text() for tick in axes.get_yticklabels()]


@pytest.mark.parametrize(
    "tag, label",
    [
        (TAG, "reward (mean of the last 50 episodes)"),
        ("0_aux/avg_true_reward", "true objective (mean of the last 50 episodes)"),
        ("0_aux/avg_len_max", "longest of the last 50 episodes (env frames)"),
        ("0_aux/avg_kills_per_minute", "kills per minute (mean of the last 50 episodes)"),
        ("0_aux/_fps", "env frames per second"),
        ("train/policy_loss", "policy loss"),
        ("mine", "mine"),
        ("my/own/_tag_", "tag"),
        ("_/", "_/"),
    ],
)
def test_a_tag_has_a_readable_label(tag, label):
    assert label_of(tag, 50) == label


def test_the_label_counts_the_episodes_of_the_experiment(train):
    assert read_experiment(train("a", {0: 0.0}, stats_avg=20), [TAG], 0).stats_avg == 20


@pytest.mark.parametrize("seconds, unit", [(500, "seconds"), (3600, "minutes"), (86400, "hours")])
def test_the_unit_of_time_suits_its_length(seconds, unit):
    (axes,) = draw_lines([line()._replace(x=np.array([0.0, seconds]))], against="seconds")
    assert axes.get_xlabel() == f"{unit} of training"
    assert axes.get_xlim()[1] < 610


def test_a_level_is_a_dashed_line_in_the_panel_of_its_env():
    first, second = draw_lines([line("a"), line("b")], levels=[("b", 7.0)])
    assert len(first.lines) == 1
    assert second.lines[1].get_linestyle() == "--" and second.lines[1].get_ydata() == [7, 7]
    assert second.get_ylim()[1] > 7


@pytest.mark.parametrize(
    "number, text",
    [
        (0, "0"),
        (0.2, "0.2"),
        (999, "999"),
        (100_000, "100k"),
        (1_500_000, "1.5M"),
        (2e9, "2B"),
        (-3e3, "-3k"),
    ],
)
def test_numbers_are_short(number, text):
    assert short_number(number) == text


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["{0}/a/.summary"], "no experiment at {0}/a/.summary: cfg.json is missing"),
        (["{0}/a", "b={0}/b"], "{0}/a has no label, and others have: write LABEL={0}/a"),
        (["a={0}/a", "--group_by=gamma"], "--group_by has no effect on folders with labels"),
        (["{0}/a", "--group_by=gama"], "--group_by=gama: no experiment has that flag; did you mean gamma?"),
        (["{0}/a", "--smooth=20"], "'20' should be a share of the x axis"),
        (["{0}/nothing"], "no experiment at {0}/nothing: cfg.json is missing"),
        (["{0}/broken"], "{0}/broken/cfg.json is not valid JSON"),
        (["{0}/list"], "{0}/list/cfg.json should hold one JSON object"),
        (["{0}/fresh"], "{0}/fresh has no summaries of policy 0 yet"),
        (["{0}/early"], "{0}/early has no numbers under the tag 0_aux/avg_reward: too few episodes"),
        (["{0}/a", "--policy_index=1"], "{0}/a has no summaries of policy 1 yet"),
        (
            ["{0}/a", "--tag=train/los"],
            "no numbers under the tag train/los; the nearest are train/loss, 0_aux",
        ),
        (["{0}/a", "{0}/b"], "no frames in common so far: {0}/a, {0}/b"),
        (["{0}/a", "--level=doom_basc=1"], "no experiment has that env; did you mean doom_basic?"),
        (["{0}/a", "--level=0.5"], "'0.5' should be ENV=NUMBER"),
        (["{0}/a", "--level=doom_basic=high"], "'doom_basic=high' should be ENV=NUMBER"),
        (["{0}/a", "--levle=doom_basic=1"], "unknown flag --levle=doom_basic=1; did you mean --level?"),
        (["{0}/a", "--against=steps"], "--against: invalid choice: 'steps'"),
        (["{0}/a", "--out={0}/curves.jpeg"], "should end in one of .png"),
        (["{0}/a", "--out={0}/nowhere/curves.png"], "cannot use {0}/nowhere/curves.png: No such file"),
        ([], "no experiment was given"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(train, tmp_path, capsys, arguments, words):
    train("a", {0: 0.0, 100: 1.0})
    train("b", {200: 0.0, 300: 1.0})
    train("fresh", {})
    early = train("early", {})
    writer = tensorboard_writer.TensorboardWriter(early / ".summary" / "0")
    writer.write({"train/loss": 1.0}, 1)
    writer.flush()
    for name, text in (("broken", "{"), ("list", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cfg.json").write_text(text)
    out = f"--out={tmp_path / 'curves.png'}"
    assert main([out, *(argument.format(tmp_path) for argument in arguments)]) == 2
    printed = capsys.readouterr()
    error = printed.err.strip()
    assert error.startswith("error: ") and words.format(tmp_path) in error and "\n" not in error
    assert not printed.out and not (tmp_path / "curves.png").exists()


def test_without_matplotlib_the_error_says_what_to_install(train, tmp_path, capsys, monkeypatch):
    folder = train("a", {0: 0.0, 100: 1.0})
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([str(folder), f"--out={tmp_path / 'curves.png'}"]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "pip install -e '.[plot]'" in error and "\n" not in error


def test_runs_with_the_same_values_of_the_flags_to_group_by_are_one_line_in_the_order_of_the_values(train):
    folders = [
        train("a", {0: 1.0}, learning_rate=0.01, gamma=0.9),
        train("b", {0: 2.0}, learning_rate=0.002, gamma=0.9),
        train("c", {0: 4.0}, learning_rate=0.01, gamma=0.8),
    ]
    runs = [read_experiment(folder, [TAG], 0) for folder in folders]
    lines = make_lines(group_by_flags(runs, ["learning_rate"]), [TAG], Averaging())
    assert [(line.label, line.mean.tolist()) for line in lines] == [
        ("learning_rate=0.002", [2.0]),
        ("learning_rate=0.01", [2.5]),
    ]


def test_labels_group_the_folders_after_them_also_by_pattern_and_by_parent(train, tmp_path):
    for name in ("new/1", "new/2", "old_1", "old_2"):
        (tmp_path / name).mkdir(parents=True)
    words = [f"new={tmp_path}/new", f"old={tmp_path}/old_*", f"{tmp_path}/new/1"]
    assert labelled_folders(words) == {
        "new": [f"{tmp_path}/new"],
        "old": [f"{tmp_path}/old_1", f"{tmp_path}/old_2", f"{tmp_path}/new/1"],
    }


def test_a_folder_whose_name_has_an_equals_sign_is_not_a_label(tmp_path):
    folder = tmp_path / "lr=1"
    folder.mkdir()
    assert labelled_folders([str(folder), f"b={folder}"]) == {"": [str(folder)], "b": [str(folder)]}


def test_groups_are_drawn_from_python_and_runs_without_curves_are_left_out_if_asked(train, tmp_path):
    (tmp_path / "grid").mkdir()
    train("grid/a", {0: 0.0, 100: 1.0}, gamma=0.9)
    train("grid/b", {0: 0.0, 100: 2.0}, gamma=0.8)
    failed = train("grid/c", {})
    train("other", {0: 0.0, 100: 7.0})
    groups = {"all": [tmp_path / "grid"], "other": [tmp_path / "other", failed]}
    out = tmp_path / "groups.svg"
    with pytest.raises(ConfigError, match=r"c has no summaries of policy 0 yet"):
        plot_groups(groups, out)
    picture = plot_groups(groups, out, ["reward", "train/loss"], skip_unreadable=True)
    assert [row.split() for row in picture.table] == [
        ["tag", "env", "group", "runs", "frames", "mean", "min", "max"],
        ["reward", "doom_basic", "all", "2", "100", "1.500", "1.000", "2.000"],
        ["reward", "doom_basic", "other", "1", "100", "7.000", "7.000", "7.000"],
        ["train/loss", "doom_basic", "all", "2", "100", "-1.500", "-2.000", "-1.000"],
        ["train/loss", "doom_basic", "other", "1", "100", "-7.000", "-7.000", "-7.000"],
    ]
    assert picture.notes == [f"left out: {failed} has no summaries of policy 0 yet"] * 2
    assert picture.path == out and "<svg" in out.read_text()
    with pytest.raises(ConfigError, match="no run to draw"):
        plot_groups({"failed": [failed]}, out, skip_unreadable=True)


def test_the_band_is_the_range_or_the_deviation_or_the_confidence_interval_of_the_mean(train):
    folders = [train(name, {0: value}, seed=value) for name, value in (("a", 1), ("b", 2), ("c", 6))]
    groups = group_alike([read_experiment(folder, [TAG], 0) for folder in folders])
    deviation = np.std([1, 2, 6], ddof=1)
    for band, half in (("std", deviation), ("ci", 4.303 * deviation / 3**0.5)):
        (drawn,) = make_lines(groups, [TAG], Averaging(band=band))
        np.testing.assert_allclose([drawn.low, drawn.mean, drawn.high], [[3 - half], [3], [3 + half]])
    (drawn,) = make_lines(groups, [TAG], Averaging())
    assert (drawn.low, drawn.high) == (1, 6)


def test_smoothing_is_the_mean_over_a_share_of_the_panels_axis_however_dense_the_points_are(train):
    dense = train("a", {step: float(step) for step in range(0, 101, 10)}, gamma=0.9)
    sparse = train("b", {0: 0.0, 50: 50.0, 100: 100.0}, gamma=0.8)
    groups = group_alike([read_experiment(folder, [TAG], 0) for folder in (dense, sparse)])
    of_dense, of_sparse = make_lines(groups, [TAG], Averaging(smooth=0.2))
    assert of_dense.mean.tolist() == [0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert of_sparse.mean.tolist() == [0, 50, 100]


def test_a_note_says_where_a_mean_ends_early(train, tmp_path, capsys):
    folders = [str(train("a", {0: 0.0, 100: 1.0})), str(train("b", {0: 0.0, 2000: 1.0}))]
    assert main([*folders, f"--out={tmp_path / 'curves.png'}"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == (
        f"doom_basic is drawn up to 100 frames, where {folders[0]} ends; the longest of its runs has 2,000"
    )


@pytest.fixture
def three_versions(train, tmp_path):
    """Returns folders of a run of versions 1, 2 and 3, with the files and tags that each of them writes."""
    folders = [tmp_path / name for name in ("one", "two", "three")]
    train("three", {100: 3.0}, gamma=0.9)
    configs = ({"encoder_subtype": "a"}, {"rnn_size": 8, "summaries_use_frameskip": False})
    tags = (
        {TAG: 1.0, "0_aux/avg_true_reward": 10.0, "0_aux/_fps": 100.0},
        {"reward/reward": 2.0, "policy_stats/avg_true_objective": 20.0, "perf/_fps": 200.0},
    )
    for folder, name, values, scalars in zip(folders, ("cfg.json", "config.json"), configs, tags):
        folder.mkdir()
        same = {"env": "doom_basic", "gamma": 0.9, "stats_avg": 50, "env_frameskip": 4, "num_policies": 1}
        (folder / name).write_text(json.dumps({**same, **values}))
        writer = tensorboard_writer.TensorboardWriter(folder / ".summary" / "0")
        writer.write(scalars, 100)
        writer.flush()
    return folders


@pytest.mark.parametrize("tag", ["0_aux/avg_reward", "reward/reward", "reward"])
def test_runs_of_all_versions_are_compared_under_the_tag_of_any_of_them(three_versions, tag):
    runs = [read_experiment(folder, [tag], 0) for folder in three_versions]
    lines = make_lines(group_alike(runs), [tag], Averaging())
    found = [(line.label, line.x.tolist(), line.mean.tolist()) for line in lines]
    assert found == [("version 1", [100], [1]), ("version 2", [400], [2]), ("version 3", [100], [3])]


def test_figures_of_older_versions_have_the_tags_of_this_one(three_versions):
    for folder, factor in zip(three_versions, (1, 2)):
        _, (curves,) = read_policies(folder)
        assert {tag: curve.values.tolist() for tag, curve in curves.items()} == {
            TAG: [factor],
            "0_aux/avg_true_reward": [10 * factor],
            "0_aux/_fps": [100 * factor],
        }


def test_every_tag_has_a_panel_in_every_env(train, tmp_path):
    groups = group_alike([read_experiment(train("a", {0: 0.0}), [TAG, "train/loss"], 0)])
    groups += group_alike([read_experiment(train("b", {0: 0.0}, env="x"), [TAG, "train/loss"], 0)])
    y_labels = {TAG: "reward", "train/loss": "loss"}
    figure = draw(
        make_lines(groups, list(y_labels), Averaging()), Look(None, "frames", y_labels, [("x", 5.0)], "")
    )
    assert [(axes.get_title(), axes.get_ylabel(), len(axes.lines)) for axes in figure.axes] == [
        ("doom_basic (a)", "reward", 1),
        ("doom_basic (a)", "loss", 1),
        ("x (b)", "reward", 2),
        ("x (b)", "loss", 1),
    ]
    assert figure.axes[0].get_gridspec().ncols == 2


def test_it_runs_without_a_display_and_without_torch(train, tmp_path):
    folder = train("a", {0: 0.0, 100: 1.0})
    arguments = [str(folder), f"--out={tmp_path / 'curves.png'}"]
    program = "\n".join(
        (
            "import sys",
            "from sample_factory.plotting.plot_curves import main",
            f"assert main({arguments!r}) == 0",
            "print([name for name in ('torch', 'gymnasium', 'matplotlib.pyplot') if name in sys.modules])",
        )
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
    assert (tmp_path / "curves.png").exists()
