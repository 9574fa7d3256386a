import json
import re
import subprocess
import sys
import types

import numpy as np
import pytest
from matplotlib.image import imread

from sample_factory.__main__ import command
from sample_factory.config.flags import ConfigError
from sample_factory.monitoring import summaries
from sample_factory.plotting.drawing import Line, Panel, colour, dashes, draw_panels
from sample_factory.plotting.metrics import (
    find_experiments,
    label_of,
    read_experiment,
    read_policies,
)
from sample_factory.plotting.plot_curves import labelled_folders
from sample_factory.plotting.plot_groups import (
    Averaging,
    Group,
    group_by_flags,
    mean_of,
    plot_groups,
    read_runs,
)

main = command("plot_curves")

TAG = "0_aux/avg_reward"


@pytest.fixture
def train(tmp_path, fake_time, monkeypatch):
    """Writes one run of an experiment: one reward per step and second; resumed_at: its first step."""
    monkeypatch.setattr(summaries, "time", types.SimpleNamespace(time=fake_time))

    def write(name, rewards, resumed_at=None, **flags):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True, parents=True)
        values = {"env": "doom_basic", "experiment": name, "command_line": f"--experiment={name}", **flags}
        (folder / "cfg.json").write_text(json.dumps(values))
        writer = summaries.TensorboardWriter(folder / ".summary" / "0")
        if resumed_at is not None:
            writer.begin(resumed_at)
        for step, reward in rewards.items():
            writer.write({TAG: reward, "train/loss": -reward}, step)
            fake_time.seconds += 1
        writer.flush()
        fake_time.seconds += 1000
        return folder

    return write


def groups_of(folders):
    return group_by_flags([read_experiment(folder, [TAG], 0) for folder in folders])


def curve_of(folder):
    return read_experiment(folder, [TAG], 0).curves[TAG]


def test_a_resumed_run_replaces_earlier_points_from_its_first_step_on(train):
    train("a", {100: 1.0, 200: 2.0, 300: 3.0, 400: 4.0})
    train("a", {300: 30.0, 500: 50.0}, resumed_at=250)
    curve = curve_of(train("a", {600: 60.0}, resumed_at=500))
    assert curve.steps.tolist() == [100, 200, 300, 500, 600]
    assert curve.values.tolist() == [1, 2, 30, 50, 60]


def test_a_run_without_a_start_record_begins_with_its_first_summary(train):
    train("a", {100: 1.0, 200: 2.0, 300: 3.0})
    curve = curve_of(train("a", {200: 20.0}))
    assert (curve.steps.tolist(), curve.values.tolist()) == ([100, 200], [1, 20])


def test_seconds_are_those_of_the_step_for_all_tags_however_rare_or_new_also_after_resumes(
    tmp_path, fake_time, monkeypatch
):
    monkeypatch.setattr(summaries, "time", types.SimpleNamespace(time=fake_time))
    (tmp_path / "cfg.json").write_text('{"env": "doom_basic"}')
    runs = [(0, ["rare"]), (800, ["rare", "zz_pbt/x"]), (1500, ["rare", "late"]), (1300, ["late"])]
    for began, others in runs:
        writer = summaries.TensorboardWriter(tmp_path / ".summary" / "0")
        writer.begin(began)
        for step in range(began + 100, began + 1000, 100):
            fake_time.seconds += 1
            is_rare = step % 500 == 0
            writer.write({TAG: 1.0, **dict.fromkeys(others if is_rare else [], 1.0)}, step)
        writer.flush()
        fake_time.seconds += 1000
    _, [curves] = read_policies(tmp_path)
    for tag, curve in curves.items():
        assert curve.seconds.tolist() == (curve.steps / 100).tolist(), tag
    assert {"rare", "zz_pbt/x", "late"} <= curves.keys()


def test_the_last_finite_value_at_a_step_counts_and_an_incomplete_record_does_not(train, tmp_path):
    train("a", {100: 1.0})
    writer = summaries.TensorboardWriter(tmp_path / "a" / ".summary" / "0")
    for value in (2.0, float("nan"), 3.0, float("inf")):
        writer.write({TAG: value}, 200)
    writer.flush()
    assert curve_of(tmp_path / "a").values.tolist() == [1, 3]
    folder = train("b", {100: 1.0, 200: 2.0})
    (file,) = (folder / ".summary" / "0").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert curve_of(folder).values.tolist() == [1]


@pytest.mark.parametrize("tag", ["true_objective", "true_reward", "0_aux/avg_true_reward"])
def test_the_true_objective_of_an_env_without_one_of_its_own_is_the_reward(train, tag):
    folder = train("a", {100: 1.0, 200: 2.0})
    assert read_experiment(folder, [tag], 0).curves[tag].values.tolist() == [1, 2]


def test_env_steps_become_env_frames(train):
    folder = train("a", {100: 1.0}, summaries_use_frameskip=False, env_frameskip=4)
    assert curve_of(folder).steps.tolist() == [400]


def test_runs_that_differ_in_chance_only_are_one_group_and_a_missing_flag_has_its_default(train):
    folders = [
        train("a", {0: 0.0}, seed=1, gamma=0.99, restart_behavior="overwrite"),
        train("b", {0: 0.0}, seed=1, gamma=0.8, with_wandb=True, wandb_unique_id="b_1"),
        train("c", {0: 0.0}, seed=2, train_dir="elsewhere", cli_args={"seed": 2}, pixel_format="HWC"),
        train("d", {0: 0.0}, seed=1, gamma=0.9, env="doom_battle"),
    ]
    found = [(group.env, group.label, len(group.experiments)) for group in groups_of(folders)]
    assert found == [("doom_basic", "gamma=0.99", 2), ("doom_basic", "gamma=0.8", 1), ("doom_battle", "", 1)]


def test_flags_that_differ_are_shown_as_they_would_be_typed(train):
    first = train("a", {0: 0.0}, learning_rate=1e-6, encoder_mlp_layers=[64, 32], use_rnn=True, maze_size=3)
    second = train("b", {0: 0.0}, learning_rate=0.001, encoder_mlp_layers=[], use_rnn=False)
    shown = [sorted(group.label.split(", ")) for group in groups_of([first, second])]
    assert shown == [
        ["encoder_mlp_layers=64,32", "learning_rate=1e-06", "maze_size=3", "use_rnn=True"],
        ["encoder_mlp_layers=", "learning_rate=0.001", "maze_size=unset", "use_rnn=False"],
    ]


def test_runs_with_the_same_values_of_the_flags_to_group_by_are_one_line_in_the_order_of_the_values(train):
    folders = [
        train("a", {0: 1.0}, learning_rate=0.01, gamma=0.9),
        train("b", {0: 2.0}, learning_rate=0.002, gamma=0.9),
        train("c", {0: 4.0}, learning_rate=0.01, gamma=0.8),
    ]
    groups = group_by_flags([read_experiment(folder, [TAG], 0) for folder in folders], ["learning_rate"])
    found = [(group.label, [run.folder.name for run in group.experiments]) for group in groups]
    assert found == [("learning_rate=0.002", ["b"]), ("learning_rate=0.01", ["a", "c"])]


def test_mean_and_band_are_over_the_interpolated_runs_where_all_have_data(train):
    rising = train("a", {0: 0.0, 100: 10.0, 200: 20.0}, seed=1)
    falling = train("b", {50: 4.0, 150: 3.0, 250: 2.0}, seed=2)
    (group,) = groups_of([rising, falling])
    x, mean, low, high = mean_of(group, TAG, Averaging(), 250)
    assert x.tolist() == [50, 100, 150, 200]
    assert (low.tolist(), high.tolist()) == ([4, 3.5, 3, 2.5], [5, 10, 15, 20])
    np.testing.assert_array_equal(mean, (low + high) / 2)


def test_the_band_is_the_range_or_the_deviation_or_the_confidence_interval_of_the_mean(train):
    (group,) = groups_of([train(name, {0: value}, seed=value) for name, value in zip("abc", (1, 2, 6))])
    deviation = np.std([1, 2, 6], ddof=1)
    for band, half in (("std", deviation), ("ci", 4.30265273 * deviation / 3**0.5)):
        _, *found = mean_of(group, TAG, Averaging(band=band), 0)
        np.testing.assert_allclose(found, [[3], [3 - half], [3 + half]])
    one = Group("doom_basic", "", group.experiments[:1])
    assert [float(values[0]) for values in mean_of(one, TAG, Averaging(band="ci"), 0)] == [0, 1, 1, 1]


def test_smoothing_is_the_mean_over_a_share_of_the_axis_however_dense_the_points_are(train):
    dense = train("a", {step: float(step) for step in range(0, 101, 10)}, gamma=0.9)
    sparse = train("b", {0: 0.0, 50: 50.0, 100: 100.0}, gamma=0.8)
    means = [mean_of(group, TAG, Averaging(smooth=0.2), 100)[1] for group in groups_of([dense, sparse])]
    assert means[0].tolist() == [0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert means[1].tolist() == [0, 50, 100]


def test_each_line_is_a_row_with_its_final_mean_min_and_max(train, tmp_path, capsys):
    a = train("a", {0: 0.0, 12000: 1.0}, seed=1)
    b = train("b", {0: 0.0, 2000: 1.5}, seed=2)
    c = train("c", {0: 0.0, 12000: 0.004}, env="doom_battle")
    out = tmp_path / "curves.png"
    assert main([str(a), f"{a}/", str(b), str(c), f"--out={out}"]) == 0  # the same folder twice counts once
    heading, *rows, note, last = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading == ["env", "group", "runs", "frames", "mean", "min", "max"]
    assert rows == [
        ["doom_basic", "-", "2", "2,000", "0.833", "0.167", "1.500"],
        ["doom_battle", "-", "1", "12,000", "0.004", "0.004", "0.004"],
    ]
    assert str(b) in note and "12,000" in note, "a mean that ends early has a note"
    assert last == ["written:", str(out)]


def panel(env="doom_basic", labels=("",), last=2e6, **changed):
    values = np.array([0.0, 1.0])
    lines = [
        Line(label, label, np.array([0.0, last]), values, (values - 0.5, values + 0.5)) for label in labels
    ]
    return Panel(env, "env frames", "reward (mean of the last 100 episodes)", lines)._replace(**changed)


def draw(*panels):
    figure = draw_panels(panels, 3)
    figure.draw_without_rendering()
    return figure


def test_the_same_line_looks_the_same_in_all_panels_and_lines_of_a_panel_differ():
    first, second = draw(panel(labels=["1", "2"]), panel(labels=["3", "2", "1"])).axes
    looks = {line.get_label(): line.get_color() for line in first.lines}
    others = {line.get_label(): line.get_color() for line in second.lines}
    assert looks.items() <= others.items() and len(set(others.values())) == 3
    assert len({(colour(number), dashes(number)) for number in range(36)}) == 36
    assert len({dashes(number) for number in range(6)}) == 6, "without colours"


@pytest.mark.parametrize("labels", [(["a", "b"],), (["a"], ["a", "b"]), (["a"], [""]), ([""],)])
def test_all_lines_with_a_label_are_in_one_legend_that_covers_no_curve(labels):
    figure = draw(*(panel(labels=of_panel) for of_panel in labels))
    found = [[text.get_text() for text in legend.get_texts()] for legend in figure.legends]
    expected = sorted({label for of_panel in labels for label in of_panel if label})
    assert found == ([expected] if expected else [])
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert not any(box.overlaps(axes.patch.get_window_extent()) for axes in figure.axes)


@pytest.mark.parametrize("num_points, marker", [(1, "o"), (4, "o"), (100, "None")])
def test_few_points_are_marked_since_the_line_between_them_is_no_data(num_points, marker):
    values = np.arange(num_points, dtype=float)
    (axes,) = draw(panel(lines=[Line("a", "a", values, values)])).axes
    assert axes.lines[0].get_marker() == marker


def test_axes_are_named_have_short_numbers_and_levels_are_dashed():
    values = np.array([0.0, 30_000.0])
    high = panel(lines=[Line("", "", np.array([0.0, 2e6]), values)], levels=[40_000.0])
    (axes,) = draw(high).axes
    assert (
        axes.get_xlabel() == "env frames" and axes.get_ylabel() == "reward\n(mean of the last 100 episodes)"
    )
    assert [tick.get_text() for tick in axes.get_xticklabels()][:3] == ["0", "500k", "1M"]
    assert "20k" in [tick.get_text() for tick in axes.get_yticklabels()]
    assert axes.lines[1].get_linestyle() == "--" and axes.get_ylim()[1] > 40_000


@pytest.mark.parametrize(
    "tag, label",
    [
        (TAG, "reward (mean of the last 50 episodes)"),
        ("0_aux/avg_true_reward", "true objective (mean of the last 50 episodes)"),
        ("0_aux/avg_true_reward_max", "highest true objective of the last 50 episodes"),
        ("0_aux/avg_kills_per_minute", "kills per minute (mean of the last 50 episodes)"),
        ("0_aux/_fps", "env frames per second"),
        ("len/len_min", "lowest episode length in env frames of the last 50 episodes"),
        ("train/policy_loss", "policy loss"),
        ("_/", "_/"),
    ],
)
def test_a_tag_has_a_readable_label(tag, label):
    assert label_of(tag, 50) == label


@pytest.mark.parametrize("seconds, unit", [(500, "seconds"), (3600, "minutes"), (86400, "hours")])
def test_the_unit_of_time_suits_its_length(train, tmp_path, fake_time, seconds, unit):
    folder = train("a", {})
    writer = summaries.TensorboardWriter(folder / ".summary" / "0")
    writer.write({TAG: 0.0}, 1)
    fake_time.seconds += seconds
    writer.write({TAG: 1.0}, 2)
    writer.flush()
    plot_groups({"": [folder]}, tmp_path / "time.svg", against="seconds")
    assert f"<!-- {unit} of training -->" in (tmp_path / "time.svg").read_text()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["{0}/nothing"], "cfg.json is missing"),
        (["{0}/a", "b={0}/b"], "{0}/a has no label"),
        (["a={0}/a", "--group_by=gamma"], "--group_by has no effect"),
        (["{0}/a", "--group_by=gama"], "did you mean gamma?"),
        (["{0}/a", "--smooth=20"], "--smooth"),
        (["{0}/broken"], "{0}/broken/cfg.json"),
        (["{0}/list"], "{0}/list/cfg.json"),
        (["{0}/fresh"], "{0}/fresh"),
        (["{0}/early"], "too few episodes"),
        (["{0}/a", "--policy_index=1"], "policy 1"),
        (["{0}/a", "--tag=train/los"], "train/loss"),
        (["{0}/a", "{0}/b"], "no frames in common so far: {0}/a, {0}/b"),
        (["{0}/a", "--level=doom_basc=1"], "did you mean doom_basic?"),
        (["{0}/a", "--level=doom_basic=high"], "ENV=NUMBER"),
        (["{0}/a", "--out={0}/curves.jpeg"], ".png"),
        (["{0}/a", "--out={0}/nowhere/curves.png"], "{0}/nowhere/curves.png"),
        ([], "no experiment"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(train, tmp_path, refused_by, arguments, words):
    train("a", {0: 0.0, 100: 1.0})
    train("b", {200: 0.0, 300: 1.0})
    train("fresh", {})
    writer = summaries.TensorboardWriter(train("early", {}) / ".summary" / "0")
    writer.write({"train/loss": 1.0}, 1)
    writer.flush()
    for name, text in (("broken", "{"), ("list", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cfg.json").write_text(text)
    out = f"--out={tmp_path / 'curves.png'}"
    line = refused_by(main, out, *(argument.format(tmp_path) for argument in arguments))
    assert words.format(tmp_path) in line and not (tmp_path / "curves.png").exists()


def test_without_matplotlib_the_error_says_what_to_install(train, tmp_path, capsys, monkeypatch):
    folder = train("a", {0: 0.0, 100: 1.0})
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([str(folder), f"--out={tmp_path / 'curves.png'}"]) == 2
    assert "pip install -e '.[plot]'" in capsys.readouterr().err


def test_labels_group_the_folders_after_them_also_by_pattern_and_by_parent(tmp_path):
    for name in ("new/1", "new/2", "old_1", "old_2", "lr=1"):
        (tmp_path / name).mkdir(parents=True)
    words = [f"new={tmp_path}/new", f"old={tmp_path}/old_*", f"{tmp_path}/new/1"]
    assert labelled_folders(words) == {
        "new": [f"{tmp_path}/new"],
        "old": [f"{tmp_path}/old_1", f"{tmp_path}/old_2", f"{tmp_path}/new/1"],
    }
    existing = str(tmp_path / "lr=1")  # a folder whose name has an equals sign is not a label
    assert labelled_folders([existing, f"b={existing}"]) == {"": [existing], "b": [existing]}


def test_groups_are_drawn_from_python_and_runs_without_curves_are_left_out_if_asked(train, tmp_path):
    train("grid/a", {0: 0.0, 100: 1.0}, gamma=0.9)
    train("grid/b", {0: 0.0, 100: 2.0}, gamma=0.8)
    failed = train("grid/c", {})
    train("other", {0: 0.0, 100: 7.0})
    groups = {"all": [tmp_path / "grid"], "other": [tmp_path / "other", failed]}
    out = tmp_path / "groups.svg"
    with pytest.raises(ConfigError, match="grid/c"):
        plot_groups(groups, out)
    lines = plot_groups(groups, out, ["reward", "train/loss"], skip_unreadable=True)
    assert [row.split() for row in lines[:5]] == [
        ["tag", "env", "group", "runs", "frames", "mean", "min", "max"],
        ["reward", "doom_basic", "all", "2", "100", "1.500", "1.000", "2.000"],
        ["reward", "doom_basic", "other", "1", "100", "7.000", "7.000", "7.000"],
        ["train/loss", "doom_basic", "all", "2", "100", "-1.500", "-2.000", "-1.000"],
        ["train/loss", "doom_basic", "other", "1", "100", "-7.000", "-7.000", "-7.000"],
    ]
    assert len(lines) == 7 and all(str(failed) in note for note in lines[5:])
    texts = re.findall(r"<!-- (.*?) -->", out.read_text())
    assert {"all (2 runs)", "other"} <= set(texts)
    assert any(text.startswith("line: mean of the runs; band: ") for text in texts)
    with pytest.raises(ConfigError):
        plot_groups({"failed": [failed]}, out, skip_unreadable=True)


def test_a_run_that_ended_before_the_others_of_its_line_began_is_left_out_if_asked(train, tmp_path):
    crashed = train("a", {5: 9.0})
    others = [train("b", {10: 1.0, 20: 1.0}), train("c", {12: 3.0, 20: 3.0})]
    groups = {"all": [crashed, *others]}
    with pytest.raises(ConfigError, match="no frames in common"):
        plot_groups(groups, tmp_path / "groups.svg")
    _, row, note = plot_groups(groups, tmp_path / "groups.svg", skip_unreadable=True)
    assert row.split() == ["doom_basic", "all", "2", "20", "2.000", "1.000", "3.000"]
    assert note == f"left out: {crashed} ends before another run of its line begins"


def test_each_run_of_a_folder_counts_once_without_copies_and_what_a_restart_moved_aside(train, tmp_path):
    a, b = train("grid/a", {0: 1.0}, seed=1), train("grid/b", {0: 2.0}, seed=2)
    for spare in ("a_old0000", "a_old0001", "a/.push_to_hub.12", ".copy/c", "b/nested"):
        train(f"grid/{spare}", {0: 100.0}, seed=3)
    alone = train("grid/d_old0000", {0: 3.0}, seed=4)  # the name of a run: there is no d beside it
    (tmp_path / "grid/link").symlink_to(b)
    grid = tmp_path / "grid"

    def counted(*folders):
        runs = read_runs(folders, [TAG], 0, skip=False, notes=[])
        return sorted(run.folder.resolve() for run in runs)

    assert find_experiments(grid) == [a, b, alone, grid / "link"]
    for folders in ([grid], [grid, a], [a, grid], [grid / "a", grid / ".." / "grid", grid / "link"]):
        assert counted(*folders) == [a, b, alone]
    assert counted(a, grid / "a_old0000") == [a, grid / "a_old0000"], "it was named"


@pytest.fixture
def three_versions(train, tmp_path):
    """Returns folders of a run of versions 1, 2 and 3, with the files and tags that each of them writes."""
    folders = [tmp_path / name for name in ("one", "two", "three")]
    train("three", {100: 3.0}, gamma=0.9)
    configs = ({"encoder_subtype": "a"}, {"rnn_size": 8, "summaries_use_frameskip": False})
    tags = (
        {TAG: 1.0, "0_aux/avg_true_reward": 10.0, "0_aux/_fps": 100.0, "0_aux/avg_len_min": 4.0},
        {"reward/reward": 2.0, "policy_stats/avg_true_objective": 20.0, "perf/_fps": 200.0, "len/len_min": 8},
    )
    for folder, name, values, scalars in zip(folders, ("cfg.json", "config.json"), configs, tags):
        folder.mkdir()
        same = {"env": "doom_basic", "gamma": 0.9, "stats_avg": 50, "env_frameskip": 4, "num_policies": 1}
        (folder / name).write_text(json.dumps({**same, **values}))
        writer = summaries.TensorboardWriter(folder / ".summary" / "0")
        writer.write(scalars, 100)
        writer.flush()
    return folders


@pytest.mark.parametrize("tag", ["0_aux/avg_reward", "reward/reward", "reward"])
def test_runs_of_all_versions_are_compared_under_the_tag_of_any_of_them(three_versions, tag):
    groups = group_by_flags([read_experiment(folder, [tag], 0) for folder in three_versions])
    found = [(group.label, *mean_of(group, tag, Averaging(), 0)[:2]) for group in groups]
    assert found == [("version 1", [100], [1]), ("version 2", [400], [2]), ("version 3", [100], [3])]


def test_figures_of_older_versions_have_the_tags_of_this_one(three_versions):
    for folder, factor in zip(three_versions, (1, 2)):
        _, (curves,) = read_policies(folder)
        assert {tag: curve.values.tolist() for tag, curve in curves.items()} == {
            TAG: [factor],
            "0_aux/avg_true_reward": [10 * factor],
            "0_aux/_fps": [100 * factor],
            "len/len_min": [4 * factor],
        }


def test_the_command_draws_a_panel_per_env_and_tag_without_a_display_and_without_torch(train, tmp_path):
    folders = [str(train(f"e{i}", {0: 0.0, 100: 1.0}, env=f"doom_{i}")) for i in range(2)]
    flags = ["--level=doom_0=0.5", "--title=All", "--against=seconds", "--tag=reward", "--tag=train/loss"]
    out = tmp_path / "curves.png"
    program = "\n".join(
        (
            "import sys",
            "from sample_factory.__main__ import main",
            f"assert main({['plot_curves', *folders, *flags, f'--out={out}']!r}) == 0",
            "print([name for name in ('torch', 'gymnasium', 'matplotlib.pyplot') if name in sys.modules])",
        )
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
    height, width, _ = imread(out).shape
    assert 1000 <= width <= 1700 and 800 <= height <= 1100, "two rows of two panels"
    assert imread(out).std() > 0.01, "not blank"
