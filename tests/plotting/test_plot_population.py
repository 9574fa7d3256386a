import json

import pytest
from matplotlib.image import imread

from sample_factory.monitoring.tensorboard_writer import TensorboardWriter
from sample_factory.plotting.draw_population import Takeover, draw
from sample_factory.plotting.plot_population import find_takeovers, main, make_panels
from sample_factory.plotting.read_summaries import read_policies

OBJECTIVE = "0_aux/avg_true_reward"
RATE = "zz_pbt/cfg_learning_rate"
CLIP = "zz_pbt/cfg_ppo_clip_ratio"
HEALTH = "zz_pbt/rew_delta_HEALTH_0"
DONOR = "zz_pbt/replaced_by"
# Policy 0 does not change; at 200, policy 1 takes over its weights and its rate, a hundred times its own.
POLICIES = [
    {0: {RATE: 1e-3, CLIP: 0.1, HEALTH: 0.5}, 100: {OBJECTIVE: 5.0}, 300: {OBJECTIVE: 9.0}},
    {
        0: {RATE: 1e-5, CLIP: 0.1, HEALTH: 0.5},
        100: {OBJECTIVE: 1.0},
        200: {RATE: 1e-3, CLIP: 0.1, HEALTH: 0.75, DONOR: 0.0},
        400: {OBJECTIVE: 7.0},
    },
]


@pytest.fixture
def population(tmp_path):
    """Writes the files of an experiment."""

    def write(policies=POLICIES, **flags):
        folder = tmp_path / "population"
        folder.mkdir()
        values = {"env": "doom_battle", "num_policies": len(policies), **flags}
        (folder / "cfg.json").write_text(json.dumps(values))
        for policy, moments in enumerate(policies):
            writer = TensorboardWriter(folder / ".summary" / str(policy))
            for step, scalars in moments.items():
                writer.write(scalars, step)
            writer.flush()
        return folder

    return write


def panels_of(folder):
    return {panel.title: panel for panel in make_panels(read_policies(folder)[1], OBJECTIVE, 100)}


def test_there_is_a_panel_for_the_objective_and_for_every_setting_that_differs_somewhere(population):
    assert list(panels_of(population())) == [
        "true objective",
        "learning rate",
        "reward shaping: delta_HEALTH_0",
    ]


def test_a_setting_holds_until_the_next_one_and_to_the_end_of_its_policy(population):
    rate = panels_of(population())["learning rate"]
    assert rate.curves[1].steps.tolist() == [0, 200, 400]
    assert rate.value_at(1, 199) == pytest.approx(1e-5) and rate.value_at(1, 200) == pytest.approx(1e-3)


def test_a_takeover_is_marked_on_the_receivers_objective_and_where_it_changes_a_setting(population):
    folder = population()
    (takeover,) = find_takeovers(read_policies(folder)[1])
    assert takeover == Takeover(receiver=1, donor=0, frames=200.0)
    panels = panels_of(folder)
    assert panels["true objective"].value_at(1, 200) == pytest.approx(3.0), "on the line that is drawn"
    unchanged = panels["learning rate"]._replace(curves=panels["reward shaping: delta_HEALTH_0"].curves)
    unchanged.curves[1].values[:] = 0.5
    assert not unchanged.shows(takeover)
    figure = draw(list(panels.values()), [takeover], "title")
    dots = [[line for line in axes.lines if line.get_marker() == "o"] for axes in figure.axes]
    assert [len(found) for found in dots] == [1, 1, 0]
    (dot,) = dots[0]
    lines = [line for line in figure.axes[0].lines if line not in dots[0]]
    assert dot.get_markerfacecolor() == lines[0].get_color() != lines[1].get_color()
    assert dot.get_markeredgecolor() == lines[1].get_color()
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "true objective\n(mean of the last 100 episodes)",
        "--learning_rate",
        "weight of delta_HEALTH_0",
    ]


def test_policies_differ_in_markers_too(population):
    figure = draw(list(panels_of(population()).values()), [Takeover(1, 0, 200.0)], "title")
    (legend,) = figure.legends
    *handles, _ = legend.legend_handles
    assert len({handle.get_marker() for handle in handles}) == len(handles) == 2
    assert legend.get_texts()[-1].get_text().startswith("marker on a line:")


def test_a_learning_rate_and_what_spans_more_than_a_factor_of_ten_is_logarithmic(population):
    changed = [{0: {RATE: 1e-3, CLIP: 0.1, HEALTH: -0.5}, 100: {OBJECTIVE: 5.0}} for _ in range(2)]
    changed[1][0] = {RATE: 2e-3, CLIP: 2.0, HEALTH: 0.75}
    panels = panels_of(population(changed))
    figure = draw(list(panels.values()), [], "title")
    scales = dict(zip(panels, (axes.get_yscale() for axes in figure.axes)))
    assert scales == {
        "true objective": "linear",
        "learning rate": "log",
        "ppo clip ratio": "log",
        "reward shaping: delta_HEALTH_0": "linear",
    }


def test_the_command_writes_a_picture_and_says_where_every_policy_ends(population, tmp_path, capsys):
    out = tmp_path / "pbt.png"
    assert main([str(population()), f"--out={out}"]) == 0
    assert imread(out).shape[1] > 1000
    lines = {line.split("  ")[0].strip(): line.split()[-2:] for line in capsys.readouterr().out.splitlines()}
    assert lines["env frames"] == ["300", "400"]
    assert lines["true objective"] == ["9.000", "7.000"]
    assert lines["learning rate"] == ["0.001", "0.001"]
    assert lines["takeovers"] == ["0", "1"] and lines["the last from"] == ["-", "0"]


def test_the_objective_is_that_of_the_experiment(population, tmp_path, capsys):
    policies = [{0: {RATE: 1e-3}, 100: {OBJECTIVE: 5.0, "0_aux/avg_kills": 3.0}} for _ in range(2)]
    assert main([str(population(policies, pbt_target_objective="kills")), f"--out={tmp_path / 'a.png'}"]) == 0
    output = capsys.readouterr().out
    assert "\nkills  " in output and "true objective" not in output


def test_env_steps_become_env_frames(population):
    folder = population(summaries_use_frameskip=False, env_frameskip=4)
    assert find_takeovers(read_policies(folder)[1])[0].frames == 800.0


@pytest.mark.parametrize(
    ("policies", "argument", "message"),
    [
        ([{0: {OBJECTIVE: 1.0}}] * 2, "--out=a.png", "was not trained with --with_pbt=True"),
        ([{0: {RATE: 1.0}}] * 2, "--out=a.png", f"no policy has numbers under the tag {OBJECTIVE}"),
        ([{0: {RATE: 1.0}}, {}], "--out=a.png", "has no summaries of policy 1 yet"),
        (POLICIES, "--out=a.gif", "should end in one of .png"),
        (POLICIES, "--ou=a.png", "did you mean --out?"),
    ],
)
def test_bad_input_is_one_clear_line(population, tmp_path, monkeypatch, capsys, policies, argument, message):
    monkeypatch.chdir(tmp_path)
    assert main([str(population(policies)), argument]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and error.count("\n") == 1


def test_without_a_folder_it_says_what_to_name(capsys):
    assert main([]) == 2
    assert "name a folder like train_dir/my_experiment" in capsys.readouterr().err
